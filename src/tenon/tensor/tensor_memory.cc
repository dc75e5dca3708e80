#include "tenon/tensor/tensor_memory.h"

#include "tenon/device/host/host_backend.h"
#include "tenon/memory/cpu/cpu_allocator.h"
#include "tenon/memory/host/host_allocator.h"

namespace tenon {

HostAllocator& tensor_host_allocator() {
  static auto& allocator = *new HostAllocator(*new HostBackend());
  return allocator;
}

void detail::ensure_tensor_memory() {
  static const bool registered = [] {
    if (get_cpu_allocator() == get_default_cpu_allocator())
      set_cpu_allocator(&tensor_host_allocator());
    return true;
  }();
  static_cast<void>(registered);
}

}  // namespace tenon
