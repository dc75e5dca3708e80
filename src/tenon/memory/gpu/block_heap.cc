#include "tenon/memory/gpu/block_heap.h"

#include <algorithm>

#include "tenon/base/check.h"
#include "tenon/memory/gpu/stream_ordered_allocator.h"

namespace tenon {

// Here, where the heap is compiled for speed.
template class FastPath<BlockHeap, SegmentFront>;

namespace {

std::int64_t as_signed(std::uint64_t value) { return static_cast<std::int64_t>(value); }

// What a free block could become if the addresses after it were given pages.
std::uint64_t room(const Block* block) {
  const bool growable = block->next != nullptr && block->next->state == Block::State::kUnbacked;
  return block->size + (growable ? block->next->size : 0);
}

// Note [Low islands]
constexpr std::uint64_t kLowPages = 4;
constexpr int kIslandsLooked = 12;

}  // namespace

BlockHeap::BlockHeap(DeviceAllocator& allocator, Stream stream, const SizeRules& sizes,
                     PendingFrees::Events events)
    : ExtentHeap(allocator, stream),
      sizes_(sizes),
      completion_(allocator.backend(), stream),
      pending_(allocator.backend(), events) {
  for (PoolState& pool : pools_) counters.add_kind(pool.counts);
}

// --- Placement.

// The lowest of the kIslandsLooked smallest free blocks that are large enough.
//
// Note [Low islands]: in memory of movable pages, a free block is a hole (smaller than a page) or
// an island. Holes are used by best fit. With best fit for islands too, blocks would spread over
// all islands, and in a program with varying sizes more and more pages would be used in small part.
// So requests take the lowest island, and the high ones become empty. Requests of many pages take
// the best fit: they fill their pages, and the lowest island would need many page moves.
Block* BlockHeap::lowest(const PoolState& pool, std::uint64_t rounded) {
  Block* low = nullptr;
  int looked = 0;
  pool.heap.for_each_from(rounded, [&](Block* block) {
    if (low == nullptr || block->offset < low->offset) low = block;
    return ++looked < kIslandsLooked;
  });
  return low;
}

// Given the best fit by (size, address). A block with growable addresses after it counts as large
// as it could become, so that such tails are used last; and oversize blocks are kept for oversize
// requests.
Block* BlockHeap::choose(const PoolState& pool, Block* block, std::uint64_t rounded,
                          bool grown) const {
  while (pool.rules.spare_tails && block->next != nullptr &&
         block->next->state == Block::State::kUnbacked) {
    Block* larger = pool.heap.find_after(block);
    if (larger == nullptr || room(larger) >= room(block)) break;
    block = larger;
  }
  const PoolRules& rules = pool.rules;
  if (block->size >= rules.page_bytes && rounded <= kLowPages * rules.page_bytes)
    return lowest(pool, rounded);
  if (rules.oversize == UINT64_MAX || grown) [[likely]] return block;
  if (rounded < rules.oversize && block->size >= rules.oversize) return nullptr;
  if (rounded >= rules.oversize && block->size >= rounded + rules.max_rounding) return nullptr;
  return block;
}

void* BlockHeap::extend(void* handle, std::size_t size_bytes) {
  auto* const block = static_cast<Block*>(handle);
  PoolState& pool = state_of(block);
  const std::uint64_t rounded = sizes_.round(size_bytes);
  const std::uint64_t above = BestFitHeap::free_above(block);
  if (rounded > block->size) {
    const bool stays_what_it_is = &state_of(sizes_.pool_for(rounded)) == &pool &&
                                  (rounded >= pool.rules.oversize) ==
                                      (block->size >= pool.rules.oversize);
    if (!stays_what_it_is || rounded > block->size + above) return nullptr;
  }
  counters.count_release(pool.counts, as_signed(block->size));
  counters.forget_requested(pool.counts, as_signed(block->requested));
  if (rounded > block->size)
    pool.heap.extend(block, pool.rules.cut.cuts(block->size + above, rounded)
                                ? rounded
                                : block->size + above);
  block->requested = size_bytes;
  counters.count_place(pool.counts, as_signed(block->size), as_signed(size_bytes));
  count_split(pool, Rests::kShrink);
  counters.publish_if_drifted();
  return block;
}

// --- Release.

void BlockHeap::release(void* handle) {
  auto* const block = static_cast<Block*>(handle);
  if (release_fast(block)) [[likely]] return;
  Counts& counts = state_of(block).counts;
  counters.count_release(counts, as_signed(block->size));
  count_oversize_release(state_of(block), block);
  counters.count_pending(counts, 1, as_signed(block->size));
  pending_.add(block);
}

void BlockHeap::add_remote_free(void* handle) {
  auto* const block = static_cast<Block*>(handle);
  push_remote_free(block, link_of(block));
}

bool BlockHeap::record_use(void* block, Stream stream) {
  pending_.record_use(static_cast<Block*>(block), stream);
  return true;
}

void BlockHeap::process_pending(bool wait) {
  pending_.process(wait, [&](Block* block) {
    PoolState& pool = state_of(block);
    counters.count_pending(pool.counts, -1, -as_signed(block->size));
    return_to_heap(pool, block);
  });
}

// --- Extents.

// One free block over all of the segment: backed, or addresses only if growable. The placement
// prefers low offsets: addresses, or those that rise with each extent.
void* BlockHeap::give(Extent& extent) {
  PoolState& pool = state_of(extent.pool);
  extent.size_bytes = extent.segment.size_bytes;
  if (!extent.growable && sizes_.settings != nullptr && sizes_.settings->oldest_segment_first)
    extent.shift = extent.origin;
  Block* const first =
      pool.heap.add_extent(reinterpret_cast<std::uintptr_t>(extent.segment.base) - extent.shift,
                           extent.size_bytes, !extent.growable);
  first->owner = &extent;
  pool.growable = extent.growable;
  count_whole(pool, first, +1);
  return first;
}

bool BlockHeap::withdraw(Extent& extent) {
  Block* const first = first_of(extent);
  if (!is_free(first) || !is_whole_extent(first)) return false;
  PoolState& pool = state_of(extent.pool);
  count_whole(pool, first, -1);
  pool.heap.remove_extent(first);
  count_split(pool, Rests::kMayGrow);
  return true;
}

// --- Questions.

std::uint64_t BlockHeap::largest_free() const {
  return std::max(heap(Pool::kSmall).largest_free(), heap(Pool::kLarge).largest_free());
}

// The layout offset: the pool in the highest bit, below it the place in the stream's range.
FrontHeap::BlockFacts BlockHeap::facts(void* handle) const {
  const auto* const block = static_cast<const Block*>(handle);
  const Extent* extent = extent_of(block);
  const std::uint64_t pool_bit = extent->pool == Pool::kSmall ? 0 : std::uint64_t{1} << 63;
  return {address_of(block), block->size, block->requested,
          pool_bit | (block->offset + extent->shift - extent->origin)};
}

void BlockHeap::for_each_block(const Extent& extent, const Visit& visit) const {
  for (Block* block = first_of(extent); block != nullptr; block = block->next)
    if (block->state != Block::State::kUnbacked)
      visit(block, *extent_of(block),
            block->state != Block::State::kUsed ? State::kInactive
            : pending_.contains(block)          ? State::kPendingFree
                                                : State::kActive);
}

void BlockHeap::check_placement() const {
  std::int64_t whole[kPools] = {};
  for (const auto& extent : extents()) {
    const Block* const first = first_of(*extent);
    TENON_CHECK(first->prev == nullptr, "an extent's first block has a neighbour below");
    const std::uint64_t base =
        reinterpret_cast<std::uintptr_t>(extent->segment.base) - extent->shift;
    std::uint64_t end = base;
    for (const Block* block = first; block != nullptr; block = block->next) {
      TENON_CHECK(block->offset == end, "blocks do not tile their extent at {}", block->offset);
      end += block->size;
    }
    TENON_CHECK(end == base + extent->size_bytes, "blocks do not fill their extent");
    whole[static_cast<int>(extent->pool)] +=
        !extent->growable && is_free(first) && is_whole_extent(first);
  }
  for (int p = 0; p < kPools; ++p) {
    pools_[p].heap.check_invariants();
    TENON_CHECK(whole[p] == pools_[p].whole_free_blocks, "whole free blocks: counted {}, found {}",
                pools_[p].whole_free_blocks, whole[p]);
  }
}

}  // namespace tenon
