// Which devices have operators, and which tensors the host reads and writes where they are. O(1)
// beside the wait.
#pragma once

#include "tenon/device/device.h"

namespace tenon {

namespace detail {
bool host_reaches_memory_of(Device device);
bool is_own_vulkan(Device device);
}

// Note [Host access]. On a device that shares one memory with the host, a tensor's address is the
// host's too. data_ptr() and the like, which give that address, wait for the device's queued work.
// So the host computes there in order, without a copy. Kernels of the device are queued by address
// (StorageImpl::data_in_stream), without a wait. On a Vulkan device with memory of its own,
// data_ptr() throws, except while the host computes an operator by copies (Note [Fallback]).

// Whether the host may use the addresses of the device's tensors. True for the host itself, and for
// a Vulkan device of Tenon's own backend that shares the host's memory. Thread-safe.
inline bool host_reaches(Device device) {
  return device.type == DeviceType::kCpu || detail::host_reaches_memory_of(device);
}

// Whether operators run on the device's tensors: on the host, and on Tenon's own Vulkan devices.
// Thread-safe.
inline bool has_operators(Device device) {
  return device.type == DeviceType::kCpu || detail::is_own_vulkan(device);
}

// Waits until all work that was queued on the device is done, before the host reads or writes
// `data` there. Throws DeviceError, also where a rehearsal left the data without memory, and
// InvalidArgument for an index out of range that a kernel met.
void wait_for_device(Device device, const void* data);

}  // namespace tenon
