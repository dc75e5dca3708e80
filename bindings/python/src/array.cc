#include "array.h"

#include <fmt/format.h>
#include <structmember.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "dlpack.h"
#include "gil.h"
#include "tenon/base/align.h"
#include "tenon/base/error.h"

namespace tenon::python {
namespace {

constexpr std::array<ElementType, 15> kTypes = {{
    {"uint8", "|u1", "B", kDLUInt, 8, 1},
    {"int8", "|i1", "b", kDLInt, 8, 1},
    {"uint16", "<u2", "H", kDLUInt, 16, 2},
    {"int16", "<i2", "h", kDLInt, 16, 2},
    {"uint32", "<u4", "I", kDLUInt, 32, 4},
    {"int32", "<i4", "i", kDLInt, 32, 4},
    {"uint64", "<u8", "Q", kDLUInt, 64, 8},
    {"int64", "<i8", "q", kDLInt, 64, 8},
    {"float16", "<f2", "e", kDLFloat, 16, 2},
    {"bfloat16", nullptr, nullptr, kDLBfloat, 16, 2},
    {"float32", "<f4", "f", kDLFloat, 32, 4},
    {"float64", "<f8", "d", kDLFloat, 64, 8},
    {"complex64", "<c8", "Zf", kDLComplex, 64, 8},
    {"complex128", "<c16", "Zd", kDLComplex, 128, 16},
    {"bool", "|b1", "?", kDLBool, 8, 1},
}};

PyTypeObject* array_class = nullptr;

// Shape and strides (in elements) of an array that is not one row of bytes.
struct Geometry {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::vector<Py_ssize_t> byte_strides;
};

struct ArrayObject {
  PyObject_HEAD DataPtr data;
  std::int64_t size_bytes;
  PyObject* owner;
  Geometry* geometry;  // null: a row of bytes
  const ElementType* type;
  Py_ssize_t exports;  // buffers and capsules that others hold
  PyObject* weak_references;
  bool readable;
  bool freed;
};

ArrayObject* array(PyObject* self) { return reinterpret_cast<ArrayObject*>(self); }

int dimensions(const ArrayObject* a) {
  return a->geometry == nullptr ? 1 : static_cast<int>(a->geometry->shape.size());
}

std::vector<std::int64_t> shape_of(const ArrayObject* a) {
  return a->geometry == nullptr ? std::vector<std::int64_t>{a->size_bytes} : a->geometry->shape;
}

PyObject* tuple_of(const std::vector<std::int64_t>& values, std::int64_t factor = 1) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(values.size()));
  if (tuple == nullptr) return nullptr;
  for (std::size_t i = 0; i < values.size(); ++i)
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i] * factor));
  return tuple;
}

// Raises what keeps the bytes from being used; false when nothing does.
bool refuse(const ArrayObject* a) {
  if (a->freed) {
    PyErr_SetString(PyExc_ValueError, "the array was freed");
    return true;
  }
  if (!a->readable) {
    PyErr_Format(PyExc_BufferError,
                 "%s memory has addresses and no bytes: make the device with real_memory=True",
                 to_string(a->data.device()).c_str());
    return true;
  }
  return false;
}

// ------------------------------------------------------------------------------------------------
// Life

void drop(ArrayObject* a) {
  a->data.clear();
  a->freed = true;
}

void deallocate(PyObject* self) {
  ArrayObject* a = array(self);
  PyTypeObject* type = Py_TYPE(self);
  if (a->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  try {
    a->data.clear();
  } catch (...) {
    // There is no caller to tell; what an allocator refuses to take stays with it.
  }
  a->data.~DataPtr();
  delete a->geometry;
  Py_XDECREF(a->owner);
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyObject* free_array(PyObject* self, PyObject*) {
  ArrayObject* a = array(self);
  if (a->exports > 0) {
    PyErr_Format(PyExc_BufferError, "free: %zd others hold the array's bytes (NumPy, DLPack)",
                 a->exports);
    return nullptr;
  }
  try {
    drop(a);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  Py_RETURN_NONE;
}

// ------------------------------------------------------------------------------------------------
// Sharing

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  ArrayObject* a = array(self);
  view->obj = nullptr;
  if (refuse(a)) return -1;
  if (a->type->buffer_format == nullptr) {
    PyErr_Format(PyExc_BufferError, "%s has no format in the buffer protocol: use DLPack",
                 a->type->name);
    return -1;
  }
  if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && dimensions(a) > 1) {
    PyErr_SetString(PyExc_BufferError, "the array lies in C order, not in Fortran's");
    return -1;
  }
  static char nothing = 0;
  void* data = a->data.get() == nullptr ? &nothing : a->data.get();
  const auto size = static_cast<Py_ssize_t>(a->size_bytes);
  if (a->geometry == nullptr) {
    if (PyBuffer_FillInfo(view, self, data, size, 0, flags) != 0) return -1;
  } else {
    const Geometry& g = *a->geometry;
    *view = Py_buffer{};
    view->buf = data;
    view->len = size;
    view->itemsize = a->type->bytes;
    view->ndim = static_cast<int>(g.shape.size());
    if ((flags & PyBUF_FORMAT) != 0) view->format = const_cast<char*>(a->type->buffer_format);
    static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
    if ((flags & PyBUF_ND) != 0)
      view->shape = const_cast<Py_ssize_t*>(reinterpret_cast<const Py_ssize_t*>(g.shape.data()));
    if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES)
      view->strides = const_cast<Py_ssize_t*>(g.byte_strides.data());
    view->obj = self;
    Py_INCREF(self);
  }
  ++a->exports;
  return 0;
}

