#include "data.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "gil.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/geometry.h"
#include "tenon/tensor/interop/dlpack.h"
#include "tenon/tensor/interop/dlpack_abi.h"
#include "tenon/tensor/promotion.h"

namespace tenon::python {
namespace {

// ------------------------------------------------------------------------------------------------
// Nested lists

bool is_list(PyObject* object) { return PyList_Check(object) != 0 || PyTuple_Check(object) != 0; }

// A walk over nested lists: their shape, and every number in row-major order.
struct Nested {
  DimVector sizes;
  std::vector<Scalar> values;
  int kind = 0;  // 0 nothing or bool, 1 integers, 2 floating point, 3 complex
  std::optional<DType> dtype;  // of tensors among the numbers

  void take(PyObject* object, std::size_t depth) {
    if (is_list(object)) {
      take_list(object, depth);
      return;
    }
    if (depth != sizes.size()) refuse_shape(depth);
    Scalar value = 0;
    if (is_tensor(object) && tensor_of(object).dim() == 0) dtype = tensor_of(object).dtype();
    if ((is_tensor(object) && tensor_of(object).dim() != 0) || !number_from(object, value))
      refuse_type("tensor", "numbers in nested lists (stack() joins tensors)", object);
    const int found = value.dtype() == DType::kBool  ? 0
                      : value.dtype() == DType::kI64 ? 1
                      : value.dtype() == DType::kF64 ? 2
                                                     : 3;
    kind = std::max(kind, found);
    values.push_back(value);
  }

  void take_list(PyObject* object, std::size_t depth) {
    const auto length = static_cast<std::int64_t>(PySequence_Size(object));
    if (depth == sizes.size()) {
      if (!values.empty()) refuse_shape(depth);
      if (depth >= kMaxDims)
        throw InvalidArgument(fmt::format("tensor: lists nested deeper than {}", kMaxDims));
      sizes.push_back(length);
    } else if (sizes[depth] != length) {
      throw InvalidArgument(
          fmt::format("tensor: dimension {} has lists of {} and of {} elements; they must be alike",
                      depth, sizes[depth], length));
    }
    for (Py_ssize_t i = 0; i < PySequence_Size(object); ++i) {
      const nb::object item = nb::steal(PySequence_GetItem(object, i));
      if (!item.is_valid()) throw nb::python_error();
      take(item.ptr(), depth + 1);
    }
  }

  [[noreturn]] static void refuse_shape(std::size_t depth) {
    throw InvalidArgument(fmt::format(
        "tensor: at depth {} some entries are lists and others numbers; they must be alike", depth));
  }

