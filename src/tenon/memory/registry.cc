#include "tenon/memory/registry.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <mutex>

#include "tenon/base/error.h"
#include "tenon/memory/cpu/cpu_allocator.h"

namespace tenon {
namespace {

// One slot for each kind of device. Readers load a pointer; writers lock.
class Registry {
 public:
  // Made at first use, so that static initialisers in any order find it, and never destroyed, so
  // that static destructors do too.
  static Registry& instance() {
    static Registry& registry = *new Registry;
    return registry;
  }

  void set(DeviceType type, Allocator* allocator, std::uint8_t priority) {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_[index(type)];
    if (slot.allocator.load(std::memory_order_relaxed) != nullptr && priority < slot.priority)
      return;
    slot.priority = priority;
    slot.allocator.store(allocator, std::memory_order_release);
  }

  void unset(DeviceType type) {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_[index(type)];
    slot.priority = 0;
    slot.allocator.store(type == DeviceType::kCpu ? get_default_cpu_allocator() : nullptr,
                         std::memory_order_release);
  }

  Allocator* get(DeviceType type) const {
    return slots_[index(type)].allocator.load(std::memory_order_acquire);
  }

 private:
  struct Slot {
    std::atomic<Allocator*> allocator{nullptr};
    std::uint8_t priority = 0;
  };

  Registry() { set(DeviceType::kCpu, get_default_cpu_allocator(), 0); }

  static std::size_t index(DeviceType type) {
    const auto value = static_cast<std::size_t>(type);
    if (value >= kMaxDeviceTypes)
      throw InvalidArgument(fmt::format("{} is no device type: the values end at {}", value,
                                        kMaxDeviceTypes - 1));
    return value;
  }

  std::mutex mutex_;
  std::array<Slot, kMaxDeviceTypes> slots_;
};

}  // namespace

void set_allocator(DeviceType type, Allocator* allocator, std::uint8_t priority) {
  if (allocator == nullptr)
    throw InvalidArgument(fmt::format(
        "set_allocator({}): the allocator is null; unset_allocator takes a registration away",
        device_type_name(type)));
  Registry::instance().set(type, allocator, priority);
}

Allocator* get_allocator(DeviceType type) {
  Allocator* allocator = Registry::instance().get(type);
  if (allocator == nullptr)
    throw InvalidArgument(fmt::format(
        "no allocator is registered for device type {}: register one with set_allocator or "
        "TENON_REGISTER_ALLOCATOR",
        device_type_name(type)));
  return allocator;
}

void unset_allocator(DeviceType type) { Registry::instance().unset(type); }

}  // namespace tenon
