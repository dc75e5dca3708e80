#include "arguments.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "tenon/base/error.h"

namespace tenon::python {

PyTypeObject* tensor_class = nullptr;

Tensor& tensor_of(nb::handle object) {
  if (!is_tensor(object.ptr())) refuse_type("tenon", "a tenon.Tensor", object);
  if (!nb::inst_ready(object))
    throw nb::type_error("the tensor was never made: its class must call Tensor.__init__");
  return *nb::inst_ptr<Tensor>(object);
}

PyObject* new_tensor(Tensor tensor) {
  if (!tensor.defined()) Py_RETURN_NONE;
  nb::object made = nb::inst_alloc(nb::handle(reinterpret_cast<PyObject*>(tensor_class)));
  ::new (static_cast<void*>(nb::inst_ptr<Tensor>(made))) Tensor(std::move(tensor));
  nb::inst_mark_ready(made);
  return made.release().ptr();
}

TensorObjects wrap_all(const std::vector<Tensor>& tensors) {
  TensorObjects made;
  for (const Tensor& tensor : tensors) made.append(wrap(tensor));
  return made;
}

void refuse_type(const char* what, const char* wanted, nb::handle given) {
  throw nb::type_error(fmt::format("{}: give {}, not {}", what, wanted,
                                   nb::cast<std::string_view>(nb::str(given.type().attr("__name__")))
                                       .data())
                           .c_str());
}

namespace {

std::int64_t integer_from(PyObject* object) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (overflow == 0) return value;
  PyErr_SetString(PyExc_OverflowError, "an integer of more than 64 bits: no tensor can hold it");
  throw nb::python_error();
}

// NumPy's scalars and 0-d arrays: they have item(), and no tensor is made of them here.
bool is_foreign_scalar(PyObject* object) {
  nb::object ndim = nb::getattr(object, "ndim", nb::none());
  return PyLong_Check(ndim.ptr()) != 0 && PyLong_AsLong(ndim.ptr()) == 0 &&
         nb::hasattr(object, "item");
}

}  // namespace

bool number_from(PyObject* object, Scalar& value) {
  if (PyBool_Check(object) != 0) {
    value = Scalar(object == Py_True);
  } else if (PyLong_Check(object) != 0) {
    value = Scalar(integer_from(object));
  } else if (PyFloat_Check(object) != 0) {
    value = Scalar(PyFloat_AsDouble(object));
  } else if (PyComplex_Check(object) != 0) {
    value = Scalar(Complex128(PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object)));
  } else if (is_tensor(object)) {
    const Tensor& tensor = tensor_of(object);
    if (tensor.numel() != 1) return false;
    value = tensor.item();
  } else if (is_foreign_scalar(object)) {
    const nb::object item = nb::handle(object).attr("item")();
    if (is_foreign_scalar(item.ptr())) return false;
    return number_from(item.ptr(), value);
  } else {
    return false;
  }
  return true;
}

bool operand_from(PyObject* object, Tensor& value) {
  if (is_tensor(object)) {
    value = tensor_of(object);
    return true;
  }
  Scalar number = 0;
  if (!number_from(object, number)) return false;
  value = wrapped_number(number);
  return true;
}

bool plain_sizes_from(PyObject* object, DimVector& value) {
  const auto add = [&](PyObject* item) {
    int overflow = 0;
    if (PyLong_CheckExact(item) == 0) return false;
    value.push_back(PyLong_AsLongLongAndOverflow(item, &overflow));
    return overflow == 0;
  };
  if (PyTuple_CheckExact(object) == 0) return add(object);
  const Py_ssize_t count = PyTuple_Size(object);
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!add(PyTuple_GetItem(object, i))) return false;
  return true;
}

bool sizes_from(PyObject* object, DimVector& value) {
  if (plain_sizes_from(object, value)) return true;
  value.clear();
  if (PyIndex_Check(object) != 0 && !is_tensor(object)) {
    const nb::object index = nb::steal(PyNumber_Index(object));
    if (!index.is_valid()) {
      PyErr_Clear();
      return false;
    }
    value.push_back(integer_from(index.ptr()));
    return true;
  }
  if (PyList_Check(object) == 0 && PyTuple_Check(object) == 0) return false;
  const Py_ssize_t count = PySequence_Size(object);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const nb::object item = nb::steal(PySequence_GetItem(object, i));
    if (!item.is_valid()) throw nb::python_error();
    if (PyIndex_Check(item.ptr()) == 0) return false;
    const nb::object index = nb::steal(PyNumber_Index(item.ptr()));
    if (!index.is_valid()) throw nb::python_error();
    value.push_back(integer_from(index.ptr()));
  }
  return true;
}

