#include "tenon/memory/stream_ordered/stream_heap.h"

#include <algorithm>

#include "tenon/base/byte_size.h"
#include "tenon/base/check.h"
#include "tenon/memory/stream_ordered/stream_ordered_allocator.h"

namespace tenon {
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

// What a growable extent counts for in layout offsets, however many addresses the device gave.
constexpr std::uint64_t kGrowableLayout = 8 * kTiB;

}  // namespace

StreamHeap::StreamHeap(StreamOrderedAllocator& allocator, Stream stream)
    : allocator_(&allocator), backend_(allocator.backend()), stream_(stream) {
  for (PoolState& pool : pools_) counters_.add_pool(pool.counts);
}

// ------------------------------------------------------------------------------------------------
// The common path

Block* StreamHeap::place(Pool pool, std::uint64_t requested, std::uint64_t rounded, bool grown) {
  return place_in(state_of(pool), requested, rounded, grown);
}

void StreamHeap::close_door_slowly() {
  Block* const block = std::exchange(door_, nullptr);
  const bool inside = std::exchange(waiting_, 0) != 0;
  if (passed_ != 0) count_passed(block);
  if (inside) release(block);
}

// The counters as they would be had the block been freed and placed again each time: the rests
// beside it would have joined with it and been cut off again.
void StreamHeap::count_passed(const Block* block) {
  PoolState& pool = state_of(block);
  const auto is_free = [](const Block* other) {
    return other != nullptr && other->state == Block::State::kFree;
  };
  std::int64_t rests = 0;
  std::int64_t rest_bytes = 0;
  for (const Block* beside : {block->prev, block->next})
    if (is_free(beside)) {
      rests += 1;
      rest_bytes += as_signed(beside->size);
    }
  const bool reaches_begin =
      block->prev == nullptr || (is_free(block->prev) && block->prev->prev == nullptr);
  const bool reaches_end =
      block->next == nullptr || (is_free(block->next) && block->next->next == nullptr);
  // Free, it would be a rest of its extent, with those beside it; or the whole extent, and none.
  const bool whole = reaches_begin && reaches_end;
  std::int64_t more_rests = whole ? -rests : 1 - rests;
  std::int64_t more_bytes = whole ? -rest_bytes : as_signed(block->size);
  if (pool.growable) more_rests = more_bytes = 0;
  counters_.count_passed(pool.counts, std::exchange(passed_, 0), as_signed(block->size),
                         as_signed(block->requested), more_rests, more_bytes);
}

