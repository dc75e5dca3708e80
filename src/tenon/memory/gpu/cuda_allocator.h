// The process's memory on a GPU, by Tenon's default policy. O(1) after the first call.
#pragma once

#include "tenon/memory/device_allocator.h"

namespace tenon {

class PinnedAllocator;

// `stitched` over cuda_backend(index) (`caching` where the device has no virtual memory). Made at
// the first call and never destroyed. Thread-safe. Throws DeviceError without such a device.
//
//   set_device_allocator({DeviceType::kCuda, 1}, &cuda_allocator(1));  // for the whole program
//   AllocatorGuard guard({DeviceType::kCuda, 1}, cuda_allocator(1));   // or for a while
DeviceAllocator& cuda_allocator(int index = 0);

// Pinned host memory that the device reaches by itself; likewise.
PinnedAllocator& pinned_allocator(int index = 0);

}  // namespace tenon
