// Operators and factories as functions.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <utility>

#include "convert.h"
#include "module.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/attention.h"
#include "tenon/ops/conv.h"
#include "tenon/ops/loss.h"
#include "tenon/ops/matmul.h"
#include "tenon/ops/normalization.h"
#include "tenon/ops/operators.h"
#include "tenon/ops/pool.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::python {
namespace {

using UnaryFunction = Tensor (*)(const Tensor&);
using BinaryFunction = Tensor (*)(const Tensor&, const Tensor&);
using ReduceFunction = Tensor (*)(const Tensor&, IntList, bool);
using Free = nb::gil_scoped_release;

void bind_unary(nb::module_& module) {
  const std::pair<const char*, UnaryFunction> functions[] = {{"neg", &ops::neg},
                                                             {"abs", &ops::abs},
                                                             {"sign", &ops::sign},
                                                             {"square", &ops::square},
                                                             {"relu", &ops::relu},
                                                             {"logical_not", &ops::logical_not},
                                                             {"bitwise_not", &ops::bitwise_not},
                                                             {"floor", &ops::floor},
                                                             {"ceil", &ops::ceil},
                                                             {"round", &ops::round},
                                                             {"trunc", &ops::trunc},
                                                             {"exp", &ops::exp},
                                                             {"exp2", &ops::exp2},
                                                             {"expm1", &ops::expm1},
                                                             {"log", &ops::log},
                                                             {"log2", &ops::log2},
                                                             {"log10", &ops::log10},
                                                             {"log1p", &ops::log1p},
                                                             {"sqrt", &ops::sqrt},
                                                             {"rsqrt", &ops::rsqrt},
                                                             {"reciprocal", &ops::reciprocal},
                                                             {"sin", &ops::sin},
                                                             {"cos", &ops::cos},
                                                             {"tan", &ops::tan},
                                                             {"asin", &ops::asin},
                                                             {"acos", &ops::acos},
                                                             {"atan", &ops::atan},
                                                             {"sinh", &ops::sinh},
                                                             {"cosh", &ops::cosh},
                                                             {"tanh", &ops::tanh},
                                                             {"erf", &ops::erf},
                                                             {"erfc", &ops::erfc},
                                                             {"sigmoid", &ops::sigmoid},
                                                             {"log_sigmoid", &ops::log_sigmoid},
                                                             {"silu", &ops::silu},
                                                             {"mish", &ops::mish},
                                                             {"hardsigmoid", &ops::hardsigmoid},
                                                             {"hardswish", &ops::hardswish},
                                                             {"isnan", &ops::isnan},
                                                             {"isinf", &ops::isinf},
                                                             {"isfinite", &ops::isfinite}};
  for (const auto& [name, function] : functions)
    module.def(
        name,
        [function = function](const Tensor& a) {
          const Free free;
          return function(a);
        },
        nb::arg("x"));
}

void bind_binary(nb::module_& module) {
  const std::pair<const char*, BinaryFunction> functions[] = {{"add", &ops::add},
                                                              {"sub", &ops::sub},
                                                              {"mul", &ops::mul},
                                                              {"div", &ops::div},
                                                              {"maximum", &ops::maximum},
                                                              {"minimum", &ops::minimum},
                                                              {"pow", &ops::pow},
                                                              {"atan2", &ops::atan2},
                                                              {"fmod", &ops::fmod},
                                                              {"remainder", &ops::remainder},
                                                              {"floor_divide", &ops::floor_divide},
                                                              {"bitwise_and", &ops::bitwise_and},
                                                              {"bitwise_or", &ops::bitwise_or},
                                                              {"bitwise_xor", &ops::bitwise_xor},
                                                              {"eq", &ops::eq},
                                                              {"ne", &ops::ne},
                                                              {"lt", &ops::lt},
                                                              {"le", &ops::le},
                                                              {"gt", &ops::gt},
                                                              {"ge", &ops::ge},
                                                              {"logical_and", &ops::logical_and},
                                                              {"logical_or", &ops::logical_or},
                                                              {"logical_xor", &ops::logical_xor},
                                                              {"matmul", &ops::matmul},
                                                              {"bmm", &ops::bmm},
                                                              {"outer", &ops::outer}};
  for (const auto& [name, function] : functions)
    module.def(
        name,
        [function = function](nb::handle a, nb::handle b) {
          const Tensor first = require_operand(a), second = require_operand(b);
          const Free free;
          return function(first, second);
        },
        nb::arg("x1"), nb::arg("x2"));
}

// Dimensions of a reduction: none given means all.
std::vector<std::int64_t> dims_of(nb::handle dim) {
  return dim.is_none() ? std::vector<std::int64_t>() : ints_of(dim);
}

void bind_reductions(nb::module_& module) {
  const std::pair<const char*, ReduceFunction> functions[] = {
      {"sum", &ops::sum},   {"mean", &ops::mean},           {"prod", &ops::prod},
      {"amax", &ops::amax}, {"amin", &ops::amin},           {"any", &ops::any},
      {"all", &ops::all},   {"logsumexp", &ops::logsumexp}, {"norm", &ops::norm}};
  for (const auto& [name, function] : functions)
    module.def(
        name,
        [function = function](const Tensor& a, nb::handle dim, bool keepdim) {
          const std::vector<std::int64_t> dims = dims_of(dim);
          const Free free;
          return function(a, dims, keepdim);
        },
        nb::arg("x"), nb::arg("dim") = nb::none(), nb::arg("keepdim") = false);
  for (const bool root : {false, true})
    module.def(
        root ? "std" : "var",
        [root](const Tensor& a, nb::handle dim, std::int64_t correction, bool keepdim) {
          const std::vector<std::int64_t> dims = dims_of(dim);
          const Free free;
          return root ? ops::std(a, dims, correction, keepdim)
                      : ops::var(a, dims, correction, keepdim);
        },
        nb::arg("x"), nb::arg("dim") = nb::none(), nb::arg("correction") = 1,
        nb::arg("keepdim") = false);
  for (const bool largest : {false, true})
    module.def(
        largest ? "argmax" : "argmin",
        [largest](const Tensor& a, std::optional<std::int64_t> dim, bool keepdim) {
          const Free free;
          return largest ? ops::argmax(a, dim, keepdim) : ops::argmin(a, dim, keepdim);
        },
        nb::arg("x"), nb::arg("dim") = nb::none(), nb::arg("keepdim") = false);
  for (const auto& [name, function] :
       {std::pair<const char*, Tensor (*)(const Tensor&, std::int64_t)>{"cumsum", &ops::cumsum},
        {"cumprod", &ops::cumprod},
        {"softmax", &ops::softmax},
        {"log_softmax", &ops::log_softmax}})
    module.def(
        name,
        [function = function](const Tensor& a, std::int64_t dim) {
          const Free free;
          return function(a, dim);
        },
        nb::arg("x"), nb::arg("dim"));
  module.def(
      "sort",
      [](const Tensor& a, std::int64_t dim, bool descending) {
        return ops::sort(a, dim, descending);
      },
      nb::arg("x"), nb::arg("dim") = -1, nb::arg("descending") = false);
  module.def(
      "topk",
      [](const Tensor& a, std::int64_t k, std::int64_t dim, bool largest) {
        return ops::topk(a, k, dim, largest);
      },
      nb::arg("x"), nb::arg("k"), nb::arg("dim") = -1, nb::arg("largest") = true);
}

void bind_shapes(nb::module_& module) {
  for (const bool stacked : {false, true})
    module.def(
        stacked ? "stack" : "cat",
        [stacked](const std::vector<Tensor>& tensors, std::int64_t dim) {
          const Free free;
          return stacked ? ops::stack(tensors, dim) : ops::cat(tensors, dim);
        },
        nb::arg("tensors"), nb::arg("dim") = 0);
  module.def(
      "flip", [](const Tensor& a, nb::handle dims) { return ops::flip(a, ints_of(dims)); },
      nb::arg("x"), nb::arg("dims"));
  module.def(
      "roll",
      [](const Tensor& a, nb::handle shifts, nb::handle dims) {
        return ops::roll(a, ints_of(shifts), dims_of(dims));
      },
      nb::arg("x"), nb::arg("shifts"), nb::arg("dims") = nb::none());
  module.def(
      "repeat",
      [](const Tensor& a, nb::handle repeats) { return ops::repeat(a, ints_of(repeats)); },
      nb::arg("x"), nb::arg("repeats"));
  module.def("tril", &ops::tril, nb::arg("x"), nb::arg("diagonal") = 0);
  module.def("triu", &ops::triu, nb::arg("x"), nb::arg("diagonal") = 0);
  module.def(
      "where",
      [](const Tensor& condition, nb::handle a, nb::handle b) {
        return ops::where(condition, require_operand(a), require_operand(b));
      },
      nb::arg("condition"), nb::arg("x1"), nb::arg("x2"));
  module.def(
      "clamp",
      [](const Tensor& a, nb::handle low, nb::handle high) {
        return ops::clamp(a, scalar_of(low), scalar_of(high));
      },
      nb::arg("x"), nb::arg("min") = nb::none(), nb::arg("max") = nb::none());
  module.def(
      "masked_fill",
      [](const Tensor& a, const Tensor& mask, nb::handle value) {
        const std::optional<Scalar> number = scalar_of(value);
        if (!number) throw nb::type_error("masked_fill: give a number");
        return ops::masked_fill(a, mask, *number);
      },
      nb::arg("x"), nb::arg("mask"), nb::arg("value"));
  module.def("index_select", &ops::index_select, nb::arg("x"), nb::arg("dim"), nb::arg("index"));
  module.def("gather", &ops::gather, nb::arg("x"), nb::arg("dim"), nb::arg("index"));
  module.def("one_hot", &ops::one_hot, nb::arg("index"), nb::arg("classes") = -1);
  module.def("embedding", &ops::embedding, nb::arg("index"), nb::arg("weight"));
}

Tensor optional(nb::handle tensor) {
  return tensor.is_none() ? Tensor() : nb::cast<Tensor>(tensor);
}

ops::Pair pair_of(nb::handle value) {
  const std::vector<std::int64_t> ints = ints_of(value);
  if (ints.empty() || ints.size() > 2) throw InvalidArgument("give one number or two");
  return {ints.front(), ints.back()};
}

void bind_layers(nb::module_& module) {
  module.def(
      "linear",
      [](const Tensor& a, const Tensor& weight, nb::handle bias) {
        const Tensor given = optional(bias);
        const Free free;
        return ops::linear(a, weight, given);
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none());
  module.def(
      "conv2d",
      [](const Tensor& a, const Tensor& weight, nb::handle bias, nb::handle stride,
         nb::handle padding, nb::handle dilation, std::int64_t groups) {
        ops::ConvOptions options;
        options.stride = pair_of(stride);
        options.padding = pair_of(padding);
        options.dilation = pair_of(dilation);
        options.groups = groups;
        const Tensor given = optional(bias);
        const Free free;
        return ops::conv2d(a, weight, given, options);
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::arg("stride") = 1,
      nb::arg("padding") = 0, nb::arg("dilation") = 1, nb::arg("groups") = 1);
  for (const bool largest : {false, true})
    module.def(
        largest ? "max_pool2d" : "avg_pool2d",
        [largest](const Tensor& a, nb::handle kernel, nb::handle stride, nb::handle padding) {
          ops::PoolOptions options;
          options.kernel = pair_of(kernel);
          options.stride = stride.is_none() ? options.kernel : pair_of(stride);
          options.padding = pair_of(padding);
          const Free free;
          return largest ? ops::max_pool2d(a, options) : ops::avg_pool2d(a, options);
        },
        nb::arg("x"), nb::arg("kernel_size"), nb::arg("stride") = nb::none(),
        nb::arg("padding") = 0);
  module.def("gelu", &ops::gelu, nb::arg("x"), nb::arg("approximate_tanh") = false);
  module.def("leaky_relu", &ops::leaky_relu, nb::arg("x"), nb::arg("negative_slope") = 0.01);
  module.def("elu", &ops::elu, nb::arg("x"), nb::arg("alpha") = 1.0);
  module.def("softplus", &ops::softplus, nb::arg("x"), nb::arg("beta") = 1.0,
             nb::arg("threshold") = 20.0);
  module.def(
      "layer_norm",
      [](const Tensor& a, nb::handle shape, nb::handle weight, nb::handle bias, double eps) {
        return ops::layer_norm(a, ints_of(shape), optional(weight), optional(bias), eps);
      },
      nb::arg("x"), nb::arg("normalized_shape"), nb::arg("weight") = nb::none(),
      nb::arg("bias") = nb::none(), nb::arg("eps") = 1e-5);
  module.def(
      "scaled_dot_product_attention",
      [](const Tensor& query, const Tensor& key, const Tensor& value, nb::handle mask,
         bool is_causal) {
        const Tensor given = optional(mask);
        const Free free;
        return ops::scaled_dot_product_attention(query, key, value, given, is_causal);
      },
      nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("mask") = nb::none(),
      nb::arg("is_causal") = false);
}

ops::Reduction reduction_of(const std::string& name) {
  if (name == "mean") return ops::Reduction::kMean;
  if (name == "sum") return ops::Reduction::kSum;
  if (name == "none") return ops::Reduction::kNone;
  throw InvalidArgument("reduction \"" + name + "\": give mean, sum or none");
}

void bind_losses(nb::module_& module) {
  module.def(
      "cross_entropy",
      [](const Tensor& logits, const Tensor& target, const std::string& reduction,
         std::int64_t ignore_index, double label_smoothing) {
        return ops::cross_entropy(logits, target, reduction_of(reduction), ignore_index,
                                  label_smoothing);
      },
      nb::arg("logits"), nb::arg("target"), nb::arg("reduction") = "mean",
      nb::arg("ignore_index") = -100, nb::arg("label_smoothing") = 0.0);
  for (const auto& [name, function] :
       {std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&, ops::Reduction)>{
            "mse_loss", &ops::mse_loss},
        {"l1_loss", &ops::l1_loss},
        {"binary_cross_entropy_with_logits", &ops::binary_cross_entropy_with_logits}})
    module.def(
        name,
        [function = function](const Tensor& a, const Tensor& b, const std::string& reduction) {
          return function(a, b, reduction_of(reduction));
        },
        nb::arg("x"), nb::arg("target"), nb::arg("reduction") = "mean");
}

DType dtype_or(nb::handle dtype, DType otherwise) {
  return dtype.is_none() ? otherwise : dtype_from(dtype);
}

void bind_factories(nb::module_& module) {
  const auto dtype = nb::arg("dtype") = nb::none();
  using Made = Tensor (*)(IntList, DType, Device);
  for (const auto& [name, function] :
       {std::pair<const char*, Made>{"empty", static_cast<Made>(&empty)},
        {"zeros", &zeros},
        {"ones", &ones}})
    module.def(
        name,
        [function = function](nb::handle shape, nb::handle kind) {
          return function(ints_of(shape), dtype_or(kind, DType::kF32), Device{});
        },
        nb::arg("shape"), dtype);
  module.def(
      "full",
      [](nb::handle shape, nb::handle value, nb::handle kind) {
        const std::optional<Scalar> number = scalar_of(value);
        if (!number) throw nb::type_error("full: give a number");
        const DType natural = number->dtype() == DType::kF64 ? DType::kF32 : number->dtype();
        return full(ints_of(shape), *number, dtype_or(kind, natural));
      },
      nb::arg("shape"), nb::arg("fill_value"), dtype);
  module.def(
      "arange",
      [](nb::handle start, nb::handle stop, nb::handle step, nb::handle kind) {
        const auto number = [](nb::handle value) {
          const std::optional<Scalar> given = scalar_of(value);
          if (!given) throw nb::type_error("arange: give numbers");
          return *given;
        };
        const Scalar from = stop.is_none() ? Scalar(0) : number(start);
        const Scalar to = number(stop.is_none() ? start : stop), by = number(step);
        bool whole = true;
        for (const Scalar& value : {from, to, by}) whole = whole && value.dtype() == DType::kI64;
        return arange(from, to, by, dtype_or(kind, whole ? DType::kI64 : DType::kF32));
      },
      nb::arg("start"), nb::arg("stop") = nb::none(), nb::arg("step") = 1, dtype);
  module.def(
      "linspace",
      [](double start, double stop, std::int64_t count, nb::handle kind) {
        return linspace(start, stop, count, dtype_or(kind, DType::kF32));
      },
      nb::arg("start"), nb::arg("stop"), nb::arg("num"), dtype);
  module.def(
      "eye",
      [](std::int64_t rows, std::int64_t columns, nb::handle kind) {
        return eye(rows, columns, dtype_or(kind, DType::kF32));
      },
      nb::arg("n_rows"), nb::arg("n_cols") = -1, dtype);
  module.def(
      "tensor",
      [](nb::handle data, nb::handle kind, bool requires_grad) {
        const std::optional<DType> wanted =
            kind.is_none() ? std::nullopt : std::optional(dtype_from(kind));
        const Tensor made = tensor_from(data, wanted);
        if (requires_grad) made.set_requires_grad(true);
        return made;
      },
      nb::arg("data"), dtype, nb::arg("requires_grad") = false);
  module.def("from_dlpack", &tensor_from_dlpack, nb::arg("x"));
  for (const auto& [name, function] :
       {std::pair<const char*, Tensor (*)(IntList, DType, Generator&)>{"rand", &rand},
        {"randn", &randn}})
    module.def(name, [function = function](nb::args shape, nb::kwargs kwargs) {
      const nb::object kind = kwargs.contains("dtype") ? nb::object(kwargs["dtype"]) : nb::none();
      const nb::object sizes = nb::len(shape) == 1 ? nb::object(shape[0]) : nb::object(shape);
      return function(ints_of(sizes), dtype_or(kind, DType::kF32), default_generator());
    });
  module.def(
      "randint",
      [](std::int64_t low, std::int64_t high, nb::handle shape) {
        return randint(low, high, ints_of(shape));
      },
      nb::arg("low"), nb::arg("high"), nb::arg("shape"));
  module.def(
      "randperm", [](std::int64_t n) { return randperm(n); }, nb::arg("n"));
  module.def("manual_seed", &manual_seed, nb::arg("seed"));
  module.def("set_num_threads", &set_num_threads, nb::arg("threads"));
  module.def("get_num_threads", &num_threads);
}

}  // namespace

void bind_functions(nb::module_& module) {
  bind_unary(module);
  bind_binary(module);
  bind_reductions(module);
  bind_shapes(module);
  bind_layers(module);
  bind_losses(module);
  bind_factories(module);
}

}  // namespace tenon::python
