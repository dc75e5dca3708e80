// The places document in its own spelling: memory::Alloc(platform::GPUPlace(2), 4 * 1024), for a
// program that says `using namespace tenon::paddle`.
//
// Not reproduced: BuddyAllocator's constructor from a system allocator (BuddyAllocator of
// placement/buddy_allocator.h stands over any Backend), its private Block, Context::New of Caffe2;
// a program that uses both namespaces writes tenon::memory or tenon::paddle::memory in full.
#pragma once

#include <cstddef>
#include <variant>
#include <vector>

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

// The buddy allocator of a place. It lives as long as the program; blocks are the place's, so
// memory::Free takes them too.
class BuddyAllocator {
 public:
  explicit BuddyAllocator(CpuPlace place) : place_(place) {}
  explicit BuddyAllocator(GpuPlace place) : place_(place) {}

  // tenon::memory::alloc, free and used.
  void* Alloc(std::size_t size) { return allocator().raw_allocate(size); }
  void Free(void* data) { allocator().raw_deallocate(data); }
  std::size_t Used() const {
    return static_cast<std::size_t>(allocator().stats().allocated_bytes[0].current);
  }
  // What stands behind it, with its statistics.
  tenon::BuddyAllocator& allocator() const {
    return std::visit([](auto place) -> tenon::BuddyAllocator& { return place_allocator(place); },
                      place_);
  }

 private:
  std::variant<CpuPlace, GpuPlace> place_;
};

// The host's, and the n-th GPU's. Throw what place_allocator throws.
inline BuddyAllocator* GetCPUBuddyAllocator() {
  static BuddyAllocator host{CpuPlace()};
  return &host;
}
inline BuddyAllocator* GetGPUBuddyAllocator(int gpu_id) {
  static std::vector<BuddyAllocator> gpus = [] {
    std::vector<BuddyAllocator> made;
    for (int id = 0; id < kMaxGpus; ++id) made.emplace_back(GpuPlace(id));
    return made;
  }();
  static_cast<void>(place_allocator(GpuPlace(gpu_id)));  // refuses a GPU that is not there
  return &gpus[static_cast<std::size_t>(gpu_id)];
}

}  // namespace tenon::paddle