  DType natural() const {
    const DType real = default_dtype();
    switch (kind) {
      case 0:
        return values.empty() ? real : DType::kBool;
      case 1:
        return DType::kI64;
      case 2:
        return real;
      default:
        return real == DType::kF64 ? DType::kC128 : DType::kC64;
    }
  }
};

Tensor from_lists(nb::handle data, std::optional<DType> dtype) {
  Nested nested;
  nested.take(data.ptr(), 0);
  const DType wanted = dtype ? *dtype : nested.dtype ? *nested.dtype : nested.natural();
  const Tensor made = empty(nested.sizes, wanted);
  if (made.numel() != static_cast<std::int64_t>(nested.values.size()))
    throw InvalidArgument("tensor: the lists do not make a box");
  visit_any_dtype(wanted, [&]<typename T>() {
    T* out = made.data_ptr<T>();
    for (const Scalar& value : nested.values) *out++ = value.to<T>();
  });
  return made;
}

// ------------------------------------------------------------------------------------------------
// The buffer protocol

constexpr std::pair<const char*, DType> kFormats[] = {
    {"?", DType::kBool}, {"B", DType::kU8},   {"b", DType::kI8},  {"h", DType::kI16},
    {"i", DType::kI32},  {"q", DType::kI64},  {"l", DType::kI64}, {"e", DType::kF16},
    {"f", DType::kF32},  {"d", DType::kF64},  {"Zf", DType::kC64}, {"Zd", DType::kC128},
    {"H", DType::kU16},  {"I", DType::kU32},  {"Q", DType::kU64},  {"L", DType::kU64},
};

const char* format_of(DType dtype) {
  for (const auto& [format, known] : kFormats)
    if (known == dtype) return format;
  return nullptr;
}

std::optional<DType> dtype_of_format(const char* format, Py_ssize_t item_bytes) {
  std::string_view text = format == nullptr ? "B" : format;
  if (text.starts_with('=') || text.starts_with('<') || text.starts_with('@'))
    text.remove_prefix(1);
  for (const auto& [known, dtype] : kFormats)
    if (text == known && static_cast<Py_ssize_t>(item_size(dtype)) == item_bytes) return dtype;
  return std::nullopt;
}

struct BufferHold {
  Py_buffer view{};
  bool held = false;
  ~BufferHold() {
    if (!held || Py_IsInitialized() == 0) return;
    const WithGil gil;
    PyBuffer_Release(&view);
  }
};

// The bytes of an object with the buffer protocol: shared where they can be.
Tensor from_buffer(nb::handle object, std::optional<bool> copy) {
  auto hold = std::make_unique<BufferHold>();
  Py_buffer& view = hold->view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_RECORDS_RO) != 0) throw nb::python_error();
  hold->held = true;
  const std::optional<DType> dtype = dtype_of_format(view.format, view.itemsize);
  // NumPy's scalars of dates give bytes without strides.
  const bool described = view.ndim == 0 || (view.shape != nullptr && view.strides != nullptr);
  if (!dtype || !described)
    throw nb::type_error(
        fmt::format("tensor: elements of format \"{}\" are no dtype of Tenon; convert them first, "
                    "as with array.astype(\"int64\")",
                    view.format == nullptr ? "B" : view.format)
            .c_str());
  DimVector sizes, strides;
  bool plain = reinterpret_cast<std::uintptr_t>(view.buf) % item_size(*dtype) == 0;
  for (int d = 0; d < view.ndim; ++d) {
    sizes.push_back(view.shape[d]);
    strides.push_back(view.strides[d] / view.itemsize);
    plain &= view.strides[d] >= 0 && view.strides[d] % view.itemsize == 0;
  }
  const bool share = plain && view.readonly == 0;
  if (!share && copy == false)
    throw InvalidArgument(
        view.readonly != 0
            ? "asarray: copy=False: the bytes are read-only, and a tensor can be written"
            : "asarray: copy=False: negative or unaligned strides; a tensor has none");
  if (view.len == 0) return empty(sizes, *dtype);
  if (!share) {
    const Tensor made = empty(sizes, *dtype);
    if (PyBuffer_ToContiguous(made.data_ptr(), &view, view.len, 'C') != 0) throw nb::python_error();
    return made;
  }
  const std::int64_t elements = storage_elements(sizes, strides, 0);
  void* const data = view.buf;
  DataPtr bytes(data, hold.release(), [](void* held) { delete static_cast<BufferHold*>(held); },
                Device{});
  return from_blob(std::move(bytes), static_cast<std::size_t>(elements) * item_size(*dtype), sizes,
                   strides, *dtype);
}

