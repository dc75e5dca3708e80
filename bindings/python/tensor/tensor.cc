// The class Tensor.
#include "tenon/tensor/tensor.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "convert.h"
#include "dlpack.h"
#include "module.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/interop/dlpack.h"
#include "tenon/tensor/print.h"

namespace tenon::python {
namespace {

using BinaryFunction = Tensor (*)(const Tensor&, const Tensor&);
using InPlaceFunction = const Tensor& (*)(const Tensor&, const Tensor&);
using UnaryFunction = Tensor (*)(const Tensor&);
using Dims = std::optional<nb::object>;

nb::object not_implemented() { return nb::borrow(Py_NotImplemented); }

void def_binary(nb::class_<Tensor>& tensor, const char* name, const char* reflected,
                BinaryFunction function) {
  tensor.def(name, [function](const Tensor& a, nb::handle b) -> nb::object {
    const std::optional<Tensor> other = operand_of(b);
    if (!other) return not_implemented();
    const auto compute = [&] {
      const nb::gil_scoped_release release;
      return function(a, *other);
    };
    return nb::cast(compute());
  });
  if (reflected == nullptr) return;
  tensor.def(reflected, [function](const Tensor& b, nb::handle a) -> nb::object {
    const std::optional<Tensor> other = operand_of(a);
    if (!other) return not_implemented();
    const auto compute = [&] {
      const nb::gil_scoped_release release;
      return function(*other, b);
    };
    return nb::cast(compute());
  });
}

void def_in_place(nb::class_<Tensor>& tensor, const char* name, const char* method,
                  InPlaceFunction function) {
  for (const char* each : {name, method})
    tensor.def(each, [function](nb::handle self, nb::handle b) {
      const Tensor other = require_operand(b);
      const Tensor& a = nb::cast<Tensor&>(self);
      {
        const nb::gil_scoped_release release;
        function(a, other);
      }
      return nb::borrow(self);
    });
}

void bind_operators(nb::class_<Tensor>& tensor) {
  def_binary(tensor, "__add__", "__radd__", &ops::add);
  def_binary(tensor, "__sub__", "__rsub__", &ops::sub);
  def_binary(tensor, "__mul__", "__rmul__", &ops::mul);
  def_binary(tensor, "__truediv__", "__rtruediv__", &ops::div);
  def_binary(tensor, "__floordiv__", "__rfloordiv__", &ops::floor_divide);
  def_binary(tensor, "__mod__", "__rmod__", &ops::remainder);
  def_binary(tensor, "__pow__", "__rpow__", &ops::pow);
  def_binary(tensor, "__and__", "__rand__", &ops::bitwise_and);
  def_binary(tensor, "__or__", "__ror__", &ops::bitwise_or);
  def_binary(tensor, "__xor__", "__rxor__", &ops::bitwise_xor);
  def_binary(tensor, "__matmul__", "__rmatmul__", &ops::matmul);
  def_binary(tensor, "__eq__", nullptr, &ops::eq);
  def_binary(tensor, "__ne__", nullptr, &ops::ne);
  def_binary(tensor, "__lt__", nullptr, &ops::lt);
  def_binary(tensor, "__le__", nullptr, &ops::le);
  def_binary(tensor, "__gt__", nullptr, &ops::gt);
  def_binary(tensor, "__ge__", nullptr, &ops::ge);
  def_in_place(tensor, "__iadd__", "add_", &ops::add_);
  def_in_place(tensor, "__isub__", "sub_", &ops::sub_);
  def_in_place(tensor, "__imul__", "mul_", &ops::mul_);
  def_in_place(tensor, "__itruediv__", "div_", &ops::div_);
  const std::pair<const char*, UnaryFunction> unary[] = {
      {"__neg__", &ops::neg}, {"__abs__", &ops::abs}, {"__invert__", &ops::bitwise_not}};
  for (const auto& [name, function] : unary)
    tensor.def(name, [function = function](const Tensor& a) { return function(a); });
  tensor.def("__pos__", [](const Tensor& a) { return a; });
  tensor.def("__hash__", [](nb::handle self) {
    return reinterpret_cast<std::intptr_t>(nb::cast<Tensor&>(self).impl()) >> 4;
  });
  tensor.def("__bool__", [](const Tensor& a) { return a.item<bool>(); });
  tensor.def("__float__", [](const Tensor& a) { return a.item<double>(); });
  tensor.def("__int__", [](const Tensor& a) { return a.item<std::int64_t>(); });
  tensor.def("__complex__", [](const Tensor& a) {
    const Complex128 value = a.item<Complex128>();
    return nb::steal(PyComplex_FromDoubles(value.real(), value.imag()));
  });
  tensor.def("__index__", [](const Tensor& a) {
    if (!is_integral(a.dtype())) throw nb::type_error("only a tensor of one integer is an index");
    return a.item<std::int64_t>();
  });
}

void bind_geometry(nb::class_<Tensor>& tensor) {
  tensor.def_prop_ro("shape", [](const Tensor& a) { return tuple_of(a.sizes()); })
      .def_prop_ro("strides", [](const Tensor& a) { return tuple_of(a.strides()); })
      .def_prop_ro("ndim", [](const Tensor& a) { return a.dim(); })
      .def_prop_ro("size", [](const Tensor& a) { return a.numel(); })
      .def_prop_ro("nbytes", [](const Tensor& a) { return a.nbytes(); })
      .def_prop_ro("itemsize", [](const Tensor& a) { return a.item_size(); })
      .def_prop_ro("dtype", [](const Tensor& a) { return std::string(dtype_name(a.dtype())); })
      .def_prop_ro("device", [](const Tensor& a) { return to_string(a.device()); })
      .def_prop_ro("T",
                   [](const Tensor& a) {
                     if (a.dim() != 2)
                       throw InvalidArgument("T: of a tensor of two dimensions; use mT or permute");
                     return a.transpose(0, 1);
                   })
      .def_prop_ro("mT", [](const Tensor& a) { return a.transpose(-2, -1); })
      .def("numel", [](const Tensor& a) { return a.numel(); })
      .def("is_contiguous", [](const Tensor& a) { return a.is_contiguous(); })
      .def("data_ptr",
           [](const Tensor& a) { return reinterpret_cast<std::uintptr_t>(a.data_ptr()); })
      .def("__len__",
           [](const Tensor& a) {
             if (a.dim() == 0) throw nb::type_error("a tensor without dimensions has no length");
             return a.size(0);
           })
      .def("reshape",
           [](const Tensor& a, nb::args sizes) {
             return a.reshape(
                 ints_of(nb::len(sizes) == 1 ? nb::object(sizes[0]) : nb::object(sizes)));
           })
      .def("view",
           [](const Tensor& a, nb::args sizes) {
             return a.view(ints_of(nb::len(sizes) == 1 ? nb::object(sizes[0]) : nb::object(sizes)));
           })
      .def("permute",
           [](const Tensor& a, nb::args order) {
             return a.permute(
                 ints_of(nb::len(order) == 1 ? nb::object(order[0]) : nb::object(order)));
           })
      .def("expand",
           [](const Tensor& a, nb::args sizes) {
             return a.expand(
                 ints_of(nb::len(sizes) == 1 ? nb::object(sizes[0]) : nb::object(sizes)));
           })
      .def("transpose", &Tensor::transpose, nb::arg("dim0"), nb::arg("dim1"))
      .def("flatten", &Tensor::flatten, nb::arg("start_dim") = 0, nb::arg("end_dim") = -1)
      .def("unsqueeze", &Tensor::unsqueeze, nb::arg("dim"))
      .def(
          "squeeze",
          [](const Tensor& a, std::optional<std::int64_t> dim) {
            return dim ? a.squeeze(*dim) : a.squeeze();
          },
          nb::arg("dim") = nb::none())
      .def(
          "split",
          [](const Tensor& a, std::int64_t size, std::int64_t dim) { return a.split(size, dim); },
          nb::arg("split_size"), nb::arg("dim") = 0)
      .def("chunk", &Tensor::chunk, nb::arg("chunks"), nb::arg("dim") = 0)
      .def("unbind", &Tensor::unbind, nb::arg("dim") = 0)
      .def("__getitem__", [](const Tensor& a, nb::handle key) { return a.index(index_of(key)); })
      .def("__setitem__",
           [](const Tensor& a, nb::handle key, nb::handle values) {
             a.index_put_(index_of(key), require_operand(values));
           })
      .def("__iter__", [](const Tensor& a) {
        if (a.dim() == 0) throw nb::type_error("a tensor without dimensions cannot be iterated");
        return nb::iter(nb::cast(a.unbind(0)));
      });
}

nb::object dlpack(nb::handle self, nb::args args, nb::kwargs kwargs) {
  DlpackRequest request;
  if (!parse_dlpack_request(args.ptr(), kwargs.ptr(), request)) throw nb::python_error();
  const Tensor& tensor = nb::cast<Tensor&>(self);
  const Tensor shared = request.copy ? clone(tensor.detach()) : tensor;
  PyObject* capsule = nullptr;
  // A consumer renames the capsule that it takes; the others are done with here.
  if (request.versioned) {
    capsule = PyCapsule_New(to_dlpack_versioned(shared), "dltensor_versioned", [](PyObject* made) {
      if (PyCapsule_IsValid(made, "dltensor_versioned") == 0) return;
      auto* managed =
          static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(made, "dltensor_versioned"));
      managed->deleter(managed);
    });
  } else {
    capsule = PyCapsule_New(to_dlpack(shared), "dltensor", [](PyObject* made) {
      if (PyCapsule_IsValid(made, "dltensor") == 0) return;
      auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(made, "dltensor"));
      managed->deleter(managed);
    });
  }
  if (capsule == nullptr) throw nb::python_error();
  return nb::steal(capsule);
}

