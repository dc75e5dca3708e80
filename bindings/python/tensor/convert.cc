#include "convert.h"

#include <fmt/format.h>

#include <string>

#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/interop/dlpack.h"

namespace tenon::python {
namespace {

// The elements of nested sequences, and their shape.
struct Flat {
  std::vector<std::int64_t> shape;
  std::vector<Scalar> values;
  bool complete = false;  // the shape is known down to the numbers
};

bool is_sequence(nb::handle data) { return PyList_Check(data.ptr()) || PyTuple_Check(data.ptr()); }

void flatten(nb::handle data, std::size_t depth, Flat& flat) {
  if (depth > kMaxDims) throw InvalidArgument("tensor: the lists are nested too deeply");
  if (!is_sequence(data)) {
    const std::optional<Scalar> value = nb::isinstance<Tensor>(data)
                                            ? std::optional(nb::cast<Tensor&>(data).item())
                                            : scalar_of(data);
    if (!value)
      throw nb::type_error("tensor: give numbers, lists of numbers, a tensor or an array");
    if (flat.complete && flat.shape.size() != depth)
      throw InvalidArgument("tensor: the lists are of different depth");
    flat.complete = true;
    flat.values.push_back(*value);
    return;
  }
  const auto length = static_cast<std::int64_t>(nb::len(data));
  if (depth < flat.shape.size()) {
    if (flat.shape[depth] != length)
      throw InvalidArgument(
          fmt::format("tensor: a list of {} beside one of {}", length, flat.shape[depth]));
  } else if (flat.complete) {
    throw InvalidArgument("tensor: the lists are of different depth");
  } else {
    flat.shape.push_back(length);
  }
  for (nb::handle item : nb::borrow<nb::sequence>(data)) flatten(item, depth + 1, flat);
}

DType natural_dtype(const std::vector<Scalar>& values) {
  if (values.empty()) return DType::kF32;
  DType widest = DType::kBool;
  for (const Scalar& value : values) widest = std::max(widest, value.dtype());
  if (widest == DType::kF64) return DType::kF32;
  return widest == DType::kC128 ? DType::kC64 : widest;
}

Tensor from_numbers(nb::handle data, std::optional<DType> dtype) {
  Flat flat;
  flatten(data, 0, flat);
  Tensor made = empty(flat.shape, dtype.value_or(natural_dtype(flat.values)));
  visit_dtype(made.dtype(), [&]<typename T>() {
    T* out = flat.values.empty() ? nullptr : made.data_ptr<T>();
    for (const Scalar& value : flat.values) *out++ = value.to<T>();
  });
  return made;
}

template <typename T>
nb::object number(T value) {
  if constexpr (std::is_same_v<T, bool>)
    return nb::bool_(value);
  else if constexpr (std::is_integral_v<T>)
    return nb::int_(static_cast<std::int64_t>(value));
  else if constexpr (std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>)
    return nb::steal(PyComplex_FromDoubles(static_cast<double>(value.real()),
                                           static_cast<double>(value.imag())));
  else
    return nb::float_(static_cast<double>(value));
}

template <typename T>
nb::object nested(const T*& data, IntList sizes) {
  if (sizes.size() == 0) return number(*data++);
  nb::list list;
  for (std::int64_t i = 0; i < sizes[0]; ++i)
    list.append(nested(data, IntList(sizes.data() + 1, sizes.size() - 1)));
  return list;
}

TensorIndex one_index(nb::handle item) {
  if (item.is_none()) return NewAxis();
  if (item.ptr() == Py_Ellipsis) return Ellipsis();
  if (nb::isinstance<Tensor>(item)) return TensorIndex(nb::cast<Tensor>(item));
  if (PyBool_Check(item.ptr())) return TensorIndex(from_numbers(item, DType::kBool));
  if (PyIndex_Check(item.ptr())) {
    const Py_ssize_t number = PyNumber_AsSsize_t(item.ptr(), PyExc_IndexError);
    if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return TensorIndex(static_cast<std::int64_t>(number));
  }
  if (PySlice_Check(item.ptr())) {
    const auto bound = [&](const char* name) -> std::optional<std::int64_t> {
      const nb::object value = item.attr(name);
      if (value.is_none()) return std::nullopt;
      return nb::cast<std::int64_t>(value);
    };
    const std::int64_t step = bound("step").value_or(1);
    if (step <= 0)
      throw InvalidArgument(fmt::format("a slice with step {}: steps are above 0; use flip", step));
    return Slice(bound("start"), bound("stop"), step);
  }
  if (is_sequence(item) || nb::hasattr(item, "__dlpack__"))
    return TensorIndex(tensor_from(item, std::nullopt));
  throw nb::type_error("an index is an int, a slice, None, ..., a tensor or a list of ints");
}

}  // namespace

std::optional<Scalar> scalar_of(nb::handle value) {
  PyObject* object = value.ptr();
  if (PyBool_Check(object)) return Scalar(object == Py_True);
  if (PyLong_Check(object)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0) throw nb::value_error("the int does not fit 64 bits");
    return Scalar(static_cast<std::int64_t>(number));
  }
  if (PyFloat_Check(object)) return Scalar(PyFloat_AsDouble(object));
  if (PyComplex_Check(object))
    return Scalar(Complex128(PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object)));
  return std::nullopt;
}