// What others hold of a tensor by the buffer protocol.
struct BufferExport {
  Tensor tensor;
  DimVector sizes, strides;  // in bytes
};

}  // namespace

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    const Tensor& tensor = tensor_of(self);
    const auto refuse = [](const std::string& text) {
      PyErr_SetString(PyExc_BufferError, text.c_str());
      return -1;
    };
    if (tensor.layout() != Layout::kStrided) return refuse("a sparse tensor: to_dense() first");
    if (tensor.device().type != DeviceType::kCpu)
      return refuse(fmt::format("a tensor on {} has no bytes on the host: to(\"cpu\") first",
                                to_string(tensor.device())));
    if (tensor.requires_grad()) return refuse("the tensor requires a gradient: detach() first");
    const char* format = format_of(tensor.dtype());
    if (format == nullptr)
      return refuse(fmt::format("{} has no format in the buffer protocol: float() first, or DLPack",
                                dtype_name(tensor.dtype())));
    const bool strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    if ((!strides || (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS) && !tensor.is_contiguous())
      return refuse("the tensor's elements do not lie one after another: contiguous() first");
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && tensor.dim() > 1 &&
        !tensor.permute([&] {
                 DimVector order;
                 for (std::int64_t d = tensor.dim(); d-- > 0;) order.push_back(d);
                 return order;
               }())
             .is_contiguous())
      return refuse("the tensor does not lie in Fortran's order");
    auto shared = std::make_unique<BufferExport>();
    shared->tensor = tensor.detach();
    shared->sizes = tensor.sizes().to_vector();
    for (const std::int64_t stride : tensor.strides())
      shared->strides.push_back(stride * static_cast<std::int64_t>(tensor.item_size()));
    static char nothing = 0;
    void* data = tensor.numel() == 0 ? &nothing : tensor.data_ptr();
    *view = Py_buffer{};
    view->buf = data;
    view->len = static_cast<Py_ssize_t>(tensor.nbytes());
    view->itemsize = static_cast<Py_ssize_t>(tensor.item_size());
    view->ndim = static_cast<int>(tensor.dim());
    if ((flags & PyBUF_FORMAT) != 0) view->format = const_cast<char*>(format);
    static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
    if ((flags & PyBUF_ND) != 0)
      view->shape = const_cast<Py_ssize_t*>(
          reinterpret_cast<const Py_ssize_t*>(shared->sizes.data()));
    if (strides)
      view->strides = const_cast<Py_ssize_t*>(
          reinterpret_cast<const Py_ssize_t*>(shared->strides.data()));
    view->internal = shared.release();
    view->obj = self;
    Py_INCREF(self);
    return 0;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  }
  return -1;
}

void release_buffer(PyObject*, Py_buffer* view) {
  delete static_cast<BufferExport*>(view->internal);
}

// ------------------------------------------------------------------------------------------------
// DLPack

namespace {

template <typename Managed>
nb::object capsule_of(Managed* managed, const char* name) {
  PyObject* capsule = PyCapsule_New(managed, name, [](PyObject* object) {
    // A consumer renames the capsule that it takes.
    constexpr const char* kName =
        std::is_same_v<Managed, DLManagedTensor> ? "dltensor" : "dltensor_versioned";
    if (PyCapsule_IsValid(object, kName) == 0) return;
    auto* owned = static_cast<Managed*>(PyCapsule_GetPointer(object, kName));
    if (owned->deleter != nullptr) owned->deleter(owned);
  });
  if (capsule == nullptr) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

[[noreturn]] void refuse_buffer(const std::string& text) { throw nb::buffer_error(text.c_str()); }

std::pair<int, int> pair_of(nb::handle value, const char* what) {
  std::pair<int, int> numbers;
  if (PyTuple_Check(value.ptr()) == 0 || nb::len(value) < 2 ||
      !nb::try_cast(value[0], numbers.first) || !nb::try_cast(value[1], numbers.second))
    refuse_type(what, "a pair of numbers", value);
  return numbers;
}

// The tensor of a capsule, which is taken: the deleter is the tensor's from here on.
Tensor from_capsule(nb::handle capsule) {
  PyObject* const object = capsule.ptr();
  if (PyCapsule_IsValid(object, "dltensor_versioned") != 0) {
    auto* managed = static_cast<DLManagedTensorVersioned*>(
        PyCapsule_GetPointer(object, "dltensor_versioned"));
    if (PyCapsule_SetName(object, "used_dltensor_versioned") != 0) throw nb::python_error();
    return from_dlpack(managed);
  }
  if (PyCapsule_IsValid(object, "dltensor") != 0) {
    auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(object, "dltensor"));
    if (PyCapsule_SetName(object, "used_dltensor") != 0) throw nb::python_error();
    return from_dlpack(managed);
  }
  if (PyCapsule_IsValid(object, "used_dltensor") != 0 ||
      PyCapsule_IsValid(object, "used_dltensor_versioned") != 0)
    throw InvalidArgument("from_dlpack: the capsule was consumed already; ask for another one");
  refuse_type("from_dlpack", "an object with __dlpack__ or its capsule", capsule);
}


}  // namespace

Tensor from_dlpack_object(nb::handle object, std::optional<bool> copy) {
  if (PyCapsule_CheckExact(object.ptr()) != 0) return from_capsule(object);
  if (is_tensor(object.ptr())) {
    const Tensor& tensor = tensor_of(object);
    return copy == true ? clone(tensor.detach()) : tensor.detach().alias();
  }
  if (!nb::hasattr(object, "__dlpack__"))
    refuse_type("from_dlpack", "an object with __dlpack__ or its capsule", object);
  nb::object capsule;
  try {
    capsule = object.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    capsule = object.attr("__dlpack__")();  // before 1.0
  }
  const Tensor made = from_capsule(capsule);
  return copy == true ? clone(made) : made;
}

