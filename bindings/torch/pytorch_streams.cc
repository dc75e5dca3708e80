#include "pytorch_streams.h"

#include <dlfcn.h>

#include <cstdint>

namespace tenon::torch {
namespace {

// Note [PyTorch's streams without its headers]
//
// libc10_cuda exports c10::cuda::getCurrentCUDAStream(DeviceIndex) and CUDAStream::stream(). A
// CUDAStream is a c10::Stream: a device of two bytes and a 64-bit number, returned in registers.
// The number of a stream of PyTorch's own is odd; that of an external stream is its handle, which
// is even (Note [StreamId assignment] in c10/cuda/CUDAStream.cpp). `make test-pytorch` checks
// names, sizes and numbers against PyTorch.
struct CudaStream {  // c10::cuda::CUDAStream
  std::int8_t device_type;
  std::int8_t device_index;
  std::int64_t number;
};
static_assert(sizeof(CudaStream) == 16);

using GetCurrent = CudaStream (*)(std::int8_t device);
using GetHandle = cu::Stream (*)(const CudaStream* stream);

struct Libc10Cuda {
  GetCurrent current = nullptr;
  GetHandle handle = nullptr;
};

// What it finds is in the process already; nothing is loaded.
Libc10Cuda find_libc10_cuda() {
  Libc10Cuda found;
  void* library = ::dlopen("libc10_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return found;
  found.current =
      reinterpret_cast<GetCurrent>(::dlsym(library, "_ZN3c104cuda20getCurrentCUDAStreamEa"));
  found.handle =
      reinterpret_cast<GetHandle>(::dlsym(library, "_ZNK3c104cuda10CUDAStream6streamEv"));
  return found;
}

}  // namespace

bool lasts(cu::Stream stream, int device) noexcept {
  if (reinterpret_cast<std::uintptr_t>(stream) <= cu::kStreamLegacy) return true;
  static const Libc10Cuda c10 = find_libc10_cuda();
  if (c10.current == nullptr || c10.handle == nullptr) return false;
  try {
    const CudaStream current = c10.current(static_cast<std::int8_t>(device));
    return current.number % 2 != 0 && c10.handle(&current) == stream;
  } catch (...) {
    return false;
  }
}

}  // namespace tenon::torch
