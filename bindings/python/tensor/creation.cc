// Fresh tensors: constants, ranges, random numbers.
#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <ctime>
#include <functional>

#include "parts.h"
#include "slots.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/promotion.h"
#include "tenon/tensor/random.h"
#include "tenon/tensor/sparse.h"

namespace tenon::python {
namespace {

Device device_or_host(const Maybe<DeviceName>& device) {
  return device ? device->value : Device{};
}
DType dtype_or_default(const Maybe<DTypeName>& dtype) {
  return dtype ? dtype->value : default_dtype();
}

TensorObject made(const Tensor& tensor, bool requires_grad) {
  if (requires_grad) tensor.set_requires_grad(true);
  return wrap(tensor);
}

// The dtype that a plain number has.
DType natural_dtype(const Scalar& value) {
  switch (value.dtype()) {
    case DType::kF64:
      return default_dtype();
    case DType::kC128:
      return default_dtype() == DType::kF64 ? DType::kC128 : DType::kC64;
    default:
      return value.dtype();
  }
}

std::int64_t elements(IntList sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes)
    if (__builtin_mul_overflow(count, size, &count)) return 0;  // empty() refuses it
  return count;
}

using Make = Tensor (*)(IntList, DType, Device);
Tensor make_empty(IntList sizes, DType dtype, Device device) { return empty(sizes, dtype, device); }
Tensor make_zeros(IntList sizes, DType dtype, Device device) { return zeros(sizes, dtype, device); }
Tensor make_ones(IntList sizes, DType dtype, Device device) { return ones(sizes, dtype, device); }
template <Tensor (*draw)(IntList, DType, Generator&)>
Tensor make_random(IntList sizes, DType dtype, Device device) {
  if (device != Device{})
    throw InvalidArgument(fmt::format("random numbers on {}: they are made on the cpu: to(device)",
                                      to_string(device)));
  return draw(sizes, dtype, default_generator());
}

// Nanoseconds of processor time of a fresh tensor and its end in C++, for bench.py.
double empty_ns(Sizes shape, int count) {
  const std::clock_t start = std::clock();
  for (int i = 0; i < count; ++i) static_cast<void>(empty(shape));
  return static_cast<double>(std::clock() - start) * 1e9 / CLOCKS_PER_SEC / std::max(1, count);
}

// name(shape) alone, of plain integers, costs half of what a bound function does; all else goes to
// the bound one.
template <Make make>
struct Shaped {
  static inline PyObject* bound = nullptr;
  static inline PyMethodDef definition = {};

  static PyObject* call(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    try {
      DimVector shape;
      if (count != 1 || names != nullptr || !plain_sizes_from(args[0], shape))
        return PyObject_Vectorcall(bound, args, static_cast<std::size_t>(count), names);
      const DType dtype = default_dtype();
      return new_tensor(worked(elements(shape), [&] { return make(shape, dtype, Device{}); }));
    } catch (...) {
      return raise_current();
    }
  }
  // In place of the bound function of that name, which stubs are made from: `__overloads__`.
  static void put_before(nb::module_& module, const char* name, const char* about) {
    bound = nb::object(module.attr(name)).release().ptr();
    nb::object overloads = nb::getattr(module, "__overloads__", nb::none());
    if (overloads.is_none()) module.attr("__overloads__") = overloads = nb::dict();
    overloads[name] = nb::handle(bound);
    definition = {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call)),
                  METH_FASTCALL | METH_KEYWORDS, about};
    const nb::object home = module.attr("__name__");
    module.attr(name) = made_object(PyCFunction_NewEx(&definition, nullptr, home.ptr()));
  }
};

// name(shape, dtype, device) and, as in PyTorch, name(2, 3, dtype=...).
template <Make make>
void bind_shaped(nb::module_& module, const char* name, const char* about) {
  module.def(
      name,
      [](Sizes shape, Maybe<DTypeName> dtype, Maybe<DeviceName> device, bool requires_grad) {
        const DType as = dtype_or_default(dtype);
        const Device on = device_or_host(device);
        return made(worked(elements(shape), [&] { return make(shape, as, on); }), requires_grad);
      },
      nb::arg("shape"), nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(),
      nb::kw_only(), nb::arg("requires_grad") = false,
      nb::sig(fmt::format("def {}(shape: tenon._typing.Shape, dtype: tenon._typing.DTypeLike | None "
                          "= None, device: str | None = None, *, requires_grad: bool = False) -> "
                          "Tensor",
                          name)
                  .c_str()),
      about);
  module.def(
      name,
      [](const nb::args& shape, Maybe<DTypeName> dtype, Maybe<DeviceName> device,
         bool requires_grad) {
        return made(make(integers(shape, "a shape"), dtype_or_default(dtype),
                         device_or_host(device)),
                    requires_grad);
      },
      nb::arg("shape"), nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(),
      nb::arg("requires_grad") = false,
      nb::sig(fmt::format("def {}(*shape: int, dtype: tenon._typing.DTypeLike | None = None, "
                          "device: str | None = None, requires_grad: bool = False) -> Tensor",
                          name)
                  .c_str()));
  Shaped<make>::put_before(module, name, about);
}