nb::object to_dlpack_object(const Tensor& tensor, nb::handle stream, nb::handle max_version,
                            nb::handle device, nb::handle copy) {
  if (!stream.is_none() && tensor.device().type == DeviceType::kCpu)
    refuse_buffer("__dlpack__: stream: the CPU has no streams; give None");
  Tensor shared = tensor;
  if (!device.is_none() && pair_of(device, "__dlpack__: dl_device") != std::pair(1, 0))
    refuse_buffer("__dlpack__: dl_device: the bytes are on the CPU, (1, 0)");
  if (!copy.is_none() && nb::cast<bool>(nb::bool_(copy))) shared = clone(tensor.detach());
  try {
    if (!max_version.is_none() && pair_of(max_version, "__dlpack__: max_version").first >= 1) {
      DLManagedTensorVersioned* managed = to_dlpack_versioned(shared);
      if (!shared.is_same(tensor)) managed->flags |= kDLFlagCopied;
      return capsule_of(managed, "dltensor_versioned");
    }
    return capsule_of(to_dlpack(shared), "dltensor");
  } catch (const InvalidArgument& error) {
    refuse_buffer(error.what());
  }
}

nb::object to_numpy(nb::handle self) {
  const Tensor& tensor = tensor_of(self);
  if (tensor.requires_grad())
    throw nb::type_error("numpy: the tensor requires a gradient: detach().numpy() shares its values");
  if (tensor.dtype() == DType::kBF16 || is_float8(tensor.dtype()))
    throw nb::type_error(
        fmt::format("numpy: NumPy has no {}: float().numpy() converts", dtype_name(tensor.dtype()))
            .c_str());
  if (tensor.device().type != DeviceType::kCpu || tensor.layout() != Layout::kStrided)
    throw nb::type_error("numpy: the tensor is not dense on the cpu: to(\"cpu\"), to_dense()");
  nb::object numpy;
  try {
    numpy = nb::module_::import_("numpy");
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ModuleNotFoundError)) throw;
    throw nb::import_error(
        "numpy() needs NumPy: pip install numpy (memoryview(tensor) needs nothing)");
  }
  return numpy.attr("asarray")(made_object(PyMemoryView_FromObject(self.ptr())));
}

// ------------------------------------------------------------------------------------------------
// All of it

Tensor tensor_from(nb::handle data, std::optional<DType> dtype, std::optional<Device> device,
                   std::optional<bool> copy) {
  Tensor made;
  bool fresh = false;
  Scalar number = 0;
  PyObject* const object = data.ptr();
  if (is_tensor(object)) {
    made = tensor_of(data);
  } else if (is_list(object)) {
    made = from_lists(data, dtype);
    fresh = true;
  } else if (PyObject_CheckBuffer(object) != 0) {
    made = from_buffer(data, copy);
    fresh = made.numel() == 0;
  } else if (nb::hasattr(data, "__dlpack__")) {
    made = from_dlpack_object(data, std::nullopt);
  } else if (number_from(object, number)) {
    Nested nested;
    nested.take(object, 0);
    made = scalar_tensor(number, dtype ? *dtype : nested.natural());
    fresh = true;
  } else {
    refuse_type("tensor",
                "a number, nested lists, a tensor, or an object with __dlpack__ or the buffer "
                "protocol",
                data);
  }
  if (fresh && copy == false)
    throw InvalidArgument("asarray: copy=False: numbers and lists have no memory to share");
  const bool converts = (dtype && *dtype != made.dtype()) || (device && *device != made.device());
  if (converts && copy == false)
    throw InvalidArgument("asarray: copy=False: another dtype or device needs a copy");
  const Tensor before = made;
  if (dtype) made = to(made, *dtype);
  if (device && *device != made.device()) made = to(made, *device);
  if (copy == true && !fresh && made.is_same(before)) made = clone(made);
  return made;
}

