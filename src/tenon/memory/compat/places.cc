#include "tenon/memory/compat/places.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include "tenon/base/error.h"
#include "tenon/device/cuda/cuda_backend.h"
#include "tenon/device/devices.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/memory/gpu/pinned_allocator.h"

namespace tenon {
namespace {

// The CUDA device of that number; null where there is none.
std::shared_ptr<Backend> cuda_device(int id) {
  try {
    return {&cuda_backend(id), [](Backend*) {}};  // lives as long as the program
  } catch (const DeviceError&) {
    return nullptr;
  }
}

// One GPU. The allocator is read without the lock.
struct GpuSlot {
  std::mutex mutex;
  std::shared_ptr<Backend> backend;
  std::atomic<BuddyAllocator*> allocator{nullptr};  // owned
  std::unique_ptr<PinnedAllocator> pinned;
};

GpuSlot& slot_of(GpuPlace place) {
  // Never destroyed: blocks may be freed while other static objects end.
  static auto* const slots = new std::array<GpuSlot, kMaxGpus>;
  if (place.id < 0 || place.id >= kMaxGpus)
    raise<InvalidArgument>("gpu place {}: ids go from 0 to {}", place.id, kMaxGpus - 1);
  return (*slots)[static_cast<std::size_t>(place.id)];
}

}  // namespace

void set_gpu_backend(GpuPlace place, std::shared_ptr<Backend> backend) {
  GpuSlot& slot = slot_of(place);
  const std::lock_guard lock(slot.mutex);
  const auto live_blocks = [](const DeviceAllocator* allocator) {
    return allocator == nullptr ? 0 : allocator->stats().allocation[0].current;
  };
  const std::int64_t live = live_blocks(slot.allocator) + live_blocks(slot.pinned.get());
  if (live != 0)
    raise<InvalidArgument>(
        "gpu place {}: {} blocks are in use; free them before its backend changes", place.id, live);
  slot.pinned.reset();
  delete slot.allocator.exchange(nullptr);
  slot.backend = std::move(backend);
}

int gpu_count() {
  int count = 0;
  const int of_cuda = why_no_cuda().empty() ? CudaDriver::standard()->device_count() : 0;
  for (int id = 0; id < kMaxGpus; ++id) {
    GpuSlot& slot = slot_of(GpuPlace(id));
    const std::lock_guard lock(slot.mutex);
    count += slot.backend != nullptr || id < of_cuda ? 1 : 0;
  }
  return count;
}

BuddyAllocator& place_allocator(CpuPlace) {
  // Never destroyed, as above.
  static auto* const allocator = new BuddyAllocator(host_backend());
  return *allocator;
}

BuddyAllocator& place_allocator(GpuPlace place) {
  GpuSlot& slot = slot_of(place);
  if (BuddyAllocator* made = slot.allocator.load(std::memory_order_acquire)) return *made;
  const std::lock_guard lock(slot.mutex);
  if (slot.backend == nullptr) slot.backend = cuda_device(place.id);
  if (slot.backend == nullptr)
    raise<InvalidArgument>(
        "gpu place {}: no CUDA device has this number{}; give the place another driver with "
        "set_gpu_backend", place.id,
        why_no_cuda().empty() ? "" : fmt::format(" ({})", why_no_cuda()));
  if (slot.allocator == nullptr) slot.allocator = new BuddyAllocator(*slot.backend);
  return *slot.allocator;
}

DeviceAllocator& place_allocator(PinnedPlace place) {
  Backend& backend = place_allocator(GpuPlace(place.id)).backend();
  GpuSlot& slot = slot_of(GpuPlace(place.id));
  const std::lock_guard lock(slot.mutex);
  if (slot.pinned == nullptr) slot.pinned = std::make_unique<PinnedAllocator>(backend);
  return *slot.pinned;
}

namespace memory {
namespace {

void copy_on_gpu(GpuPlace place, void* dest, const void* src, std::size_t size_bytes, bool wait) {
  if (size_bytes == 0) return;
  Backend& backend = place_allocator(place).backend();
  const Stream stream = current_stream(backend.device());
  backend.copy(dest, src, size_bytes, stream);
  if (wait) backend.synchronize(stream);
}

void check_own(GpuPlace gpu, PinnedPlace pinned) {
  if (gpu.id != pinned.id)
    raise<InvalidArgument>("copy: gpu place {} does not reach pinned place {}; take "
                           "pinned place {}", gpu.id, pinned.id, gpu.id);
}

}  // namespace

void copy(CpuPlace, void* dest, CpuPlace, const void* src, std::size_t size_bytes) {
  if (size_bytes > 0) std::memmove(dest, src, size_bytes);
}

void copy(GpuPlace to, void* dest, CpuPlace, const void* src, std::size_t size_bytes) {
  copy_on_gpu(to, dest, src, size_bytes, true);
}

void copy(CpuPlace, void* dest, GpuPlace from, const void* src, std::size_t size_bytes) {
  copy_on_gpu(from, dest, src, size_bytes, true);
}

void copy(GpuPlace to, void* dest, GpuPlace from, const void* src, std::size_t size_bytes) {
  if (to != from)
    raise<InvalidArgument>("copy: from gpu place {} to {}; copy by way of the host", from.id,
                           to.id);
  copy_on_gpu(to, dest, src, size_bytes, false);
}

void copy(GpuPlace to, void* dest, PinnedPlace from, const void* src, std::size_t size_bytes) {
  check_own(to, from);
  copy_on_gpu(to, dest, src, size_bytes, false);
}

void copy(PinnedPlace to, void* dest, GpuPlace from, const void* src, std::size_t size_bytes) {
  check_own(from, to);
  copy_on_gpu(from, dest, src, size_bytes, false);
}

}  // namespace memory
}  // namespace tenon
