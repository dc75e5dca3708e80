// Which allocator serves a device: the one answer, for tensors, scopes and everything else.
#pragma once

#include <cstdint>

#include "tenon/device/device.h"
#include "tenon/memory/allocator.h"

namespace tenon {

// The allocator that the calling thread uses for a device. The first of these that exists:
//
//   1. the innermost AllocatorGuard of this thread for this very device
//   2. set_device_allocator: what the program registered for this very device
//   3. set_allocator: what the program registered for the device's kind
//   4. Tenon's own: get_default_cpu_allocator(), cuda_allocator(index), vulkan_allocator(index)
//
// Nothing else changes the answer; making a tensor does not. Throws InvalidArgument with the remedy
// (register one) for a kind of device without an allocator of Tenon's, and DeviceError if there is
// no such device. Thread-safe. O(devices with a guard on this thread), two atomic loads.
Allocator* current_allocator(Device device);

// The first step alone; null without a guard. For handing a thread's choice on to the threads that
// work for it.
Allocator* guarded_allocator(Device device);

// The other steps alone: what a tensor may remember, since it outlives every guard.
Allocator* registered_allocator(Device device);

// Makes `allocator` current for this thread and device until the guard ends. Guards nest and must
// end on the thread that made them, the last made first. The allocator is not owned.
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

// --- Registration. Allocators are not owned and must stay alive while they are registered.
// Thread-safe, also during static initialisation.

// Registers `allocator` for every device of a kind, unless one of higher priority is registered.
// Throws InvalidArgument for null or a kind that does not exist.
void set_allocator(DeviceType type, Allocator* allocator, std::uint8_t priority = 0);

// What serves a kind of device whose devices have none of their own: for the host there is always
// one. Throws InvalidArgument, saying how to register one, when there is none.
Allocator* get_allocator(DeviceType type);

// Takes the registration for `type` away, whatever its priority.
void unset_allocator(DeviceType type);

// Registers `allocator` for this very device, so that cuda:0 and cuda:1 have one each. Throws
// InvalidArgument for null, for an index below 0 or above 63, and for the host, which is one
// device: use set_allocator.
void set_device_allocator(Device device, Allocator* allocator);

// Null when the device has none of its own.
Allocator* find_device_allocator(Device device);

// Takes it away, if there is one.
void unset_device_allocator(Device device);

}  // namespace tenon

// Joins two names after macros in them were replaced.
#define TENON_DETAIL_CONCAT_(a, b) a##b
#define TENON_DETAIL_CONCAT(a, b) TENON_DETAIL_CONCAT_(a, b)

// At namespace scope of a source file: registers before main.
//   TENON_REGISTER_ALLOCATOR(device_type, allocator_pointer [, priority]);
// (A linker drops a file of a static library that nothing refers to, and its registration with it.)
#define TENON_REGISTER_ALLOCATOR(device_type, ...)                                            \
  [[maybe_unused]] static const bool TENON_DETAIL_CONCAT(                                     \
      tenon_allocator_registration_, __COUNTER__) =                                           \
      (::tenon::set_allocator(device_type, __VA_ARGS__), true)
