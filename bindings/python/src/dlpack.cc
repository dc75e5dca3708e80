#include "dlpack.h"

#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace tenon::python {
namespace {

// The structure with what it points to, in one piece.
template <typename Managed>
struct Exported {
  Managed managed{};
  DlpackExport what;
};

template <typename Managed>
const char* capsule_name();
template <>
const char* capsule_name<DLManagedTensor>() {
  return "dltensor";
}
template <>
const char* capsule_name<DLManagedTensorVersioned>() {
  return "dltensor_versioned";
}

template <typename Managed>
void delete_exported(Managed* managed) {
  const std::unique_ptr<Exported<Managed>> exported(
      static_cast<Exported<Managed>*>(managed->manager_ctx));
  exported->what.let_go(exported->what.context);
}

// A capsule that was not consumed is done with here; a consumer renames the one it takes.
template <typename Managed>
void end_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, capsule_name<Managed>()) == 0) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, capsule_name<Managed>()));
  managed->deleter(managed);
}

template <typename Managed>
PyObject* make_capsule(DlpackExport what) {
  auto exported = std::make_unique<Exported<Managed>>();
  exported->what = std::move(what);
  DLTensor& dl = exported->managed.dl_tensor;
  dl.data = exported->what.data;
  dl.device = {kDLCPU, 0};
  dl.ndim = static_cast<std::int32_t>(exported->what.shape.size());
  dl.dtype = {exported->what.code, exported->what.bits, 1};
  dl.shape = exported->what.shape.data();
  dl.strides = exported->what.strides.data();
  dl.byte_offset = 0;
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = &delete_exported<Managed>;
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>)
    exported->managed.version = {kDLPackMajor, kDLPackMinor};
  PyObject* capsule =
      PyCapsule_New(&exported->managed, capsule_name<Managed>(), &end_capsule<Managed>);
  if (capsule != nullptr) exported.release();
  return capsule;
}

bool is_given(PyObject* value) { return value != nullptr && value != Py_None; }

}  // namespace

bool parse_dlpack_request(PyObject* args, PyObject* kwargs, DlpackRequest& request) {
  PyObject *stream = nullptr, *version = nullptr, *device = nullptr, *copy = nullptr;
  static const char* names[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  if (PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", const_cast<char**>(names),
                                  &stream, &version, &device, &copy) == 0)
    return false;
  if (is_given(stream)) {
    PyErr_SetString(PyExc_BufferError, "__dlpack__: stream: the CPU has no streams; give None");
    return false;
  }
  if (is_given(device)) {
    int type = 0, index = 0;
    if (PyTuple_Check(device) == 0 || PyArg_ParseTuple(device, "ii", &type, &index) == 0) {
      PyErr_SetString(PyExc_TypeError, "__dlpack__: dl_device: give a pair of numbers");
      return false;
    }
    if (type != kDLCPU || index != 0) {
      PyErr_SetString(PyExc_BufferError, "__dlpack__: dl_device: the bytes are on the CPU, (1, 0)");
      return false;
    }
  }
  if (is_given(version)) {
    int major = 0, minor = 0;
    if (PyTuple_Check(version) == 0 || PyArg_ParseTuple(version, "ii", &major, &minor) == 0) {
      PyErr_SetString(PyExc_TypeError, "__dlpack__: max_version: give a pair of numbers");
      return false;
    }
    request.versioned = major >= static_cast<int>(kDLPackMajor);
  }
  if (is_given(copy)) {
    const int truth = PyObject_IsTrue(copy);
    if (truth < 0) return false;
    request.copy = truth != 0;
  }
  return true;
}

PyObject* make_dlpack_capsule(DlpackExport what, bool versioned) {
  if (what.strides.empty() && !what.shape.empty()) {
    what.strides.resize(what.shape.size());
    std::int64_t stride = 1;
    for (std::size_t i = what.shape.size(); i-- > 0;) {
      what.strides[i] = stride;
      stride *= what.shape[i] > 0 ? what.shape[i] : 1;
    }
  }
  try {
    return versioned ? make_capsule<DLManagedTensorVersioned>(std::move(what))
                     : make_capsule<DLManagedTensor>(std::move(what));
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return nullptr;
  }
}

}  // namespace tenon::python