Tensor like(const Tensor& t, const Maybe<DTypeName>& dtype, const Maybe<DeviceName>& device) {
  const DType as = dtype ? dtype->value : t.dtype();
  return device && device->value != t.device() ? empty(t.sizes(), as, device->value)
                                                : empty_like(t, as);
}

template <typename Fill>
void bind_like(nb::module_& module, const char* name, const char* about, Fill fill) {
  module.def(
      name,
      [fill](const Tensor& t, Maybe<DTypeName> dtype, Maybe<DeviceName> device) {
        const Tensor fresh = like(t, dtype, device);
        worked(fresh.numel(), [&] { fill(fresh); });
        return wrap(fresh);
      },
      nb::arg("x"), nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(), about);
}

void bind_constants(nb::module_& module) {
  bind_shaped<&make_empty>(module, "empty", "Elements are whatever was there before.");
  module.def("_empty_ns", &empty_ns, nb::arg("shape"), nb::arg("count"));
  bind_shaped<&make_zeros>(module, "zeros", "Zeros.");
  bind_shaped<&make_ones>(module, "ones", "Ones.");
  bind_like(module, "empty_like", "Of another tensor's shape and dtype.", [](const Tensor&) {});
  bind_like(module, "zeros_like", "Zeros of another tensor's shape and dtype.",
            [](const Tensor& t) { fill_(t, 0); });
  bind_like(module, "ones_like", "Ones of another tensor's shape and dtype.",
            [](const Tensor& t) { fill_(t, 1); });
  module.def(
      "full",
      [](Sizes shape, Number value, Maybe<DTypeName> dtype, Maybe<DeviceName> device) {
        const DType as = dtype ? dtype->value : natural_dtype(value.value);
        return wrap(full(shape, value.value, as, device_or_host(device)));
      },
      nb::arg("shape"), nb::arg("fill_value"), nb::arg("dtype") = nb::none(),
      nb::arg("device") = nb::none(), "One value everywhere.");
  module.def(
      "full_like",
      [](const Tensor& t, Number value, Maybe<DTypeName> dtype, Maybe<DeviceName> device) {
        const Tensor fresh = like(t, dtype, device);
        fill_(fresh, value.value);
        return wrap(fresh);
      },
      nb::arg("x"), nb::arg("fill_value"), nb::arg("dtype") = nb::none(),
      nb::arg("device") = nb::none(), "One value in another tensor's shape and dtype.");
  module.def(
      "empty_strided",
      [](Sizes size, Sizes stride, Maybe<DTypeName> dtype, Maybe<DeviceName> device) {
        return wrap(empty_strided(size, stride, dtype_or_default(dtype), device_or_host(device)));
      },
      nb::arg("size"), nb::arg("stride"), nb::arg("dtype") = nb::none(),
      nb::arg("device") = nb::none(), "With strides (in elements) of one's own.");
}

Tensor on(const Tensor& tensor, const Maybe<DeviceName>& device) {
  return device && device->value != tensor.device() ? to(tensor, device->value) : tensor;
}

void bind_ranges(nb::module_& module) {
  module.def(
      "arange",
      [](Number start, Maybe<Number> stop, Number step, Maybe<DTypeName> dtype,
         Maybe<DeviceName> device) {
        const Scalar from = stop ? start.value : Scalar(0);
        const Scalar to = stop ? stop->value : start.value;
        const DType as =
            dtype ? dtype->value : natural_dtype([&] {
              for (const Scalar& part : {from, to, step.value})
                if (part.dtype() != DType::kI64 && part.dtype() != DType::kBool) return part;
              return Scalar(0);
            }());
        return wrap(on(arange(from, to, step.value, as), device));
      },
      nb::arg("start"), nb::arg("stop") = nb::none(), nb::arg("step") = 1,
      nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(),
      "start, start + step, ... below stop; arange(stop) begins with 0.");
  module.def(
      "linspace",
      [](double start, double stop, std::int64_t num, Maybe<DTypeName> dtype,
         Maybe<DeviceName> device, bool endpoint) {
        const DType as = dtype_or_default(dtype);
        if (endpoint || num < 1) return wrap(on(linspace(start, stop, num, as), device));
        return wrap(on(linspace(start, stop, num + 1, as).slice(0, 0, num), device));
      },
      nb::arg("start"), nb::arg("stop"), nb::arg("num"), nb::arg("dtype") = nb::none(),
      nb::arg("device") = nb::none(), nb::kw_only(), nb::arg("endpoint") = true,
      "`num` values at equal distances.");
  module.def(
      "eye",
      [](std::int64_t rows, std::optional<std::int64_t> columns, std::int64_t k,
         Maybe<DTypeName> dtype, Maybe<DeviceName> device) {
        const DType as = dtype_or_default(dtype);
        const std::int64_t width = columns.value_or(rows);
        const Tensor made = zeros({rows, width}, as);
        if (k < width && k > -rows) fill_(made.diagonal(k), 1);
        return wrap(on(made, device));
      },
      nb::arg("n_rows"), nb::arg("n_cols") = nb::none(), nb::kw_only(), nb::arg("k") = 0,
      nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(), "Ones on a diagonal.");
}

