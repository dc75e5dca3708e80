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

StreamOrderedAllocator::StreamOrderedAllocator(Backend& backend, const CachingSettings& settings,
                                               std::uint64_t limit_bytes)
    : FastPath(backend, limit_bytes),
      settings_(settings),
      sizes_{&settings_, is_plain(settings)} {
  oversize_bytes_ = settings.max_split_size;
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

AllocatorStats StreamOrderedAllocator::stats() const {
  AllocatorStats out = StreamFront::stats();
  if (settings_.max_split_size == CachingSettings::kNoLimit) return out;
  const auto asking = growth_mutex_.ask();
  for_each_locked_heap<BlockHeap>([&](auto& heap) { out.oversize_allocations += heap.oversize(); });
  return out;
}

void StreamOrderedAllocator::reset_peak_stats() {
  StreamFront::reset_peak_stats();
  const auto asking = growth_mutex_.ask();
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