// The lowest of the free blocks that are large enough; of many, of the smaller ones.
//
// Note [Low islands]: where memory comes in pages that move, what is free consists of holes,
// smaller than a page, and of islands. Holes serve by best fit. Were islands to do so too, blocks
// would come to lie in all of them, and with every round of a program whose sizes vary more pages
// would be in use for a small part. So the lowest island serves, and the high ones empty
// themselves. Requests of many pages take the best fit all the same: they fill their pages, and to
// have the lowest would move many.
Block* StreamHeap::lowest(const PoolState& pool, std::uint64_t rounded) {
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
Block* StreamHeap::choose(const PoolState& pool, Block* block, std::uint64_t rounded,
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
  if (rules.max_split == UINT64_MAX || grown) [[likely]] return block;
  if (rounded < rules.max_split && block->size >= rules.max_split) return nullptr;
  if (rounded >= rules.max_split && block->size >= rounded + rules.max_rounding) return nullptr;
  return block;
}

void StreamHeap::release(Block* block) {
  if (block->flags & kUsedElsewhere) [[unlikely]] {
    defer_release(block);
    return;
  }
  PoolState& pool = state_of(block);
  counters_.count_release(pool.counts, as_signed(block->size));
  return_to_heap(pool, block);
  publish_if_drifted();
}

// ------------------------------------------------------------------------------------------------
// Other threads. Note [Biased heaps]
//
// A heap belongs to the thread that last allocated from it. Only that thread takes the heap's lock
// on the common path, so the lock is never contended there: one exchange. Another thread that frees
// a block pushes it onto remote_frees_ (a Treiber stack) without the lock; the owner takes the
// whole list at its next allocation. Growing, trimming and statistics do lock the heaps of other
// threads, one at a time, in order of stream id.

void StreamHeap::push_remote_free(Block* block) {
  Block* head = remote_frees_.load(std::memory_order_relaxed);
  do {
    block->link = head;
  } while (!remote_frees_.compare_exchange_weak(head, block, std::memory_order_release,
                                                std::memory_order_relaxed));
}

void StreamHeap::drain_remote_frees() {
  Block* block = remote_frees_.exchange(nullptr, std::memory_order_acquire);
  Block* in_order = nullptr;  // the stack gives the last first; free in the order they came
  while (block != nullptr) {
    Block* next = block->link;
    block->link = in_order;
    in_order = block;
    block = next;
  }
  while (in_order != nullptr) {
    Block* next = in_order->link;
    release(in_order);
    in_order = next;
  }
}

// ------------------------------------------------------------------------------------------------
// Other streams

void StreamHeap::record_use(Block* block, Stream stream) {
  if (stream == stream_) return;
  std::vector<Stream>& streams = uses_[block];
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  block->flags = block->flags | kUsedElsewhere;
}

// The block stays out of the heap until an event on each stream that used it has completed.
void StreamHeap::defer_release(Block* block) {
  const auto uses = uses_.find(block);
  PendingFree pending{block, std::move(uses->second), {}};
  uses_.erase(uses);
  mark_uses(pending);
  block->flags = block->flags & ~kUsedElsewhere;
  Counts& counts = state_of(block).counts;
  counters_.count_release(counts, as_signed(block->size));
  counters_.count_pending(counts, 1, as_signed(block->size));
  pending_.push_back(std::move(pending));
}

// Records an event on each stream that used the block. False when the driver would not: a free is
// no place to fail, and an event recorded later covers the same work, so the block waits for that.
bool StreamHeap::mark_uses(PendingFree& pending) {
  try {
    for (; !pending.unmarked.empty(); pending.unmarked.pop_back())
      pending.events.push_back(backend_.record(pending.unmarked.back()));
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

void StreamHeap::process_pending(bool wait) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (!it->unmarked.empty() && !mark_uses(*it)) {
      if (!wait) {
        ++it;
        continue;
      }
      backend_.synchronize();  // the stream may be gone
      it->unmarked.clear();
    }
    std::vector<Event>& events = it->events;
    while (!events.empty()) {
      if (wait)
        backend_.wait(events.back());
      else if (!backend_.query(events.back()))
        break;
      backend_.destroy_event(events.back());
      events.pop_back();
    }
    if (!events.empty()) {
      ++it;
      continue;
    }
    Block* block = it->block;
    it = pending_.erase(it);
    PoolState& pool = state_of(block);
    counters_.count_pending(pool.counts, -1, -as_signed(block->size));
    return_to_heap(pool, block);
  }
}

// ------------------------------------------------------------------------------------------------
// Extents

Extent* StreamHeap::add_extent(Pool which, const Segment& segment, bool growable) {
  PoolState& pool = state_of(which);
  extents_.push_back(std::make_unique<Extent>());
  Extent* extent = extents_.back().get();
  extent->heap = this;
  extent->pool = which;
  extent->segment = segment;
  extent->growable = growable;
  extent->layout_base = layout_end_;
  layout_end_ += growable ? kGrowableLayout : segment.size_bytes;
  extent->first = pool.heap.add_extent(reinterpret_cast<std::uintptr_t>(segment.base),
                                       segment.size_bytes, !growable);
  extent->first->owner = extent;
  pool.growable = growable;
  count_whole(pool, extent->first, +1);
  return extent;
}

Segment StreamHeap::remove_extent(Extent* extent) {
  PoolState& pool = state_of(extent->pool);
  count_whole(pool, extent->first, -1);
  pool.heap.remove_extent(extent->first);
  const Segment segment = extent->segment;
  extents_.erase(std::find_if(extents_.begin(), extents_.end(),
                              [&](const auto& held) { return held.get() == extent; }));
  count_split(pool, Rests::kMayGrow);
  return segment;
}

// ------------------------------------------------------------------------------------------------
// Accounts

void StreamHeap::add_stats(AllocatorStats& out) const {
  counters_.both().add_to(out, StatPool::kAll);
  state_of(Pool::kSmall).counts.told().add_to(out, StatPool::kSmall);
  state_of(Pool::kLarge).counts.told().add_to(out, StatPool::kLarge);
}

StreamHeap::Board::Levels StreamHeap::levels() const {
  Board::Levels out = {};
  const Counts* const counts[] = {&counters_.of_both(), &pools_[0].counts, &pools_[1].counts};
  for (const std::size_t i : {0, 1, 2}) {
    out[i] = counts[i]->used.current();
    out[3 + i] = counts[i]->active();
  }
  out[6][0] = counts[0]->requested.current();
  out[7] = Pair{counts[1]->requested.current(), counts[2]->requested.current()};
  return out;
}

StreamHeap::Board::Levels StreamHeap::peak_levels() const {
  Board::Levels out = {};
  const Counts* const counts[] = {&counters_.of_both(), &pools_[0].counts, &pools_[1].counts};
  for (const std::size_t i : {0, 1, 2}) {
    out[i] = counts[i]->used.peak;
    out[3 + i] = counts[i]->highest_active();
  }
  out[6][0] = counts[0]->requested.peak;
  out[7] = Pair{counts[1]->requested.peak, counts[2]->requested.peak};
  return out;
}

void StreamHeap::join_board(Board* board) {
  if (board_ != nullptr) return;
  board_ = board;
  publish();
}

void StreamHeap::publish() {
  if (board_ == nullptr) return;
  const Board::Levels now = levels();
  allowed_drift_ = board_->publish(published_, now);
  published_ = now;
}

void StreamHeap::add_snapshot(std::vector<SegmentInfo>& out) const {
  std::vector<const Block*> waiting;
  for (const PendingFree& pending : pending_) waiting.push_back(pending.block);
  for (const auto& extent : extents_) {
    bool open = false;
    for (const Block* block = extent->first; block != nullptr; block = block->next) {
      if (block->state == Block::State::kUnbacked) {
        open = false;
        continue;
      }
      if (!open)
        out.push_back(
            {block->offset, 0, stream_, extent->pool == Pool::kSmall, extent->growable, {}});
      open = true;
      BlockInfo info{block->offset, block->size, 0, BlockInfo::State::kInactive};
      if (block->state == Block::State::kUsed) {
        const bool pending = std::find(waiting.begin(), waiting.end(), block) != waiting.end();
        info.state = pending ? BlockInfo::State::kPendingFree : BlockInfo::State::kActive;
        info.requested_bytes = block->requested;
      }
      out.back().size_bytes += block->size;
      out.back().blocks.push_back(info);
    }
  }
}

// Recounts everything from the blocks themselves.
void StreamHeap::check_invariants() const {
  std::int64_t used[kPools] = {}, used_bytes[kPools] = {}, whole[kPools] = {};
  for (const auto& extent : extents_) {
    const int p = static_cast<int>(extent->pool);
    TENON_CHECK(extent->first->prev == nullptr, "an extent's first block has a neighbour below");
    std::uint64_t end = reinterpret_cast<std::uintptr_t>(extent->segment.base);
    for (const Block* block = extent->first; block != nullptr; block = block->next) {
      TENON_CHECK(block->owner == extent.get(), "a block belongs to the wrong extent");
      TENON_CHECK(block->offset == end, "blocks do not tile their extent at {}", block->offset);
      end += block->size;
      if (block->state == Block::State::kUsed) {
        ++used[p];
        used_bytes[p] += as_signed(block->size);
      } else if (!extent->growable && is_whole_extent(block)) {
        ++whole[p];
      }
    }
    TENON_CHECK(end == reinterpret_cast<std::uintptr_t>(extent->segment.base) +
                           extent->segment.size_bytes, "blocks do not fill their extent");
  }
  for (int p = 0; p < kPools; ++p) {
    const PoolState& pool = pools_[p];
    pool.heap.check_invariants();
    const PoolCounters c = pool.counts.told();
    TENON_CHECK(whole[p] == pool.whole_free_blocks, "whole free blocks: counted {}, found {}",
                pool.whole_free_blocks, whole[p]);
    TENON_CHECK(used[p] == c.allocation.current + c.pending, "blocks in use: counted {}, found {}",
                c.allocation.current + c.pending, used[p]);
    TENON_CHECK(used_bytes[p] == c.allocated_bytes.current + c.pending_bytes,
                "bytes in use: counted {}, found {}", c.allocated_bytes.current + c.pending_bytes,
                used_bytes[p]);
  }
}

}  // namespace tenon
