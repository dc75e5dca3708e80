// Which allocator serves a kind of device.
#pragma once

#include <cstdint>

#include "tenon/device/device.h"
#include "tenon/memory/allocator.h"

namespace tenon {

// Makes `allocator` the one for `type`, unless one of higher priority is registered: an equal or a
// higher priority replaces, a lower one changes nothing. The allocator is not owned and must stay
// alive while it is registered. Throws InvalidArgument for null or a type that does not exist.
// Thread-safe; whoever got the earlier allocator keeps using it.
void set_allocator(DeviceType type, Allocator* allocator, std::uint8_t priority = 0);

// The allocator registered for `type`: one atomic load. The CPU always has one, by default
// get_default_cpu_allocator(). Throws InvalidArgument, saying how to register one, when there is
// none. Thread-safe, also during static initialisation.
Allocator* get_allocator(DeviceType type);

// Takes the registration for `type` away, whatever its priority; the CPU falls back to its default.
void unset_allocator(DeviceType type);

namespace detail {

struct AllocatorRegistration {
  AllocatorRegistration(DeviceType type, Allocator* allocator, std::uint8_t priority = 0) {
    set_allocator(type, allocator, priority);
  }
};

}  // namespace detail
}  // namespace tenon

#define TENON_DETAIL_CONCAT_(a, b) a##b
#define TENON_DETAIL_CONCAT(a, b) TENON_DETAIL_CONCAT_(a, b)

// At namespace scope of a source file: registers before main, wherever in the order of static
// initialisation the file comes.
//   TENON_REGISTER_ALLOCATOR(device_type, allocator_pointer [, priority]);
// (A linker drops a file of a static library that nothing refers to, and its registration with it.)
#define TENON_REGISTER_ALLOCATOR(device_type, ...)                                      \
  static const ::tenon::detail::AllocatorRegistration TENON_DETAIL_CONCAT(              \
      tenon_allocator_registration_, __COUNTER__)(device_type, __VA_ARGS__)