nb::object numpy_of(nb::handle self) {
  nb::object module;
  try {
    module = nb::module_::import_("numpy");
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    throw nb::import_error("Tensor.numpy() needs NumPy: pip install numpy");
  }
  return module.attr("from_dlpack")(self);
}

void bind_values(nb::class_<Tensor>& tensor) {
  tensor.def("item", [](const Tensor& a) { return number_of(a.item()); })
      .def("tolist", &list_of)
      .def("numpy", &numpy_of)
      .def(
          "__array__",
          [](nb::handle self, nb::handle dtype, nb::handle) {
            const nb::object array = numpy_of(self);
            return dtype.is_none() ? array : array.attr("astype")(dtype);
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack__", &dlpack)
      .def("__dlpack_device__", [](const Tensor&) { return nb::make_tuple(1, 0); })
      .def("clone", [](const Tensor& a) { return clone(a); })
      .def("contiguous", [](const Tensor& a) { return contiguous(a); })
      .def(
          "to", [](const Tensor& a, nb::handle dtype) { return to(a, dtype_from(dtype)); },
          nb::arg("dtype"))
      .def(
          "astype", [](const Tensor& a, nb::handle dtype) { return to(a, dtype_from(dtype)); },
          nb::arg("dtype"))
      .def(
          "fill_",
          [](nb::handle self, nb::handle value) {
            const std::optional<Scalar> number = scalar_of(value);
            if (!number) throw nb::type_error("fill_: give a number");
            fill_(nb::cast<Tensor&>(self), *number);
            return nb::borrow(self);
          },
          nb::arg("value"))
      .def(
          "copy_",
          [](nb::handle self, const Tensor& source) {
            copy_(nb::cast<Tensor&>(self), source);
            return nb::borrow(self);
          },
          nb::arg("source"))
      .def("__repr__", [](const Tensor& a) { return to_string(a); });
}

void bind_gradients(nb::class_<Tensor>& tensor) {
  tensor
      .def_prop_rw(
          "requires_grad", [](const Tensor& a) { return a.requires_grad(); },
          [](const Tensor& a, bool value) { a.set_requires_grad(value); })
      .def(
          "requires_grad_",
          [](nb::handle self, bool value) {
            nb::cast<Tensor&>(self).set_requires_grad(value);
            return nb::borrow(self);
          },
          nb::arg("requires_grad") = true)
      .def_prop_rw(
          "grad",
          [](const Tensor& a) -> nb::object {
            return a.grad().defined() ? nb::cast(a.grad()) : nb::none();
          },
          [](const Tensor& a, nb::handle gradient) {
            autograd::set_grad(a, gradient.is_none() ? Tensor() : nb::cast<Tensor&>(gradient));
          },
          nb::arg("gradient").none())
      .def_prop_ro("is_leaf", [](const Tensor& a) { return autograd::is_leaf(a); })
      .def("retain_grad", [](const Tensor& a) { autograd::retain_grad(a); })
      .def("detach", [](const Tensor& a) { return a.detach(); })
      .def(
          "backward",
          [](const Tensor& a, nb::handle gradient, bool retain_graph, bool create_graph) {
            const Tensor given = gradient.is_none() ? Tensor() : nb::cast<Tensor>(gradient);
            const nb::gil_scoped_release release;
            autograd::backward(a, given,
                               {.retain_graph = retain_graph, .create_graph = create_graph});
          },
          nb::arg("gradient") = nb::none(), nb::arg("retain_graph") = false,
          nb::arg("create_graph") = false);
}

}  // namespace

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor> tensor(module, "Tensor", nb::is_weak_referenceable());
  bind_operators(tensor);
  bind_geometry(tensor);
  bind_values(tensor);
  bind_gradients(tensor);
}

}  // namespace tenon::python
