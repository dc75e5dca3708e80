#include "tenon/memory/registry.h"

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/memory/gpu/cuda_allocator.h"
#include "tenon/memory/unified/vulkan_allocator.h"
#include "tenon/memory/host/cpu_allocator.h"

namespace tenon {
namespace {

constexpr std::size_t kMaxIndexes = 64;

// A kind of device. Readers load a pointer; writers of the kind's lock.
struct Kind {
  std::atomic<Allocator*> allocator{nullptr};
  std::uint8_t priority = 0;
  std::array<std::atomic<Allocator*>, kMaxIndexes> of_device = {};
};

// Constant-initialised, so that static initialisers and destructors in any order find them.
constinit std::array<Kind, kMaxDeviceTypes> kinds = {};
constinit std::mutex kinds_mutex;

Kind& kind_of(DeviceType type) {
  const auto value = static_cast<std::size_t>(type);
  if (value >= kinds.size())
    raise<InvalidArgument>("{} is no device type: the values end at {}", value,
                           kMaxDeviceTypes - 1);
  return kinds[value];
}

// Null: no place for such a device.
std::atomic<Allocator*>* slot_of(Device device) {
  const auto type = static_cast<std::size_t>(device.type);
  const auto index = static_cast<std::size_t>(device.index);  // below 0: far too large
  return type < kinds.size() && index < kMaxIndexes ? &kinds[type].of_device[index] : nullptr;
}

[[noreturn]] void refuse_missing(DeviceType type) {
  raise<InvalidArgument>("no allocator is registered for device type {}: register one with "
                         "set_allocator or TENON_REGISTER_ALLOCATOR", device_type_name(type));
}

struct Choice {
  Device device;
  Allocator* allocator = nullptr;
};

// Programs use few devices, so a flat list beats a map. Entries stay once made: a device that was
// guarded once will be again.
thread_local std::vector<Choice> thread_choices;

// Constant-initialised, so that threads without a guard are answered without touching the list.
constinit thread_local int guards_alive = 0;

Choice* find_choice(Device device) {
  for (Choice& choice : thread_choices)
    if (choice.device == device) return &choice;
  return nullptr;
}

}  // namespace

// --- The answer.

Allocator* current_allocator(Device device) {
  Allocator* guarded = guarded_allocator(device);
  return guarded != nullptr ? guarded : registered_allocator(device);
}

Allocator* guarded_allocator(Device device) {
  if (guards_alive == 0) [[likely]] return nullptr;
  const Choice* choice = find_choice(device);
  return choice == nullptr ? nullptr : choice->allocator;
}

Allocator* registered_allocator(Device device) {
  if (Allocator* own = find_device_allocator(device)) return own;
  if (Allocator* of_kind = kind_of(device.type).allocator.load(std::memory_order_acquire))
    return of_kind;
  if (device.type == DeviceType::kCpu) [[likely]] return get_default_cpu_allocator();
  if (device.type == DeviceType::kCuda) return &cuda_allocator(device.index);
#if TENON_HAS_VULKAN
  if (device.type == DeviceType::kVulkan) return &vulkan_allocator(device.index);
#endif
  refuse_missing(device.type);
}

AllocatorGuard::AllocatorGuard(Device device, Allocator& allocator)
    : device_(device), previous_(guarded_allocator(device)) {
  if (Choice* choice = find_choice(device))
    choice->allocator = &allocator;
  else
    thread_choices.push_back({device, &allocator});
  ++guards_alive;
}

AllocatorGuard::~AllocatorGuard() {
  --guards_alive;
  find_choice(device_)->allocator = previous_;
}

// --- Registration.

void set_allocator(DeviceType type, Allocator* allocator, std::uint8_t priority) {
  Kind& kind = kind_of(type);
  if (allocator == nullptr)
    raise<InvalidArgument>(
        "set_allocator({}): the allocator is null; unset_allocator takes a registration away",
        device_type_name(type));
  const std::lock_guard lock(kinds_mutex);
  if (kind.allocator.load(std::memory_order_relaxed) != nullptr && priority < kind.priority) return;
  kind.priority = priority;
  kind.allocator.store(allocator, std::memory_order_release);
}

Allocator* get_allocator(DeviceType type) {
  if (Allocator* of_kind = kind_of(type).allocator.load(std::memory_order_acquire)) return of_kind;
  if (type == DeviceType::kCpu) return get_default_cpu_allocator();
  refuse_missing(type);
}

void unset_allocator(DeviceType type) {
  Kind& kind = kind_of(type);
  const std::lock_guard lock(kinds_mutex);
  kind.priority = 0;
  kind.allocator.store(nullptr, std::memory_order_release);
}

void set_device_allocator(Device device, Allocator* allocator) {
  std::atomic<Allocator*>* slot = slot_of(device);
  if (slot == nullptr)
    raise<InvalidArgument>("set_device_allocator({}): indexes go from 0 to {}", to_string(device),
                           kMaxIndexes - 1);
  if (device.type == DeviceType::kCpu)
    raise<InvalidArgument>("set_device_allocator({}): the host is one device; use "
                           "set_allocator or set_cpu_allocator", to_string(device));
  if (allocator == nullptr)
    raise<InvalidArgument>("set_device_allocator({}): there is no allocator; to take "
                           "one away, call unset_device_allocator", to_string(device));
  slot->store(allocator, std::memory_order_release);
}

Allocator* find_device_allocator(Device device) {
  const std::atomic<Allocator*>* slot = slot_of(device);
  return slot == nullptr ? nullptr : slot->load(std::memory_order_acquire);
}

void unset_device_allocator(Device device) {
  if (std::atomic<Allocator*>* slot = slot_of(device)) slot->store(nullptr);
}

}  // namespace tenon