void release_buffer(PyObject* self, Py_buffer*) { --array(self)->exports; }

PyObject* array_interface(PyObject* self, void*) {
  ArrayObject* a = array(self);
  if (refuse(a)) return nullptr;
  if (a->type->typestr == nullptr) {
    // No AttributeError, for which NumPy makes an array of objects.
    PyErr_Format(PyExc_TypeError, "%s has no name in __array_interface__: use DLPack",
                 a->type->name);
    return nullptr;
  }
  PyObject* shape = tuple_of(shape_of(a));
  if (shape == nullptr) return nullptr;
  // NumPy keeps the object that it asked; the bytes cannot be freed as long as it does, but a
  // free() could not know of it. So an array that was shown this way is not freed early.
  ++a->exports;
  return Py_BuildValue(
      "{s:i,s:s,s:(KO),s:N,s:O}", "version", 3, "typestr", a->type->typestr, "data",
      static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(a->data.get())), Py_False,
      "shape", shape, "strides", Py_None);
}

// What a consumer of DLPack holds: a reference to the array.
void let_go_of_array(void* context) {
  if (Py_IsInitialized() == 0) return;  // the process ends, and its memory with it
  const WithGil gil;
  --array(static_cast<PyObject*>(context))->exports;
  Py_DECREF(static_cast<PyObject*>(context));
}

PyObject* dlpack(PyObject* self, PyObject* args, PyObject* kwargs) {
  ArrayObject* a = array(self);
  if (refuse(a)) return nullptr;
  DlpackRequest request;
  if (!parse_dlpack_request(args, kwargs, request)) return nullptr;
  if (request.copy) {
    PyErr_SetString(PyExc_BufferError, "__dlpack__: copy=True is not offered; copy the result");
    return nullptr;
  }
  DlpackExport what;
  what.data = a->data.get();
  what.code = a->type->dlpack_code;
  what.bits = a->type->dlpack_bits;
  what.shape = shape_of(a);
  what.context = self;
  what.let_go = &let_go_of_array;
  PyObject* capsule = make_dlpack_capsule(std::move(what), request.versioned);
  if (capsule == nullptr) return nullptr;
  Py_INCREF(self);
  ++a->exports;
  return capsule;
}

PyObject* dlpack_device(PyObject* self, PyObject*) {
  if (refuse(array(self))) return nullptr;
  return Py_BuildValue("(ii)", static_cast<int>(kDLCPU), 0);
}

// ------------------------------------------------------------------------------------------------
// What it is

PyObject* get_shape(PyObject* self, void*) { return tuple_of(shape_of(array(self))); }
PyObject* get_strides(PyObject* self, void*) {
  const ArrayObject* a = array(self);
  return a->geometry == nullptr ? tuple_of({1}) : tuple_of(a->geometry->strides, a->type->bytes);
}
PyObject* get_dtype(PyObject* self, void*) { return PyUnicode_FromString(array(self)->type->name); }
PyObject* get_nbytes(PyObject* self, void*) { return PyLong_FromLongLong(array(self)->size_bytes); }
PyObject* get_itemsize(PyObject* self, void*) { return PyLong_FromLong(array(self)->type->bytes); }
PyObject* get_ndim(PyObject* self, void*) { return PyLong_FromLong(dimensions(array(self))); }
PyObject* get_freed(PyObject* self, void*) { return PyBool_FromLong(array(self)->freed ? 1 : 0); }
PyObject* get_address(PyObject* self, void*) { return PyLong_FromVoidPtr(array(self)->data.get()); }
PyObject* get_owner(PyObject* self, void*) {
  PyObject* owner = array(self)->owner == nullptr ? Py_None : array(self)->owner;
  Py_INCREF(owner);
  return owner;
}
PyObject* get_device(PyObject* self, void*) {
  return PyUnicode_FromString(to_string(array(self)->data.device()).c_str());
}

