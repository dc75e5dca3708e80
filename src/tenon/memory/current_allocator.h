// The allocator that the calling thread uses for a device.
#pragma once

#include "tenon/device/device.h"
#include "tenon/memory/allocator.h"

namespace tenon {

// The innermost guard's allocator on this thread, or else the one registered for the device's kind.
// Throws InvalidArgument when there is neither. O(devices with a guard on this thread).
Allocator* current_allocator(Device device);

// The innermost guard's allocator on this thread; null without one. For handing a thread's choice
// on to the threads that work for it.
Allocator* guarded_allocator(Device device);

// Makes `allocator` current for this thread and device until the guard ends, by an exception too.
// Guards nest and must end on the thread that made them, the last made first. The allocator is
// not owned.
class AllocatorGuard {
 public:
  AllocatorGuard(Device device, Allocator& allocator);
  ~AllocatorGuard();
  AllocatorGuard(const AllocatorGuard&) = delete;
  AllocatorGuard& operator=(const AllocatorGuard&) = delete;

 private:
  const Device device_;
  Allocator* const previous_;  // null: the registered one
};

}  // namespace tenon
