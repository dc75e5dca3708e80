#include "tenon/memory/gpu/caching_allocator.h"

#include <algorithm>
#include <vector>

namespace tenon {

bool CachingAllocator::grow_pool(BlockHeap& heap, Pool pool, std::uint64_t rounded) {
  if (settings_.garbage_collection_threshold > 0 && limit_bytes() != 0) collect_garbage();
  const std::uint64_t size = settings_.segment_size(rounded);
  if (add_segment(heap, pool, size)) return true;
  if (pool == Pool::kLarge && release_oversize(heap, rounded) && add_segment(heap, pool, size))
    return true;
  release_cached();
  ++device_stats_.num_alloc_retries;
  return add_segment(heap, pool, size);
}

// Frees cached blocks of at least max_split_size, the smallest that is large enough or else the
// largest ones until their sum is.
bool CachingAllocator::release_oversize(BlockHeap& heap, std::uint64_t rounded) {
  if (settings_.max_split_size == CachingSettings::kNoLimit) return false;
  const std::uint64_t wanted = std::max(rounded, settings_.max_split_size);
  std::vector<Extent*> chosen;
  {
    const BiasedGuard lock(heap.lock);
    if (const Block* enough = heap.heap(Pool::kLarge).find(wanted)) {
      chosen = {BlockHeap::extent_of(enough)};
    } else {
      std::uint64_t bytes = 0;
      const std::vector<Extent*> free = heap.free_extents(Pool::kLarge);
      for (auto it = free.rbegin(); it != free.rend() && bytes < wanted; ++it) {
        if ((*it)->size_bytes < settings_.max_split_size) break;
        bytes += (*it)->size_bytes;
        chosen.push_back(*it);
      }
    }
  }
  std::uint64_t released = 0;
  for (Extent* extent : chosen) {
    const std::uint64_t size = extent->size_bytes;
    if (release_segment(heap, *extent)) released += size;
  }
  return released >= wanted;
}

// Above the threshold, frees whole cached segments of the large pools that have lain idle longer
// than average, and again, until enough is free. A block's age is how many operations its stream
// has seen since the block was freed.
void CachingAllocator::collect_garbage() {
  const auto allowed = static_cast<std::uint64_t>(
      settings_.garbage_collection_threshold * static_cast<double>(limit_bytes()));
  if (reserved_now() <= allowed) return;
  const std::uint64_t target = reserved_now() - allowed;

  struct Idle {
    BlockHeap* heap;
    Extent* extent;  // lives as long as growth_mutex_ is held
    std::uint64_t age;
  };
  std::vector<Idle> idle;
  double total_age = 0;
  for_each_heap<BlockHeap>([&](BlockHeap& heap) {
    const BiasedGuard lock(heap.lock);
    for (Extent* extent : heap.free_extents(Pool::kLarge)) {
      idle.push_back({&heap, extent, heap.sequence() - BlockHeap::first_of(*extent)->requested});
      total_age += static_cast<double>(idle.back().age);
    }
  });
  std::uint64_t reclaimed = 0;
  while (reclaimed < target && !idle.empty()) {
    const double average = total_age / static_cast<double>(idle.size());
    std::vector<Idle> younger;
    for (const Idle& entry : idle) {
      if (static_cast<double>(entry.age) < average) {
        younger.push_back(entry);
        continue;
      }
      total_age -= static_cast<double>(entry.age);
      const std::uint64_t size = entry.extent->size_bytes;
      if (release_segment(*entry.heap, *entry.extent)) reclaimed += size;
    }
    if (younger.size() == idle.size()) break;
    idle.swap(younger);
  }
}

std::string CachingAllocator::advice() const {
  if (reserved_now() == 0) return {};
  return "if reserved is much larger than allocated, free memory is in pieces: try "
         "expandable_segments:True, or policy stitched";
}

}  // namespace tenon
