#include "tenon/memory/gpu/expandable_allocator.h"

#include <algorithm>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/base/reserve.h"

namespace tenon {
namespace {

// More addresses than any device has memory, and few enough for many streams to have their own.
constexpr std::uint64_t kMaxRangeBytes = kTiB;

bool has_room(const Block* block, std::uint64_t bytes) {
  std::uint64_t sum = 0;
  for (; sum < bytes && is_free(block); block = block->next) sum += block->size;
  return sum >= bytes;
}

}  // namespace

ExpandableAllocator::ExpandableAllocator(Backend& backend, const CachingSettings& settings,
                                         std::uint64_t limit_bytes)
    : StreamOrderedAllocator(backend, settings, limit_bytes) {
  const BackendLimits& limits = backend.limits();
  if (!limits.has_virtual_memory)
    raise<InvalidArgument>("policy expandable needs virtual memory, which {} lacks; use " "caching",
                           to_string(backend.device()));
  if (kSmallSegment % limits.page_granularity != 0)
    raise<InvalidArgument>("policy expandable maps 2 MiB at a time; the pages of {} are {}",
                           to_string(backend.device()), format_byte_size(limits.page_granularity));
  if (settings.large_segment_size % limits.page_granularity != 0)
    raise<InvalidArgument>(
        "policy expandable: large_segment_size_mb:{} is no multiple of {}'s pages of {}",
        settings.large_segment_size >> 20, to_string(backend.device()),
        format_byte_size(limits.page_granularity));
}

ExpandableAllocator::~ExpandableAllocator() {
  idle_cache_.end();
  if (!ranges_.empty()) ignore_refusal([&] { backend_.synchronize(); });  // then unmap
  for (const auto& [extent, range] : ranges_) {
    std::uintptr_t address = range.addresses.base;
    for (const PageHandle pages : range.pages) {
      if (pages.id != 0) {
        ignore_refusal([&] { backend_.unmap(address, pages); });
        ignore_refusal([&] { backend_.release_pages(pages); });
      }
      address += range.handle_size;
    }
    ignore_refusal([&, &addresses = range.addresses] { backend_.release_address(addresses); });
  }
  ignore_refusal([&] { release_loose_pages(); });
}

// --- Growth.

bool ExpandableAllocator::grow_pool(BlockHeap& heap, Pool pool, std::uint64_t rounded) {
  if (map_room(heap, pool, rounded)) return true;
  release_cached();
  ++device_stats_.num_alloc_retries;
  return map_room(heap, pool, rounded);
}

// Backs free addresses until one block has `rounded` bytes.
bool ExpandableAllocator::map_room(BlockHeap& heap, Pool pool, std::uint64_t rounded) {
  if (exceeds_limit(settings_.segment_size(rounded))) return false;
  const BiasedGuard lock(heap.lock);
  Block* block = find_room(heap, pool, rounded);
  if (block == nullptr) return false;
  if (block->state == Block::State::kUnbacked)
    block = map_front(heap, block, std::min(block->size, rounded));
  while (block != nullptr && block->size < rounded)
    block = map_front(heap, block->next, std::min(block->next->size, rounded - block->size));
  return block != nullptr;
}

// Where growth starts: at the lowest unbacked addresses that have room, or at the free block right
// before them.
Block* ExpandableAllocator::find_room(BlockHeap& heap, Pool pool, std::uint64_t rounded) {
  for (Block* block : heap.heap(pool).unbacked()) {
    Block* start = is_free(block->prev) ? block->prev : block;
    if (has_room(start, rounded)) return start;
  }
  return add_range(heap, pool, rounded);
}

// Null for a request that no range has room for: it exceeds what any device has.
Block* ExpandableAllocator::add_range(BlockHeap& heap, Pool pool, std::uint64_t rounded) {
  const std::uint64_t handle = pool == Pool::kSmall ? kSmallSegment : settings_.large_segment_size;
  // An eighth more than the device has: fragmentation of addresses costs nothing.
  const std::uint64_t total = backend_.memory().total_bytes;
  const std::uint64_t size = round_up(std::min(total + total / 8, kMaxRangeBytes), handle);
  if (rounded > size) return nullptr;
  const auto addresses = backend_.reserve_address(size);
  if (!addresses) return nullptr;
  const Segment segment{reinterpret_cast<void*>(addresses->base), nullptr, size, 0,
                        MemoryKind::kDevice};
  Extent* extent = nullptr;
  try {
    extent = &heap.add_extent(segment, size, pool, true);
    ranges_[extent] = Range{*addresses, handle, {}};
  } catch (...) {
    if (extent != nullptr) heap.remove_extent(*extent);
    ignore_refusal([&] { backend_.release_address(*addresses); });
    throw;
  }
  count_segment(pool, +1);
  return BlockHeap::first_of(*extent);
}

// Gives pages to at least the first `bytes` of an unbacked block; returns the free block that they
// end up in, or null when memory is short.
Block* ExpandableAllocator::map_front(BlockHeap& heap, Block* block, std::uint64_t bytes) {
  Extent* extent = BlockHeap::extent_of(block);
  Range& range = ranges_.at(extent);
  bytes = round_up(bytes, range.handle_size);
  BestFitHeap& blocks = heap.heap(extent->pool);
  blocks.reserve_cuts(1);
  if (!map_pages(range, extent->pool, block->offset, bytes)) return nullptr;
  note(MemoryEvent::kMapped, reinterpret_cast<void*>(block->offset), bytes, heap.stream());
  if (bytes < block->size) blocks.split_free(block, bytes);
  return blocks.back(block);
}

// All or nothing.
bool ExpandableAllocator::map_pages(Range& range, Pool pool, std::uintptr_t address,
                                    std::uint64_t bytes) {
  const std::uint64_t first = (address - range.addresses.base) / range.handle_size;
  const std::uint64_t last = first + bytes / range.handle_size;
  if (range.pages.size() < last) range.pages.resize(last);
  reserve_more(loose_pages_, last - first);  // undoing allocates nothing
  std::uint64_t at = first;
  const auto undo = [&] {
    unmap_pages(range, pool, address, (at - first) * range.handle_size);
    ignore_refusal([&] { release_loose_pages(); });
    return false;
  };
  try {
    for (; at < last; ++at) {
      if (range.pages[at].id != 0) continue;  // the driver refused to unmap them in an earlier undo
      const auto pages = backend_.create_pages(range.handle_size);
      if (!pages) return undo();
      loose_pages_.emplace_back(pool, *pages);
      add_reserved(pool, static_cast<std::int64_t>(range.handle_size));
      if (!backend_.map(range.addresses.base + at * range.handle_size, *pages)) return undo();
      loose_pages_.pop_back();
      range.pages[at] = *pages;
    }
    return backend_.set_access(address, bytes) || undo();
  } catch (...) {
    undo();
    throw;
  }
}

// --- Release.

// Pages that the driver refuses to unmap stay in the range, with those behind them.
ExpandableAllocator::Unmapped ExpandableAllocator::unmap_pages(Range& range, Pool pool,
                                                               std::uintptr_t address,
                                                               std::uint64_t bytes) {
  Unmapped done;
  std::uint64_t at = (address - range.addresses.base) / range.handle_size;
  for (; done.bytes < bytes; done.bytes += range.handle_size, ++at) {
    PageHandle& pages = range.pages[at];
    if (pages.id == 0) continue;
    try {
      backend_.unmap(range.addresses.base + at * range.handle_size, pages);
    } catch (const DeviceError&) {
      done.error = std::current_exception();
      return done;
    }
    loose_pages_.emplace_back(pool, std::exchange(pages, {}));
  }
  return done;
}

// Those that the driver refuses stay loose; the last refusal is thrown.
void ExpandableAllocator::release_loose_pages() {
  std::exception_ptr refusal;
  std::erase_if(loose_pages_, [&](const auto& loose) {
    const auto [pool, pages] = loose;
    try {
      backend_.release_pages(pages);
    } catch (const DeviceError&) {
      refusal = std::current_exception();
      return false;
    }
    add_reserved(pool, -static_cast<std::int64_t>(pages.size_bytes));
    return true;
  });
  if (refusal) std::rethrow_exception(refusal);
}

bool ExpandableAllocator::release_cached() {
  finish_pending_frees();
  release_loose_pages();
  std::uint64_t released = 0;
  for (const Pool pool : {Pool::kLarge, Pool::kSmall})
    for_each_heap<BlockHeap>([&](BlockHeap& heap) {
      const BiasedGuard lock(heap.lock);
      std::vector<Block*> free_blocks;
      heap.heap(pool).for_each_free([&](Block* block) { free_blocks.push_back(block); });
      for (Block* block : free_blocks) released += unmap_inside(heap, block);
    });
  return released > 0;
}

// Unmaps the handles wholly inside a free block; the rest before and after stays free. Releases a
// range without any mapped handle. Returns the unmapped bytes.
std::uint64_t ExpandableAllocator::unmap_inside(BlockHeap& heap, Block* block) {
  Extent* extent = BlockHeap::extent_of(block);
  Range& range = ranges_.at(extent);
  const std::uint64_t base = range.addresses.base;
  const std::uint64_t begin = base + round_up(block->offset - base, range.handle_size);
  std::uint64_t end =
      base + (block->offset + block->size - base) / range.handle_size * range.handle_size;
  if (begin >= end) return 0;

  BestFitHeap& blocks = heap.heap(extent->pool);
  blocks.reserve_cuts(3);
  reserve_more(loose_pages_, range.pages.size());  // from here on only the driver throws
  heap.completion().synchronize();  // unmapping is ordered with no stream
  const Unmapped done = unmap_pages(range, extent->pool, begin, end - begin);
  if (done.bytes == 0) std::rethrow_exception(done.error);
  end = begin + done.bytes;
  if (begin > block->offset) block = blocks.split_free(block, begin - block->offset);
  if (end < block->offset + block->size) blocks.split_free(block, end - block->offset);
  block = blocks.unback(block);
  note(MemoryEvent::kUnmapped, reinterpret_cast<void*>(begin), end - begin, heap.stream());
  release_loose_pages();
  if (done.error) std::rethrow_exception(done.error);

  if (BlockHeap::is_whole_extent(block)) {
    const Unmapped left =
        unmap_pages(range, extent->pool, base, range.pages.size() * range.handle_size);
    release_loose_pages();
    if (left.error) std::rethrow_exception(left.error);
    backend_.release_address(range.addresses);
    ranges_.erase(extent);
    count_segment(extent->pool, -1);
    heap.remove_extent(*extent);
  }
  return end - begin;
}

}  // namespace tenon
