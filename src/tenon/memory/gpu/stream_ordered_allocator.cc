#include "tenon/memory/gpu/stream_ordered_allocator.h"

#include <algorithm>

#include "tenon/base/error.h"

namespace tenon {
namespace {

bool is_plain(const CachingSettings& settings) {
  return std::all_of(settings.roundup_power2_divisions.begin(),
                     settings.roundup_power2_divisions.end(), [](auto d) { return d <= 1; });
}

}  // namespace

template class FastPath<BlockHeap>;

StreamOrderedAllocator::StreamOrderedAllocator(Backend& backend, const CachingSettings& settings,
                                               std::uint64_t limit_bytes)
    : FastPath(backend, limit_bytes),
      settings_(settings),
      sizes_{&settings_, is_plain(settings)} {
  if (settings.per_process_memory_fraction < 1)
    set_memory_fraction(settings.per_process_memory_fraction);
}

std::unique_ptr<FrontHeap> StreamOrderedAllocator::make_heap(Stream stream) {
  auto heap = std::make_unique<BlockHeap>(*this, stream, sizes_);
  for (const Pool pool : {Pool::kSmall, Pool::kLarge}) heap->rules(pool) = pool_rules(pool);
  return heap;
}

bool StreamOrderedAllocator::grow(FrontHeap& heap, std::size_t size_bytes) {
  const std::uint64_t rounded = sizes_.round(size_bytes);
  return grow_pool(static_cast<BlockHeap&>(heap), sizes_.pool_for(rounded), rounded);
}

bool StreamOrderedAllocator::add_segment(BlockHeap& heap, Pool pool, std::uint64_t size_bytes) {
  if (exceeds_limit(size_bytes)) return false;
  const auto segment = make_segment(size_bytes);
  if (!segment) return false;
  {
    const BiasedGuard lock(heap.lock);
    try {
      heap.add_extent(pool, *segment, false);
    } catch (...) {
      ignore_refusal([&] { free_segment(*segment); });
      throw;
    }
  }
  add_reserved(pool, static_cast<std::int64_t>(segment->size_bytes));
  count_segment(pool, +1);
  if (segment->size_bytes >= settings_.max_split_size) device_stats_.oversize_segments.increase(1);
  note(MemoryEvent::kMapped, segment->base, segment->size_bytes, heap.stream());
  return true;
}

void StreamOrderedAllocator::release_segment(BlockHeap& heap, Extent* extent) {
  const Pool pool = extent->pool;
  free_segment(extent->segment);  // should the driver refuse, nothing has changed
  const Segment segment = heap.remove_extent(extent);
  add_reserved(pool, -static_cast<std::int64_t>(segment.size_bytes));
  count_segment(pool, -1);
  if (segment.size_bytes >= settings_.max_split_size) device_stats_.oversize_segments.decrease(1);
  note(MemoryEvent::kReleased, segment.base, segment.size_bytes, heap.stream());
}

bool StreamOrderedAllocator::release_free_segments(bool waits) {
  bool released = false;
  for (const Pool pool : {Pool::kLarge, Pool::kSmall})
    for_each_heap<BlockHeap>([&](BlockHeap& heap) {
      const BiasedGuard lock(heap.lock);
      const std::vector<Extent*> free = heap.free_extents(pool);
      if (waits && !free.empty()) backend_.synchronize();
      for (Extent* extent : free) release_segment(heap, extent);
      released |= !free.empty();
    });
  return released;
}

void StreamOrderedAllocator::free_all_segments() {
  for_each_heap<BlockHeap>([&](BlockHeap& heap) {
    for (const auto& extent : heap.extents())
      ignore_refusal([&] { free_segment(extent->segment); });
  });
}

AllocatorStats StreamOrderedAllocator::stats() const {
  AllocatorStats out = StreamFront::stats();
  if (settings_.max_split_size == CachingSettings::kNoLimit) return out;
  const std::lock_guard growth(growth_mutex_);
  for_each_locked_heap<BlockHeap>([&](auto& heap) { out.oversize_allocations += heap.oversize(); });
  return out;
}

void StreamOrderedAllocator::reset_peak_stats() {
  StreamFront::reset_peak_stats();
  const std::lock_guard growth(growth_mutex_);
  for_each_locked_heap<BlockHeap>(
      [](BlockHeap& heap) { heap.oversize().peak = heap.oversize().current; });
}

void StreamOrderedAllocator::set_memory_fraction(double fraction) {
  if (!(fraction > 0 && fraction <= 1))
    raise<InvalidArgument>("memory fraction {} is not above 0 and up to 1", fraction);
  const std::lock_guard growth(growth_mutex_);
  const auto total = static_cast<double>(backend_.total_bytes());
  set_limit_bytes(static_cast<std::uint64_t>(fraction * total));
}

}  // namespace tenon
