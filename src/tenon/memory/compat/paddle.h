// The places document in its own spelling: memory::Alloc(platform::GPUPlace(2), 4 * 1024), for a
// program that says `using namespace tenon::paddle`.
#pragma once

#include <cstddef>

#include "tenon/memory/compat/places.h"

namespace tenon::paddle {

namespace platform {

using CPUPlace = CpuPlace;  // the host
using GPUPlace = GpuPlace;  // the n-th GPU

// gpu_count().
inline int NumGPUs() { return gpu_count(); }

}  // namespace platform

namespace memory {

// tenon::memory::alloc, free and used. The document writes Used<Place>(Place), too.
template <typename Place>
void* Alloc(Place place, std::size_t size) {
  return tenon::memory::alloc(place, size);
}
template <typename Place>
void Free(Place place, void* data) {
  tenon::memory::free(place, data);
}
template <typename Place>
std::size_t Used(Place place) {
  return tenon::memory::used(place);
}

}  // namespace memory

// The buddies of a place. They live as long as the program or the place's backend.
inline BuddyAllocator* GetCPUBuddyAllocator() { return &place_allocator(CpuPlace()); }
inline BuddyAllocator* GetGPUBuddyAllocator(int gpu_id) {
  return &place_allocator(GpuPlace(gpu_id));
}

}  // namespace tenon::paddle
