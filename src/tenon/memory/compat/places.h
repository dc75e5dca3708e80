// Memory by place: on the host or on the n-th GPU, by bare pointer. Complexity: BuddyAllocator's.
#pragma once

#include <cstddef>
#include <memory>

#include "tenon/device/backend.h"
#include "tenon/memory/placement/buddy_allocator.h"

namespace tenon {

// The host.
struct CpuPlace {
  friend bool operator==(const CpuPlace&, const CpuPlace&) = default;
};

// The GPU with a number, from 0.
struct GpuPlace {
  int id = 0;

  explicit GpuPlace(int id_) : id(id_) {}
  friend bool operator==(const GpuPlace&, const GpuPlace&) = default;
};

// Host memory that the n-th GPU reaches by itself.
struct PinnedPlace {
  int id = 0;

  explicit PinnedPlace(int id_ = 0) : id(id_) {}
  friend bool operator==(const PinnedPlace&, const PinnedPlace&) = default;
};

// Places of GPUs that there may be.
inline constexpr int kMaxGpus = 64;

// The driver of a GPU that is not the CUDA device of its number; null: it is that device again. The
// allocator over the earlier backend ends. Throws InvalidArgument while blocks of it are in use, or
// for an id out of 0 to 63. No other thread may use that place meanwhile.
void set_gpu_backend(GpuPlace place, std::shared_ptr<Backend> backend);
// GPUs that can be used: those given a backend, and the CUDA devices that the driver counts.
int gpu_count();

// The place's buddy allocator, made when first asked for. Thread-safe. Throws InvalidArgument where
// there is no such GPU.
BuddyAllocator& place_allocator(CpuPlace place);
BuddyAllocator& place_allocator(GpuPlace place);
// The GPU's pinned memory, whose rounding is PinnedAllocator's.
DeviceAllocator& place_allocator(PinnedPlace place);

// alloc, free and used for a place, as in
//   void* p = memory::alloc(GpuPlace(0), 4 * 1024);
//   memory::used(GpuPlace(0));    // 4096
//   memory::free(GpuPlace(0), p);
// They serve the calling thread's current stream on that device (device.h). Thread-safe.
namespace memory {

// At least 32-byte aligned; null for 0 bytes. Throws OutOfMemory.
template <typename Place>
void* alloc(Place place, std::size_t size_bytes) {
  return place_allocator(place).raw_allocate(size_bytes);
}

// Null is ignored. Throws InvalidPointer for a pointer that is not in use on that place.
template <typename Place>
void free(Place place, void* data) {
  place_allocator(place).raw_deallocate(data);
}

// Bytes in use on the place: of blocks, after rounding.
template <typename Place>
std::size_t used(Place place) {
  return static_cast<std::size_t>(place_allocator(place).stats().allocated_bytes[0].current);
}

// Copies between two places, in the order of the GPU's current stream. To and from the host it has
// happened when the call returns. Throws InvalidArgument between two GPUs.
void copy(CpuPlace to, void* dest, CpuPlace from, const void* src, std::size_t size_bytes);
void copy(GpuPlace to, void* dest, CpuPlace from, const void* src, std::size_t size_bytes);
void copy(CpuPlace to, void* dest, GpuPlace from, const void* src, std::size_t size_bytes);
void copy(GpuPlace to, void* dest, GpuPlace from, const void* src, std::size_t size_bytes);
// Between a GPU and its own pinned memory: queued on the GPU's current stream, without a wait.
// Throws InvalidArgument where the pinned memory is another GPU's.
void copy(GpuPlace to, void* dest, PinnedPlace from, const void* src, std::size_t size_bytes);
void copy(PinnedPlace to, void* dest, GpuPlace from, const void* src, std::size_t size_bytes);

}  // namespace memory
}  // namespace tenon
