#include "tenon/memory/gpu/caching_allocator.h"

#include <algorithm>
#include <vector>


namespace tenon {

CachingAllocator::~CachingAllocator() {
  idle_cache_.end();
  free_all_segments();
}

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

bool CachingAllocator::release_cached() {
  finish_pending_frees();
  return release_free_segments();
}

// Frees cached blocks of at least max_split_size, the smallest that is large enough or else the
// largest ones until their sum is.
bool CachingAllocator::release_oversize(BlockHeap& heap, std::uint64_t rounded) {
  if (settings_.max_split_size == CachingSettings::kNoLimit) return false;
  const std::uint64_t wanted = std::max(rounded, settings_.max_split_size);
  const BiasedGuard lock(heap.lock);
  const BestFitHeap& blocks = heap.heap(Pool::kLarge);
  if (Block* enough = blocks.find(wanted)) {
    if (!BlockHeap::is_whole_extent(enough)) return false;
    release_segment(heap, BlockHeap::extent_of(enough));
    return true;
  }
  const std::vector<Extent*> free = heap.free_extents(Pool::kLarge);
  std::uint64_t released = 0;
  for (auto it = free.rbegin(); it != free.rend() && released < wanted; ++it) {
    const std::uint64_t size = (*it)->segment.size_bytes;
    if (size < settings_.max_split_size) break;
    released += size;
    release_segment(heap, *it);
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
      idle.push_back({&heap, extent, heap.sequence() - extent->first->requested});
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
      const BiasedGuard lock(entry.heap->lock);
      total_age -= static_cast<double>(entry.age);
      const Block* block = entry.extent->first;  // another thread may have used it since
      if (block->state != Block::State::kFree || !BlockHeap::is_whole_extent(block)) continue;
      reclaimed += block->size;
      release_segment(*entry.heap, entry.extent);
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