bool device_from(PyObject* object, Device& value) {
  std::string_view text;
  if (!nb::try_cast(nb::handle(object), text)) {
    // torch.device, and what else prints as its name
    if (!nb::hasattr(object, "type") || !nb::hasattr(object, "index")) return false;
    value = parse_device(nb::str(nb::handle(object)).c_str());
    return true;
  }
  value = parse_device(text);
  return true;
}

bool tensors_from(PyObject* object, std::vector<Tensor>& value) {
  if (is_tensor(object) || PySequence_Check(object) == 0 || PyUnicode_Check(object) != 0)
    return false;
  const Py_ssize_t count = PySequence_Size(object);
  if (count < 0) throw nb::python_error();
  for (Py_ssize_t i = 0; i < count; ++i) {
    const nb::object item = nb::steal(PySequence_GetItem(object, i));
    if (!item.is_valid()) throw nb::python_error();
    if (!is_tensor(item.ptr())) return false;
    value.push_back(tensor_of(item));
  }
  return true;
}

// ------------------------------------------------------------------------------------------------
// Dtypes

namespace {

struct DTypeObject {
  DType value;
};

// One object for each dtype; they live as long as the process.
std::array<PyObject*, kDTypeCount> dtype_objects{};
PyTypeObject* dtype_class = nullptr;

}  // namespace

bool is_dtype(PyObject* object) { return Py_TYPE(object) == dtype_class; }

DTypeHandle dtype_object(DType dtype) {
  return nb::borrow<DTypeHandle>(dtype_objects[static_cast<std::size_t>(dtype)]);
}

bool dtype_from(PyObject* object, DType& value) {
  if (Py_TYPE(object) == dtype_class) {
    value = nb::inst_ptr<DTypeObject>(object)->value;
    return true;
  }
  if (object == reinterpret_cast<PyObject*>(&PyBool_Type)) {
    value = DType::kBool;
  } else if (object == reinterpret_cast<PyObject*>(&PyLong_Type)) {
    value = DType::kI64;
  } else if (object == reinterpret_cast<PyObject*>(&PyFloat_Type)) {
    value = DType::kF64;
  } else if (object == reinterpret_cast<PyObject*>(&PyComplex_Type)) {
    value = DType::kC128;
  } else {
    // Names; NumPy's dtypes and scalar types, and PyTorch's dtypes, by theirs.
    nb::object named = nb::borrow(object);
    if (PyUnicode_Check(object) == 0) {
      nb::object name = nb::getattr(named, "name", nb::none());
      if (PyUnicode_Check(name.ptr()) == 0) name = nb::getattr(named, "__name__", nb::none());
      if (PyUnicode_Check(name.ptr()) == 0) name = nb::str(named);
      named = name;
    }
    std::string name = nb::cast<std::string>(nb::str(named));
    if (name.starts_with("torch.")) name.erase(0, 6);
    if (name == "bool_") name = "bool";
    // What cannot be the name of a dtype is an argument of another kind.
    if (PyUnicode_Check(object) == 0 && PyType_Check(object) == 0 &&
        !nb::hasattr(object, "itemsize"))
      return false;
    value = parse_dtype(name);
  }
  return true;
}

void bind_dtypes(nb::module_& module) {
  nb::class_<DTypeObject> bound(
      module, "dtype", "The kind of a tensor's elements: tenon.float32 and the like.");
  bound
      .def_prop_ro("name", [](const DTypeObject& d) { return dtype_name(d.value); },
                   "\"float32\", as NumPy says.")
      .def_prop_ro("itemsize", [](const DTypeObject& d) { return item_size(d.value); },
                   "Bytes of an element.")
      .def_prop_ro("is_floating_point", [](const DTypeObject& d) { return is_floating(d.value); },
                   "Real floating point.")
      .def_prop_ro("is_complex", [](const DTypeObject& d) { return is_complex(d.value); },
                   "Two floating-point numbers.")
      .def_prop_ro("is_signed", [](const DTypeObject& d) { return is_signed(d.value); },
                   "Whether it has negative numbers.")
      .def("__repr__",
           [](const DTypeObject& d) { return fmt::format("tenon.{}", dtype_name(d.value)); })
      .def("__reduce__", [](const DTypeObject& d) { return fmt::format("{}", dtype_name(d.value)); });
  dtype_class = reinterpret_cast<PyTypeObject*>(bound.ptr());
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    nb::object made = nb::cast(DTypeObject{dtype}, nb::rv_policy::move);
    module.attr(std::string(dtype_name(dtype)).c_str()) = made;
    dtype_objects[static_cast<std::size_t>(i)] = made.release().ptr();
  }
}

}  // namespace tenon::python
