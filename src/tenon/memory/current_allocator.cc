#include "tenon/memory/current_allocator.h"

#include <vector>

#include "tenon/memory/device_registry.h"

namespace tenon {
namespace {

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

Allocator* guarded_allocator(Device device) {
  if (guards_alive == 0) [[likely]] return nullptr;
  const Choice* choice = find_choice(device);
  return choice == nullptr ? nullptr : choice->allocator;
}

Allocator* current_allocator(Device device) {
  Allocator* guarded = guarded_allocator(device);
  return guarded != nullptr ? guarded : registered_allocator(device);
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

}  // namespace tenon
