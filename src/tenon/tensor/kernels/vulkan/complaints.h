// What a kernel found wrong with its operands.
#pragma once

#include <cstdint>

#include "tenon/device/vulkan/vulkan_backend.h"

namespace tenon::vulkan {

// Note [Complaints]. Only a kernel sees the indices that it is given, and it cannot throw. It
// writes the first one that is out of range into five words of memory. The next wait for the
// device throws InvalidArgument with the operator, the index and the size.

// The words of a device, for the kernel; made at the first call. Throws DeviceError.
std::uint64_t complaint_address(VulkanBackend& backend);

// The number that stands for an operator in a complaint. The name stays.
std::uint32_t complaint_number(const char* what);

// Throws what a kernel has complained of since the last call, if anything. Requires: the device is
// done. Thread-safe.
void raise_complaint(int device_index);

}  // namespace tenon::vulkan
