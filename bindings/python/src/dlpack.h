// DLPack's capsules: 1.0 ("dltensor_versioned") and those before it ("dltensor").
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "tenon/tensor/interop/dlpack_abi.h"

namespace tenon::python {

// What a consumer asked for in __dlpack__(*, stream, max_version, dl_device, copy).
struct DlpackRequest {
  bool versioned = false;
  bool copy = false;
};

// Raises and returns false for arguments that are not the standard's, another device than the CPU,
// and a stream (the CPU has none).
bool parse_dlpack_request(PyObject* args, PyObject* kwargs, DlpackRequest& request);

// A dense array on the CPU.
struct DlpackExport {
  void* data = nullptr;
  std::uint8_t code = 0;
  std::uint8_t bits = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements
  void* context = nullptr;
  void (*let_go)(void* context) = nullptr;  // once, on any thread, when the consumer is done
};

// Strides come from the shape where they are not given. Null, with an error raised, when there is
// no memory; then let_go is not called.
PyObject* make_dlpack_capsule(DlpackExport what, bool versioned);

}  // namespace tenon::python
