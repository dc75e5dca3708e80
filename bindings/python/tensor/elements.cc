// Element-wise functions, as functions of the module and methods of Tensor.
#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include "parts.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"

namespace tenon::python {
namespace {

nb::handle class_handle() { return reinterpret_cast<PyObject*>(tensor_class); }

template <typename F, typename... Extra>
void method(const std::string& name, F&& function, const Extra&... extra) {
  nb::cpp_function_def(std::forward<F>(function), nb::scope(class_handle()), nb::name(name.c_str()),
                       nb::is_method(), extra...);
}

// f(x), f(x, out=...), x.f(), x.f_().
template <const ops::UnaryOperator& op, const ops::UnaryIntoOperator& into>
void unary(nb::module_& module, const char* name, const char* about) {
  module.def(
      name,
      [](const Tensor& x, nb::handle out) {
        if (out.is_none()) return wrap(worked(x.numel(), [&] { return op(x); }));
        const Tensor target = tensor_of(out);
        worked(x.numel(), [&] { into(target, x); });
        return again(out);
      },
      nb::arg("x"), nb::kw_only(), nb::arg("out") = nb::none(),
      nb::sig(fmt::format("def {}(x: Tensor, *, out: Tensor | None = None) -> Tensor", name).c_str()),
      about);
  method(
      name, [](const Tensor& x) { return wrap(worked(x.numel(), [&] { return op(x); })); },
      nb::sig(fmt::format("def {}(self) -> Tensor", name).c_str()), about);
  method(
      fmt::format("{}_", name),
      [](nb::handle self) {
        const Tensor x = tensor_of(self);
        worked(x.numel(), [&] { into(x, x); });
        return again(self);
      },
      nb::sig(fmt::format("def {}_(self) -> Tensor", name).c_str()),
      fmt::format("{} In place.", about).c_str());
}

// f(a, b), f(a, b, out=...), a.f(b), a.f_(b); either of a and b may be a number.
template <const ops::BinaryOperator& op, const ops::BinaryIntoOperator& into>
void binary(nb::module_& module, const char* name, const char* about) {
  const auto call = [](const Operand& a, const Operand& b) {
    return worked(std::max(a.tensor.numel(), b.tensor.numel()),
                  [&] { return op(a.tensor, b.tensor); });
  };
  module.def(
      name,
      [call](Operand a, Operand b, nb::handle out) {
        if (out.is_none()) return wrap(call(a, b));
        const Tensor target = tensor_of(out);
        worked(target.numel(), [&] { into(target, a.tensor, b.tensor); });
        return again(out);
      },
      nb::arg("x1"), nb::arg("x2"), nb::kw_only(), nb::arg("out") = nb::none(),
      nb::sig(fmt::format("def {}(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, "
                          "out: Tensor | None = None) -> Tensor",
                          name)
                  .c_str()),
      about);
  method(
      name, [call](const Tensor& a, Operand b) { return wrap(call({a}, b)); }, nb::arg("other"),
      nb::sig(fmt::format("def {}(self, other: tenon._typing.Operand) -> Tensor", name).c_str()),
      about);
  method(
      fmt::format("{}_", name),
      [](nb::handle self, Operand b) {
        const Tensor a = tensor_of(self);
        worked(a.numel(), [&] { into(a, a, b.tensor); });
        return again(self);
      },
      nb::arg("other"),
      nb::sig(fmt::format("def {}_(self, other: tenon._typing.Operand) -> Tensor", name).c_str()),
      fmt::format("{} In place.", about).c_str());
}

#define TENON_BIND(kind, name, about) \
  kind<ops::op::name, ops::op::name##_into>(module, #name, about)

void bind_arithmetic(nb::module_& module) {
  TENON_BIND(unary, neg, "-x.");
  TENON_BIND(unary, abs, "The absolute value; of a complex number its length.");
  TENON_BIND(unary, sign, "-1, 0 or 1; of a complex number z / |z|.");
  TENON_BIND(unary, square, "x * x.");
  TENON_BIND(unary, sqrt, "The square root.");
  TENON_BIND(unary, rsqrt, "1 / sqrt(x).");
  TENON_BIND(unary, reciprocal, "1 / x.");
  TENON_BIND(unary, floor, "The largest whole number that is not above x.");
  TENON_BIND(unary, ceil, "The smallest whole number that is not below x.");
  TENON_BIND(unary, round, "To the nearest whole number, halves to even.");
  TENON_BIND(unary, trunc, "Towards zero.");
  TENON_BIND(unary, logical_not, "Whether x is zero.");
  TENON_BIND(unary, bitwise_not, "Every bit of an integer turned; of bool: not.");
  TENON_BIND(unary, isnan, "Whether x is not a number.");
  TENON_BIND(unary, isinf, "Whether x is infinite.");
  TENON_BIND(unary, isfinite, "Whether x is neither infinite nor NaN.");
}

void bind_transcendental(nb::module_& module) {
  TENON_BIND(unary, exp, "e to the power of x.");
  TENON_BIND(unary, exp2, "2 to the power of x.");
  TENON_BIND(unary, expm1, "exp(x) - 1, exact near 0.");
  TENON_BIND(unary, log, "The natural logarithm.");
  TENON_BIND(unary, log2, "The logarithm to base 2.");
  TENON_BIND(unary, log10, "The logarithm to base 10.");
  TENON_BIND(unary, log1p, "log(1 + x), exact near 0.");
  TENON_BIND(unary, sin, "The sine.");
  TENON_BIND(unary, cos, "The cosine.");
  TENON_BIND(unary, tan, "The tangent.");
  TENON_BIND(unary, asin, "The inverse of the sine.");
  TENON_BIND(unary, acos, "The inverse of the cosine.");
  TENON_BIND(unary, atan, "The inverse of the tangent.");
  TENON_BIND(unary, sinh, "The hyperbolic sine.");
  TENON_BIND(unary, cosh, "The hyperbolic cosine.");
  TENON_BIND(unary, tanh, "The hyperbolic tangent.");
  TENON_BIND(unary, erf, "The error function.");
  TENON_BIND(unary, erfc, "1 - erf(x).");
}

void bind_activations(nb::module_& module) {
  TENON_BIND(unary, relu, "x above zero, else zero.");
  TENON_BIND(unary, sigmoid, "1 / (1 + exp(-x)).");
  TENON_BIND(unary, log_sigmoid, "The logarithm of sigmoid(x).");
  TENON_BIND(unary, silu, "x sigmoid(x).");
  TENON_BIND(unary, mish, "x tanh(softplus(x)).");
  TENON_BIND(unary, hardsigmoid, "x / 6 + 1 / 2, within 0 and 1.");
  TENON_BIND(unary, hardswish, "x hardsigmoid(x).");
  module.def("gelu", [](const Tensor& x, const std::string& approximate) {
    if (approximate != "none" && approximate != "tanh")
      throw InvalidArgument("gelu: approximate=\"" + approximate + "\": give \"none\" or \"tanh\"");
    return wrap(worked(x.numel(), [&] { return ops::gelu(x, approximate == "tanh"); }));
  }, nb::arg("x"), nb::kw_only(), nb::arg("approximate") = "none", "x Phi(x).");
  module.def("leaky_relu", [](const Tensor& x, double slope) {
    return wrap(worked(x.numel(), [&] { return ops::leaky_relu(x, slope); }));
  }, nb::arg("x"), nb::arg("negative_slope") = 0.01, "x above zero, else slope x.");
  module.def("elu", [](const Tensor& x, double alpha) {
    return wrap(worked(x.numel(), [&] { return ops::elu(x, alpha); }));
  }, nb::arg("x"), nb::arg("alpha") = 1.0, "x above zero, else alpha (exp(x) - 1).");
  module.def("softplus", [](const Tensor& x, double beta, double threshold) {
    return wrap(worked(x.numel(), [&] { return ops::softplus(x, beta, threshold); }));
  }, nb::arg("x"), nb::arg("beta") = 1.0, nb::arg("threshold") = 20.0, "log(1 + exp(beta x)) / beta.");
  module.def("hardtanh", [](const Tensor& x, double low, double high) {
    return wrap(worked(x.numel(), [&] { return ops::hardtanh(x, low, high); }));
  }, nb::arg("x"), nb::arg("min_val") = -1.0, nb::arg("max_val") = 1.0, "x within two bounds.");
  both(module, "softmax", [](const Tensor& x, std::int64_t dim) {
    return wrap(worked(x.numel(), [&] { return ops::softmax(x, dim); }));
  }, nb::arg("dim"), "exp(x) / sum(exp(x)) along a dimension.");
  both(module, "log_softmax", [](const Tensor& x, std::int64_t dim) {
    return wrap(worked(x.numel(), [&] { return ops::log_softmax(x, dim); }));
  }, nb::arg("dim"), "The logarithm of softmax along a dimension.");
}

void bind_pairs(nb::module_& module) {
  TENON_BIND(binary, add, "x1 + x2.");
  TENON_BIND(binary, sub, "x1 - x2.");
  TENON_BIND(binary, mul, "x1 * x2.");
  TENON_BIND(binary, div, "x1 / x2; of integers in floating point.");
  TENON_BIND(binary, pow, "x1 to the power of x2.");
  TENON_BIND(binary, atan2, "The angle of the point (x2, x1).");
  TENON_BIND(binary, fmod, "What division leaves, with the sign of x1.");
  TENON_BIND(binary, remainder, "What division leaves, with the sign of x2.");
  TENON_BIND(binary, floor_divide, "x1 / x2, rounded down.");
  TENON_BIND(binary, maximum, "The larger one; NaN passes on.");
  TENON_BIND(binary, minimum, "The smaller one; NaN passes on.");
  TENON_BIND(binary, eq, "x1 == x2.");
  TENON_BIND(binary, ne, "x1 != x2.");
  TENON_BIND(binary, lt, "x1 < x2.");
  TENON_BIND(binary, le, "x1 <= x2.");
  TENON_BIND(binary, gt, "x1 > x2.");
  TENON_BIND(binary, ge, "x1 >= x2.");
  TENON_BIND(binary, bitwise_and, "Bits that both have.");
  TENON_BIND(binary, bitwise_or, "Bits that either has.");
  TENON_BIND(binary, bitwise_xor, "Bits that one has.");
  TENON_BIND(binary, logical_and, "Whether both are not zero.");
  TENON_BIND(binary, logical_or, "Whether either is not zero.");
  TENON_BIND(binary, logical_xor, "Whether one is not zero.");
}
#undef TENON_BIND

std::optional<Scalar> bound(const Maybe<Number>& number) {
  return number ? std::optional(number->value) : std::nullopt;
}

}  // namespace

void bind_elements(nb::module_& module) {
  bind_arithmetic(module);
  bind_transcendental(module);
  bind_activations(module);
  bind_pairs(module);
  both(module, "clamp", [](const Tensor& x, Maybe<Number> low, Maybe<Number> high) {
    return wrap(worked(x.numel(), [&] { return ops::clamp(x, bound(low), bound(high)); }));
  }, nb::arg("min") = nb::none(), nb::arg("max") = nb::none(), "x within bounds, either of which may be absent.");
}

}  // namespace tenon::python
