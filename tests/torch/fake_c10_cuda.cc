// PyTorch's libc10_cuda as far as Tenon asks it: which stream is current, and whose it is.
#include <cstdint>

namespace {

struct CudaStream {  // c10::cuda::CUDAStream
  std::int8_t device_type;
  std::int8_t device_index;
  std::int64_t number;
};

thread_local void* current = nullptr;
thread_local bool is_pytorchs = false;

}  // namespace

extern "C" {

// The calling thread's stream: PyTorch's own, whose number is odd, or an external one.
__attribute__((visibility("default"))) void fake_set_current_stream(void* stream, bool own) {
  current = stream;
  is_pytorchs = own;
}

// c10::cuda::getCurrentCUDAStream(DeviceIndex)
__attribute__((visibility("default"))) CudaStream _ZN3c104cuda20getCurrentCUDAStreamEa(
    std::int8_t device) {
  return {1, device, is_pytorchs ? 3 : reinterpret_cast<std::int64_t>(current)};
}

// c10::cuda::CUDAStream::stream() const
__attribute__((visibility("default"))) void* _ZNK3c104cuda10CUDAStream6streamEv(const CudaStream*) {
  return current;
}

}  // extern "C"