std::optional<Tensor> operand_of(nb::handle value) {
  if (nb::isinstance<Tensor>(value)) return nb::cast<Tensor>(value);
  if (const std::optional<Scalar> number = scalar_of(value)) return wrapped_number(*number);
  return std::nullopt;
}

Tensor require_operand(nb::handle value) {
  std::optional<Tensor> operand = operand_of(value);
  if (!operand) throw nb::type_error("give a tensor or a number");
  return *std::move(operand);
}

DType dtype_from(nb::handle dtype) {
  nb::object named = nb::borrow(dtype);
  for (const char* attribute : {"name", "__name__"})
    if (!nb::isinstance<nb::str>(named) && nb::hasattr(named, attribute))
      named = nb::getattr(named, attribute);
  std::string name = nb::str(named).c_str();
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (name == "bool_") name = "bool";
  if (name == "float") name = "float32";
  if (name == "int") name = "int64";
  return parse_dtype(name);
}

Tensor tensor_from_dlpack(nb::handle array) {
  nb::object capsule = nb::borrow(array);
  if (!PyCapsule_CheckExact(array.ptr())) {
    if (!nb::hasattr(array, "__dlpack__"))
      throw nb::type_error("from_dlpack: the object has no __dlpack__");
    if (nb::hasattr(array, "__dlpack_device__")) {
      const auto device = nb::cast<nb::tuple>(array.attr("__dlpack_device__")());
      if (nb::cast<int>(device[0]) != kDLCPU)
        throw nb::buffer_error("from_dlpack: the array is not in the CPU's memory");
    }
    try {
      capsule = array.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0));
    } catch (nb::python_error& error) {  // older than the keyword
      if (!error.matches(PyExc_TypeError)) throw;
      capsule = array.attr("__dlpack__")();
    }
  }
  for (const char* name : {"dltensor_versioned", "dltensor"}) {
    if (PyCapsule_IsValid(capsule.ptr(), name) == 0) continue;
    void* managed = PyCapsule_GetPointer(capsule.ptr(), name);
    const bool versioned = name[8] != '\0';
    // Ours from here on.
    PyCapsule_SetName(capsule.ptr(), versioned ? "used_dltensor_versioned" : "used_dltensor");
    return versioned ? from_dlpack(static_cast<DLManagedTensorVersioned*>(managed))
                     : from_dlpack(static_cast<DLManagedTensor*>(managed));
  }
  throw nb::type_error("from_dlpack: the capsule is none of DLPack's, or was used already");
}

Tensor tensor_from(nb::handle data, std::optional<DType> dtype) {
  if (is_sequence(data) || scalar_of(data)) return from_numbers(data, dtype);
  const Tensor shared = nb::isinstance<Tensor>(data)      ? nb::cast<Tensor>(data).detach()
                        : nb::hasattr(data, "__dlpack__") ? tensor_from_dlpack(data)
                                                          : from_numbers(data, dtype);
  return dtype && *dtype != shared.dtype() ? to(shared, *dtype) : clone(shared);
}

nb::object number_of(const Scalar& value) {
  switch (value.dtype()) {
    case DType::kBool:
      return number(value.to<bool>());
    case DType::kI64:
      return number(value.to<std::int64_t>());
    case DType::kF64:
      return number(value.to<double>());
    default:
      return number(value.to<Complex128>());
  }
}

nb::object list_of(const Tensor& tensor) {
  const Tensor dense = contiguous(tensor.detach());
  return visit_dtype(dense.dtype(), [&]<typename T>() -> nb::object {
    const T* data = dense.numel() == 0 ? nullptr : dense.const_data_ptr<T>();
    return nested(data, dense.sizes());
  });
}

std::vector<TensorIndex> index_of(nb::handle key) {
  std::vector<TensorIndex> indices;
  if (PyTuple_Check(key.ptr())) {
    for (nb::handle item : nb::borrow<nb::tuple>(key)) indices.push_back(one_index(item));
  } else {
    indices.push_back(one_index(key));
  }
  return indices;
}

std::vector<std::int64_t> ints_of(nb::handle value) {
  if (PyLong_Check(value.ptr())) return {nb::cast<std::int64_t>(value)};
  std::vector<std::int64_t> ints;
  for (nb::handle item : nb::borrow<nb::sequence>(value))
    ints.push_back(nb::cast<std::int64_t>(item));
  return ints;
}

nb::tuple tuple_of(IntList values) {
  nb::list list;
  for (const std::int64_t value : values) list.append(nb::int_(value));
  return nb::tuple(list);
}

}  // namespace tenon::python
