#include "tenon/memory/compat/places.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <mutex>

#include "tenon/base/error.h"
#include "tenon/device/host/host_backend.h"

namespace tenon {
namespace {

constexpr int kMaxGpus = 64;

// One GPU. The allocator is read without the lock once it stands.
struct GpuSlot {
  std::mutex mutex;
  std::shared_ptr<Backend> backend;
  std::unique_ptr<BuddyAllocator> owned;
  std::atomic<BuddyAllocator*> allocator{nullptr};
};

GpuSlot& slot_of(GpuPlace place) {
  // Never destroyed: blocks may be freed while other static objects end.
  static auto* const slots = new std::array<GpuSlot, kMaxGpus>;
  if (place.id < 0 || place.id >= kMaxGpus)
    throw InvalidArgument(
        fmt::format("gpu place {}: ids go from 0 to {}", place.id, kMaxGpus - 1));
  return (*slots)[static_cast<std::size_t>(place.id)];
}

}  // namespace

void set_gpu_backend(GpuPlace place, std::shared_ptr<Backend> backend) {
  GpuSlot& slot = slot_of(place);
  const std::lock_guard lock(slot.mutex);
  if (slot.owned != nullptr) {
    const std::int64_t live = slot.owned->stats().allocation[0].current;
    if (live != 0)
      throw InvalidArgument(fmt::format(
          "gpu place {}: {} blocks are in use; free them before its backend changes", place.id,
          live));
  }
  slot.allocator.store(nullptr, std::memory_order_release);
  slot.owned.reset();
  slot.backend = std::move(backend);
}

int gpu_count() {
  int count = 0;
  for (int id = 0; id < kMaxGpus; ++id) {
    GpuSlot& slot = slot_of(GpuPlace(id));
    const std::lock_guard lock(slot.mutex);
    count += slot.backend != nullptr ? 1 : 0;
  }
  return count;
}

BuddyAllocator& place_allocator(CpuPlace) {
  // A local static is made once, by one thread, while others wait. Never destroyed, as above.
  static auto* const allocator = new BuddyAllocator(host_backend());
  return *allocator;
}

BuddyAllocator& place_allocator(GpuPlace place) {
  GpuSlot& slot = slot_of(place);
  if (BuddyAllocator* made = slot.allocator.load(std::memory_order_acquire)) return *made;
  const std::lock_guard lock(slot.mutex);
  if (slot.backend == nullptr)
    throw InvalidArgument(
        fmt::format("gpu place {}: no backend; give it one with set_gpu_backend", place.id));
  if (slot.owned == nullptr) slot.owned = std::make_unique<BuddyAllocator>(*slot.backend);
  slot.allocator.store(slot.owned.get(), std::memory_order_release);
  return *slot.owned;
}

}  // namespace tenon