nb::object python_number(const Scalar& value) {
  switch (value.dtype()) {
    case DType::kBool:
      return nb::bool_(value.to<bool>());
    case DType::kI64:
      return nb::int_(value.to<std::int64_t>());
    case DType::kU64:
      return nb::int_(value.to<std::uint64_t>());
    case DType::kF64:
      return nb::float_(value.to<double>());
    default: {
      const auto number = value.to<Complex128>();
      return nb::steal(PyComplex_FromDoubles(number.real(), number.imag()));
    }
  }
}

nb::object to_list(const Tensor& tensor) {
  if (tensor.dim() == 0) return python_number(tensor.item());
  nb::list made;
  for (std::int64_t i = 0; i < tensor.size(0); ++i) made.append(to_list(tensor.select(0, i)));
  return made;
}

namespace {

nb::bytes bytes_of(const Tensor& tensor) {
  const Tensor dense = contiguous(tensor.detach());
  return nb::bytes(dense.numel() == 0 ? "" : dense.const_data_ptr(), dense.nbytes());
}

// What __reduce_ex__ names.
TensorObject rebuild(const nb::bytes& bytes, DTypeName dtype, Sizes sizes, bool requires_grad) {
  const Tensor made = empty(sizes, dtype.value);
  if (bytes.size() != made.nbytes())
    throw InvalidArgument(fmt::format("a pickled tensor of shape {} with {} bytes instead of {}",
                                      to_string(IntList(sizes)), bytes.size(), made.nbytes()));
  if (bytes.size() != 0) std::memcpy(made.data_ptr(), bytes.c_str(), bytes.size());
  if (requires_grad) made.set_requires_grad(true);
  return wrap(made);
}

}  // namespace

void bind_data(nb::module_& module) {
  module.def("_bytes_of", &bytes_of, nb::arg("tensor"));
  module.def("_rebuild", &rebuild, nb::arg("data"), nb::arg("dtype"), nb::arg("shape"),
             nb::arg("requires_grad"));
  module.def(
      "tensor",
      [](nb::handle data, Maybe<DTypeName> dtype, Maybe<DeviceName> device, bool requires_grad) {
        Tensor made = tensor_from(data, dtype ? std::optional(dtype->value) : std::nullopt,
                                  device ? std::optional(device->value) : std::nullopt, true);
        if (made.requires_grad()) made = made.detach();
        if (requires_grad) made.set_requires_grad(true);
        return wrap(made);
      },
      nb::arg("data"), nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(),
      nb::kw_only(), nb::arg("requires_grad") = false,
      nb::sig("def tensor(data: object, dtype: tenon._typing.DTypeLike | None = None, "
              "device: str | None = None, *, requires_grad: bool = False) -> Tensor"),
      "A tensor with a copy of the data: a number, nested lists, a tensor, a NumPy array.");
  module.def(
      "asarray",
      [](nb::handle data, Maybe<DTypeName> dtype, Maybe<DeviceName> device,
         std::optional<bool> copy) {
        if (is_tensor(data.ptr()) && copy != true && (!dtype || dtype->value == tensor_of(data).dtype()) &&
            (!device || device->value == tensor_of(data).device()))
          return again(data);
        return wrap(tensor_from(data, dtype ? std::optional(dtype->value) : std::nullopt,
                                device ? std::optional(device->value) : std::nullopt, copy));
      },
      nb::arg("data"), nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(),
      nb::kw_only(), nb::arg("copy") = nb::none(),
      nb::sig("def asarray(data: object, dtype: tenon._typing.DTypeLike | None = None, "
              "device: str | None = None, *, copy: bool | None = None) -> Tensor"),
      "A tensor over the data's own memory where that can be shared. copy=False: or ValueError.");
  module.def(
      "from_dlpack",
      [](nb::handle object, Maybe<DeviceName> device, std::optional<bool> copy) {
        const Tensor made = from_dlpack_object(object, copy);
        if (device && device->value != made.device()) return wrap(to(made, device->value));
        return wrap(made);
      },
      nb::arg("x"), nb::kw_only(), nb::arg("device") = nb::none(), nb::arg("copy") = nb::none(),
      nb::sig("def from_dlpack(x: object, *, device: str | None = None, copy: bool | None = None) "
              "-> Tensor"),
      "A tensor over the memory of another library's array, which it keeps alive.");
}

}  // namespace tenon::python