PyObject* repr(PyObject* self) {
  const ArrayObject* a = array(self);
  std::string shape;
  for (const std::int64_t length : shape_of(a))
    shape += (shape.empty() ? "" : ", ") + std::to_string(length);
  if (dimensions(a) == 1) shape += ",";
  const std::string text =
      fmt::format("<tenon.Array shape=({}) dtype={} device={}{}>", shape, a->type->name,
                  to_string(a->data.device()), a->freed ? " freed" : "");
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

Py_ssize_t length(PyObject* self) {
  const ArrayObject* a = array(self);
  if (a->geometry == nullptr) return static_cast<Py_ssize_t>(a->size_bytes);
  if (!a->geometry->shape.empty()) return static_cast<Py_ssize_t>(a->geometry->shape[0]);
  PyErr_SetString(PyExc_TypeError, "an array without dimensions has no length");
  return -1;
}

PyObject* import_numpy() {
  PyObject* module = PyImport_ImportModule("numpy");
  if (module == nullptr && PyErr_ExceptionMatches(PyExc_ModuleNotFoundError) != 0)
    PyErr_SetString(PyExc_ImportError,
                    "Array.numpy() needs NumPy: pip install numpy (memoryview(array) needs "
                    "nothing)");
  return module;
}

PyObject* numpy(PyObject* self, PyObject*) {
  PyObject* module = import_numpy();
  if (module == nullptr) return nullptr;
  PyObject* result = PyObject_CallMethod(module, "asarray", "O", self);
  Py_DECREF(module);
  return result;
}

// NumPy takes this, and no text, as a dtype: numpy.result_type, and with it jax.numpy.asarray.
PyObject* numpy_dtype(PyObject* self, void*) {
  PyObject* module = import_numpy();
  if (module == nullptr) return nullptr;
  PyObject* result = PyObject_CallMethod(module, "dtype", "s", array(self)->type->name);
  Py_DECREF(module);
  return result;
}

PyMethodDef methods[] = {
    {"free", &free_array, METH_NOARGS,
     "free()\n--\n\nGive the memory back now. BufferError while others hold the bytes; using the "
     "array afterwards\nis a ValueError. Freeing twice changes nothing."},
    {"numpy", &numpy, METH_NOARGS,
     "numpy()\n--\n\nA NumPy array over the same bytes, which keeps this one alive."},
    {"__dlpack__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&dlpack)),
     METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nA DLPack "
     "capsule over the same bytes: version 1.0 where the consumer says that it reads it."},
    {"__dlpack_device__", &dlpack_device, METH_NOARGS,
     "__dlpack_device__()\n--\n\nThe DLPack device: (1, 0), the CPU."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    {"shape", &get_shape, nullptr, "Lengths of the dimensions.", nullptr},
    {"strides", &get_strides, nullptr, "Bytes from one element to the next, by dimension.",
     nullptr},
    {"dtype", &get_dtype, nullptr, "The kind of element, by NumPy's name.", nullptr},
    {"__numpy_dtype__", &numpy_dtype, nullptr, "The same as a numpy.dtype.", nullptr},
    {"nbytes", &get_nbytes, nullptr, "Bytes asked for.", nullptr},
    {"itemsize", &get_itemsize, nullptr, "Bytes of an element.", nullptr},
    {"ndim", &get_ndim, nullptr, "Number of dimensions.", nullptr},
    {"freed", &get_freed, nullptr, "Whether free() was called.", nullptr},
    {"address", &get_address, nullptr, "Where the bytes are, on the device.", nullptr},
    {"allocator", &get_owner, nullptr, "The allocator that the memory came from.", nullptr},
    {"device", &get_device, nullptr, "The device, like \"cpu:0\".", nullptr},
    {"__array_interface__", &array_interface, nullptr, "NumPy's array interface, version 3.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

ArrayObject* allocate_object() {
  auto* made = PyObject_New(ArrayObject, array_class);
  if (made == nullptr) throw nb::python_error();
  return made;
}

ArrayObject* fill_object(ArrayObject* a, DataPtr data, std::size_t size_bytes, nb::handle owner,
                         bool readable) {
  ::new (static_cast<void*>(&a->data)) DataPtr(std::move(data));
  a->size_bytes = static_cast<std::int64_t>(size_bytes);
  a->owner = owner.ptr();
  Py_XINCREF(a->owner);
  a->geometry = nullptr;
  a->type = &kTypes[0];
  a->exports = 0;
  a->weak_references = nullptr;
  a->readable = readable;
  a->freed = false;
  return a;
}

}  // namespace

const ElementType& element_type(nb::handle dtype) {
  nb::object named = nb::borrow(dtype);
  if (!nb::isinstance<nb::str>(named)) {
    for (const char* attribute : {"name", "__name__"}) {
      if (!nb::hasattr(named, attribute)) continue;
      named = nb::getattr(named, attribute);
      break;
    }
  }
  const nb::str text(named);
  const char* utf8 = text.c_str();
  if (utf8 == nullptr) PyErr_Clear();  // half a character
  std::string name = utf8 == nullptr ? "?" : utf8;
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (name == "bool_") name = "bool";
  if (name == "float") name = "float64";
  if (name == "int") name = "int64";
  if (name == "complex") name = "complex128";
  for (const ElementType& type : kTypes)
    if (name == type.name) return type;
  std::string known;
  for (const ElementType& type : kTypes)
    known += (known.empty() ? "" : ", ") + std::string(type.name);
  throw InvalidArgument(fmt::format("dtype \"{}\" is not known: there are {}", name, known));
}

std::size_t bytes_of(const std::vector<std::int64_t>& shape, const ElementType& type) {
  if (shape.size() > kMostDimensions)
    throw InvalidArgument(
        fmt::format("an array of {} dimensions: at most {}", shape.size(), kMostDimensions));
  std::uint64_t bytes = type.bytes;
  bool empty = false;
  for (const std::int64_t length : shape) {
    if (length < 0)
      throw InvalidArgument(fmt::format("a dimension of length {}: give 0 or more", length));
    empty = empty || length == 0;
    if (length > 0 && __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(length), &bytes))
      throw InvalidArgument("an array whose size exceeds 2^64 bytes");
  }
  if (empty) return 0;
  if (bytes > kMaxRequestBytes)
    throw InvalidArgument(fmt::format("an array of {} bytes: at most {}", bytes, kMaxRequestBytes));
  return bytes;
}

PyObject* make_array(DataPtr data, std::size_t size_bytes, nb::handle owner, bool readable) {
  return reinterpret_cast<PyObject*>(
      fill_object(allocate_object(), std::move(data), size_bytes, owner, readable));
}

PyObject* make_array(DataPtr data, std::size_t size_bytes, nb::handle owner, bool readable,
                     const ElementType& type, std::vector<std::int64_t> shape) {
  auto geometry = std::make_unique<Geometry>();
  geometry->strides.resize(shape.size());
  geometry->byte_strides.resize(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    geometry->strides[i] = stride;
    geometry->byte_strides[i] = static_cast<Py_ssize_t>(stride * type.bytes);
    stride *= shape[i] > 0 ? shape[i] : 1;
  }
  geometry->shape = std::move(shape);
  ArrayObject* a = fill_object(allocate_object(), std::move(data), size_bytes, owner, readable);
  a->geometry = geometry.release();
  a->type = &type;
  return reinterpret_cast<PyObject*>(a);
}

const DataPtr& block_of(nb::handle object) {
  if (Py_TYPE(object.ptr()) != array_class) throw nb::type_error("give a tenon.Array");
  const ArrayObject* a = array(object.ptr());
  if (a->freed) throw InvalidArgument("the array was freed");
  return a->data;
}

void bind_array(nb::module_& module) {
  static PyMemberDef members[] = {
      {"__weaklistoffset__", T_PYSSIZET, offsetof(ArrayObject, weak_references), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr}};
  static PyType_Slot slots[] = {
      {Py_tp_members, members},
      {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)},
      {Py_tp_repr, reinterpret_cast<void*>(&repr)},
      {Py_tp_methods, methods},
      {Py_tp_getset, properties},
      {Py_sq_length, reinterpret_cast<void*>(&length)},
      {Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
      {Py_bf_releasebuffer, reinterpret_cast<void*>(&release_buffer)},
      {Py_tp_doc, const_cast<char*>(
                      "Memory of an allocator, with a shape and a dtype.\n\nMade by an allocator's "
                      "empty, zeros and allocate. NumPy, PyTorch and JAX share its bytes by\n"
                      "DLPack, the buffer protocol or __array_interface__, and keep it alive. The "
                      "memory goes back\nto its allocator with the array, or at free().")},
      {0, nullptr}};
#if PY_VERSION_HEX >= 0x030A0000
  constexpr unsigned kFlags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
#else
  constexpr unsigned kFlags = Py_TPFLAGS_DEFAULT;
#endif
  static PyType_Spec spec = {"tenon._core.Array", sizeof(ArrayObject), 0, kFlags, slots};
  PyObject* made = PyType_FromSpec(&spec);
  if (made == nullptr) throw nb::python_error();
#if PY_VERSION_HEX < 0x030A0000
  reinterpret_cast<PyTypeObject*>(made)->tp_new = nullptr;
#endif
  array_class = reinterpret_cast<PyTypeObject*>(made);
  module.attr("Array") = nb::handle(made);
}

}  // namespace tenon::python
