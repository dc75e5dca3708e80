// The allocator of one device among several of its kind.
#pragma once

#include "tenon/device/device.h"
#include "tenon/memory/allocator.h"
#include "tenon/memory/registry.h"

namespace tenon {

// Makes `allocator` the one for this very device, so that cuda:0 and cuda:1 have one each. Devices
// without one of their own are served by their kind's (registry.h), and a guard comes before both
// (current_allocator.h). The allocator is not owned and must stay alive while it is registered.
// Throws InvalidArgument for null, and for an index below 0 or above 63. Thread-safe.
void set_device_allocator(Device device, Allocator* allocator);

// Null when the device has none of its own. One atomic load; thread-safe.
Allocator* find_device_allocator(Device device);

// Takes it away, if there is one. Thread-safe.
void unset_device_allocator(Device device);

// The device's own, else its kind's. Throws what get_allocator throws. The host is one device.
inline Allocator* registered_allocator(Device device) {
  Allocator* own = device.type == DeviceType::kCpu ? nullptr : find_device_allocator(device);
  return own != nullptr ? own : get_allocator(device.type);
}

}  // namespace tenon