TensorObject drawn(nb::handle self, const std::function<void(const Tensor&)>& draw) {
  const Tensor t = tensor_of(self);
  worked(t.numel(), [&] { draw(t); });
  return again(self);
}

void bind_random(nb::module_& module) {
  bind_shaped<&make_random<&rand>>(module, "rand", "Uniform in [0, 1).");
  bind_shaped<&make_random<&randn>>(module, "randn", "Normal, of mean 0 and variance 1.");
  module.def("manual_seed", [](std::uint64_t seed) { manual_seed(seed); }, nb::arg("seed"),
             "The numbers that follow depend on the seed and on what is asked for alone.");
  module.def(
      "randint",
      [](std::int64_t low, std::int64_t high, Sizes shape, Maybe<DTypeName> dtype) {
        return wrap(randint(low, high, shape, dtype ? dtype->value : DType::kI64));
      },
      nb::arg("low"), nb::arg("high"), nb::arg("shape"), nb::arg("dtype") = nb::none(),
      "Uniform integers in [low, high).");
  module.def("randperm", [](std::int64_t n) { return wrap(randperm(n)); }, nb::arg("n"),
             "0 .. n - 1 in random order.");
  nb::handle type = reinterpret_cast<PyObject*>(tensor_class);
  const auto method = [&](const char* name, auto function, auto... extra) {
    nb::cpp_function_def(function, nb::scope(type), nb::name(name), nb::is_method(), extra...);
  };
  method("uniform_", [](nb::handle self, double low, double high) {
    return drawn(self, [&](const Tensor& t) { uniform_(t, low, high); });
  }, nb::arg("low") = 0.0, nb::arg("high") = 1.0, "Uniform numbers in place.");
  method("normal_", [](nb::handle self, double mean, double std) {
    return drawn(self, [&](const Tensor& t) { normal_(t, mean, std); });
  }, nb::arg("mean") = 0.0, nb::arg("std") = 1.0, "Normal numbers in place.");
  method("bernoulli_", [](nb::handle self, double p) {
    return drawn(self, [&](const Tensor& t) { bernoulli_(t, p); });
  }, nb::arg("p") = 0.5, "1 with probability p, else 0, in place.");
}

void bind_sparse(nb::module_& module) {
  module.def(
      "sparse_coo_tensor",
      [](const Tensor& indices, const Tensor& values, Sizes shape) {
        return wrap(sparse_coo_tensor(indices, values, shape));
      },
      nb::arg("indices"), nb::arg("values"), nb::arg("shape"), "Elements by their coordinates.");
  module.def(
      "sparse_csr_tensor",
      [](const Tensor& rows, const Tensor& columns, const Tensor& values, Sizes shape) {
        return wrap(sparse_csr_tensor(rows, columns, values, shape));
      },
      nb::arg("crow_indices"), nb::arg("col_indices"), nb::arg("values"), nb::arg("shape"),
      "A matrix by compressed rows.");
}

}  // namespace

void bind_creation(nb::module_& module) {
  bind_constants(module);
  bind_ranges(module);
  bind_random(module);
  bind_sparse(module);
  module.def("get_default_dtype", [] { return dtype_object(default_dtype()); },
             nb::sig("def get_default_dtype() -> dtype"), "What plain floating-point numbers become.");
  module.def("set_default_dtype", [](DTypeName dtype) { set_default_dtype(dtype.value); },
             nb::arg("dtype"), "float16, bfloat16, float32 or float64.");
  module.def("promote_types", [](DTypeName a, DTypeName b) {
    return dtype_object(promote_types(a.value, b.value));
  }, nb::arg("a"), nb::arg("b"), nb::sig("def promote_types(a: tenon._typing.DTypeLike, "
                                         "b: tenon._typing.DTypeLike) -> dtype"),
             "The smallest dtype that both convert to without a change of kind.");
  module.def("can_cast", [](DTypeName from, DTypeName to) { return can_cast(from.value, to.value); },
             nb::arg("from_"), nb::arg("to"), "Whether a result of one may be stored in the other.");
}

}  // namespace tenon::python
