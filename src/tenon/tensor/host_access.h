// Which tensors the host reads and writes where they are. O(1) beside the wait.
#pragma once

#include "tenon/device/device.h"

namespace tenon {

namespace detail {
bool host_reaches_memory_of(Device device);
}

// Note [Host access]. On a device that shares one memory with the host, a tensor's address is the
// host's too. data_ptr() and the like, which give that address, wait for the device's queued work.
// So the host computes there in order, without a copy. Kernels of the device are queued by address
// (StorageImpl::data_in_stream), without a wait.

// Whether the host may use the addresses of the device's tensors. True for the host itself, and for
// a Vulkan device of Tenon's own backend that shares the host's memory. Thread-safe.
inline bool host_reaches(Device device) {
  return device.type == DeviceType::kCpu || detail::host_reaches_memory_of(device);
}

// Waits until all work that was queued on the device is done. Requires: host_reaches(device).
// Throws DeviceError, and InvalidArgument for an index out of range that a kernel met.
void wait_for_device(Device device);

}  // namespace tenon
