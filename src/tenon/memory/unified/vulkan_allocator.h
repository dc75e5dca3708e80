// The process's memory on a Vulkan device, by Tenon's default policy. O(1) after the first call.
#pragma once

#include "tenon/memory/device_allocator.h"

namespace tenon {

// `unified` over vulkan_backend(index), which keeps buffers for reuse and takes few, large segments
// from the driver. Made at the first call and never destroyed. Thread-safe. Throws DeviceError
// without such a device.
DeviceAllocator& vulkan_allocator(int index = 0);

}  // namespace tenon
