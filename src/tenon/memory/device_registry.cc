#include "tenon/memory/device_registry.h"

#include <fmt/format.h>

#include <array>
#include <atomic>

#include "tenon/base/error.h"

namespace tenon {
namespace {

constexpr std::size_t kMaxIndexes = 64;

using Slots = std::array<std::atomic<Allocator*>, kMaxIndexes>;
constinit std::array<Slots, kMaxDeviceTypes> slots = {};

// Null: no place for such a device.
std::atomic<Allocator*>* slot_of(Device device) {
  const auto type = static_cast<std::size_t>(device.type);
  const auto index = static_cast<std::size_t>(device.index);  // below 0: far too large
  return type < slots.size() && index < kMaxIndexes ? &slots[type][index] : nullptr;
}

}  // namespace

void set_device_allocator(Device device, Allocator* allocator) {
  std::atomic<Allocator*>* slot = slot_of(device);
  if (slot == nullptr)
    throw InvalidArgument(fmt::format("set_device_allocator({}): indexes go from 0 to {}",
                                      to_string(device), kMaxIndexes - 1));
  if (allocator == nullptr)
    throw InvalidArgument(fmt::format("set_device_allocator({}): there is no allocator; to take "
                                      "one away, call unset_device_allocator",
                                      to_string(device)));
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
