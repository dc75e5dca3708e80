// What one stream owns of one device: its free blocks, and the accounts of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tenon/base/biased_lock.h"
#include "tenon/device/backend.h"
#include "tenon/heap/best_fit_heap.h"
#include "tenon/memory/stats.h"
#include "tenon/memory/stream_ordered/counters.h"
#include "tenon/memory/stream_ordered/extent.h"
#include "tenon/memory/peak_board.h"

namespace tenon {

class StreamOrderedAllocator;
struct SegmentInfo;

// How a pool's blocks are cut and lent.
struct PoolRules {
  std::uint64_t min_rest = 512;       // a smaller rest stays with its block
  std::uint64_t max_split = UINT64_MAX;     // from here on, blocks are not cut or lent to smaller
  std::uint64_t max_rounding = UINT64_MAX;  // how much larger such a block may be than its request
  bool spare_tails = true;  // blocks that could grow are used last
  // A block goes to that end of its free block where it enters fewer of the pages that are wholly
  // free, each this large, counted from the extent's base.
  std::uint64_t page_bytes = UINT64_MAX;

  // Bytes beyond the last whole page.
  std::uint64_t over_page(std::uint64_t bytes) const {
    const std::uint64_t mask = page_bytes - 1;
    return (page_bytes & mask) == 0 ? bytes & mask : bytes % page_bytes;  // a division takes long
  }
};

// The heap of one (device, stream): two best-fit heaps, blocks that wait for other streams, and
// frees from other threads. See Note [Biased heaps].
//
// All members but push_remote_free and is_owned_by_this_thread require a Lock. It is a leaf:
// nothing else is locked while it is held, except the backend's and the peak board's own locks.
//
// Note [at once]: nearly all calls come from the one thread that works on the stream, find the door
// closed or their own block in it, and nothing else waits to be done. For them the allocator tries
// place_at_once and release_at_once: as little code as there can be, in one piece, that gives what
// place and release would. Whatever is out of the ordinary takes the steps one by one.
//
// Note [the revolving door]: a temporary is made and dropped, and the next request is the same.
// When the block that was placed last is freed before anything else happened to the heap, freeing
// it would bring back the very state that it was placed in, and the same request would place it
// there again. So the block waits in the door: the same request takes it out, and whatever else
// comes closes the door first, which frees it truly. Figures and layout are what they would have
// been. The door opens when the same was freed and requested kRepeats times in a row: where nothing
// repeats, branches that cannot be foretold would cost more than it saves.
class StreamHeap {
 public:
  // Blocks and bytes of all, small, large; of the active ones of each; requested bytes of all (and
  // 0), of small and large.
  using Board = PeakBoard<8>;

  // Holds the heap's lock, with the door closed unless it is to be left as it is.
  enum class Door : bool { kClosed, kAsItIs };
  class Lock {
   public:
    explicit Lock(StreamHeap& heap, Door door = Door::kClosed) : guard_(heap.lock_) {
      if (door == Door::kClosed) heap.close_door();
    }

   private:
    const BiasedGuard guard_;
  };

  StreamHeap(StreamOrderedAllocator& allocator, Stream stream);
  StreamHeap(const StreamHeap&) = delete;
  StreamHeap& operator=(const StreamHeap&) = delete;

  StreamOrderedAllocator* allocator() const { return allocator_; }
  Stream stream() const { return stream_; }
  BestFitHeap& heap(Pool pool) { return pools_[static_cast<int>(pool)].heap; }
  const BestFitHeap& heap(Pool pool) const { return pools_[static_cast<int>(pool)].heap; }
  PoolRules& rules(Pool pool) { return pools_[static_cast<int>(pool)].rules; }

  // --- The common path. Note [at once]
  // Without a Lock: locks by itself, as the heap's usual thread alone can.
  // A block of at least `rounded` bytes; or null without any effect: then take a Lock and place.
  Block* place_at_once(Pool pool, std::uint64_t requested, std::uint64_t rounded);
  // Returns false without any effect: then free the block by steps.
  bool release_at_once(Block* block);

  // --- The door. With a Lock that leaves it as it is.
  // The block that waits, if it was requested by the same number of bytes and there is nothing else
  // to do for the heap; or null.
  Block* pass_again(std::uint64_t requested) {
    if (waiting_ != requested || has_remote_frees() || has_pending()) return nullptr;
    waiting_ = 0;
    ++passed_;
    next_sequence();
    return door_;
  }
  // True when the block is the one that was let out last; now it is inside again.
  bool come_back(const Block* block) {
    if (block != door_) return false;
    waiting_ = block->requested;
    next_sequence();
    return true;
  }
  // What is inside is freed; what is out will be when it comes.
  void close_door() {
    if (door_ != nullptr) close_door_slowly();
  }

  // --- By steps.
  // A block of at least `rounded` bytes from what the stream has, or null. Where the stream has
  // just grown for this request, the rules on oversize blocks do not keep the new one from it.
  Block* place(Pool pool, std::uint64_t requested, std::uint64_t rounded, bool grown);
  // The block comes back; reusable on this stream at once.
  void release(Block* block);

  // --- Other threads.
  void adopt() { owner_.store(thread_mark(), std::memory_order_relaxed); }
  bool is_owned_by_this_thread() const {
    return owner_.load(std::memory_order_relaxed) == thread_mark();
  }
  // The only way for another thread to free a block; takes no lock.
  void push_remote_free(Block* block);
  void drain_remote_frees();
  bool has_remote_frees() const {
    return remote_frees_.load(std::memory_order_relaxed) != nullptr;
  }

  // --- Other streams.
  void record_use(Block* block, Stream stream);
  // Releases the blocks whose uses on other streams are over; waits for all of them if `wait`.
  void process_pending(bool wait);
  bool has_pending() const { return !pending_.empty(); }

  // --- Extents.
  // Adds an extent as one free block: backed, or addresses only if growable. A pool's extents are
  // all of one sort. In growable ones the policy maps and unmaps pages of free blocks through
  // heap().
  Extent* add_extent(Pool pool, const Segment& segment, bool growable);
  // Requires: the extent is wholly free. Returns its segment.
  Segment remove_extent(Extent* extent);
  const std::vector<std::unique_ptr<Extent>>& extents() const { return extents_; }
  static bool is_whole_extent(const Block* block) {
    return block->prev == nullptr && block->next == nullptr;
  }

  // --- Accounts.
  // Rises with every place and release. Needs no lock: work that was queued before a number was
  // given is queued before whatever is queued by who has read the number.
  std::uint64_t sequence() const { return sequence_.load(std::memory_order_acquire); }
  // A new number: an event recorded for an earlier one does not cover what was queued since.
  std::uint64_t advance() { return next_sequence(); }
  // Adds currents and totals; peaks are this heap's own.
  void add_stats(AllocatorStats& out) const;
  void reset_peaks() { counters_.reset_peaks(); }
  std::int64_t allocated_bytes() const { return counters_.allocated_bytes(); }
  std::int64_t peak_allocated_bytes() const { return counters_.peak_allocated_bytes(); }
  // From now on peaks are shared with other heaps.
  void join_board(Board* board);
  void publish();
  Board::Levels levels() const;
  Board::Levels peak_levels() const;
  // One SegmentInfo for each extent; for growable ones, one for each run of backed blocks.
  void add_snapshot(std::vector<SegmentInfo>& out) const;
  void check_invariants() const;

 private:
  struct PoolState {
    BestFitHeap heap;
    PoolRules rules;
    bool growable = false;  // its extents are; then nothing counts as whole or as a split rest
    std::int64_t whole_free_blocks = 0;  // free blocks that are their whole extent
    std::int64_t whole_free_bytes = 0;
    Counts counts;
  };
  struct PendingFree {
    Block* block;
    std::vector<Stream> unmarked;  // streams that used it and have no event for that yet
    std::vector<Event> events;
  };

  void publish_if_drifted() {
    if (board_ == nullptr) [[likely]] return;
    const std::int64_t drift = counters_.allocated_bytes() - published_[0][1];
    if (drift >= allowed_drift_ || -drift >= allowed_drift_) publish();
  }

  PoolState& state_of(const Block* block) {
    return state_of(static_cast<const Extent*>(block->owner)->pool);
  }
  PoolState& state_of(Pool pool) { return *states_[static_cast<int>(pool)]; }
  const PoolState& state_of(Pool pool) const { return *states_[static_cast<int>(pool)]; }
  std::uint64_t next_sequence() {
    const std::uint64_t next = sequence_.load(std::memory_order_relaxed) + 1;
    sequence_.store(next, std::memory_order_release);
    return next;
  }
  void close_door_slowly();
  void count_passed(const Block* block);
  Block* place_in(PoolState& pool, std::uint64_t requested, std::uint64_t rounded, bool grown);
  static bool may_be_unfit(const PoolState& pool, const Block* block);
  Block* choose(const PoolState& pool, Block* block, std::uint64_t rounded, bool grown) const;
  static Block* cut_to(PoolState& pool, Block* block, std::uint64_t rounded);
  static bool back_spares_pages(const PoolRules& rules, const Block* block, std::uint64_t size);
  void return_to_heap(PoolState& pool, Block* block);
  void defer_release(Block* block);
  bool mark_uses(PendingFree& pending);
  static bool count_whole(PoolState& pool, const Block* block, int direction);
  enum class Rests : bool { kMayGrow, kShrink };
  void count_split(PoolState& pool, Rests rests);

  static constexpr std::uint8_t kUsedElsewhere = 1;  // Block::flags: in uses_

  BiasedLock lock_;
  static constexpr std::uint32_t kRepeats = 4;
  std::uint64_t freed_request_ = 0;  // bytes that the block freed last was requested by
  std::uint32_t repeats_ = 0;        // how often in a row the next request was the same
  Block* door_ = nullptr;       // the block that was placed last; null: the door is closed
  std::uint64_t waiting_ = 0;   // bytes it was requested by, while it is inside
  std::int64_t passed_ = 0;     // times that the counters were not told of
  StreamOrderedAllocator* const allocator_;
  Backend& backend_;
  const Stream stream_;
  std::atomic<const void*> owner_{nullptr};
  // A pointer to each of the pools: a compiler that knows the distance between them would rather
  // multiply it again than keep the outcome.
  PoolState* const states_[kPools] = {&pools_[0], &pools_[1]};
  HeapCounters counters_;
  std::atomic<std::uint64_t> sequence_{0};  // written under the lock
  PoolState pools_[kPools];

  Board* board_ = nullptr;  // null while this is the only heap
  Board::Levels published_ = {};
  std::int64_t allowed_drift_ = 0;

  std::vector<std::unique_ptr<Extent>> extents_;
  std::uint64_t layout_end_ = 0;  // sum of the sizes of all extents ever added

  std::unordered_map<const Block*, std::vector<Stream>> uses_;
  std::deque<PendingFree> pending_;
  alignas(64) std::atomic<Block*> remote_frees_{nullptr};
};

// ------------------------------------------------------------------------------------------------
// In the header because they are most of what an allocation costs.

inline Block* StreamHeap::place_at_once(Pool which, std::uint64_t requested,
                                        std::uint64_t rounded) {
  if (!lock_.try_lock_as_owner()) [[unlikely]] return nullptr;
  Block* block = nullptr;
  if (door_ == nullptr && !has_remote_frees() && !has_pending()) [[likely]] {
    adopt();
    block = place_in(state_of(which), requested, rounded, false);
  } else {
    block = pass_again(requested);
  }
  lock_.unlock_as_owner();
  return block;
}

inline bool StreamHeap::release_at_once(Block* block) {
  if (!lock_.try_lock_as_owner()) [[unlikely]] return false;
  bool done = true;
  if (door_ == nullptr && (block->flags & kUsedElsewhere) == 0) [[likely]] {
    PoolState& pool = state_of(block);
    counters_.count_release(pool.counts, static_cast<std::int64_t>(block->size));
    return_to_heap(pool, block);
    publish_if_drifted();
  } else {
    done = come_back(block);
  }
  lock_.unlock_as_owner();
  return done;
}

[[gnu::always_inline]] inline Block* StreamHeap::place_in(PoolState& pool,
                                                         std::uint64_t requested,
                                                         std::uint64_t rounded, bool grown) {
  Block* block = pool.heap.find(rounded);
  if (block != nullptr && may_be_unfit(pool, block)) block = choose(pool, block, rounded, grown);
  if (block == nullptr) [[unlikely]] return nullptr;
  const bool was_whole = count_whole(pool, block, -1);
  block = cut_to(pool, block, rounded);
  block->requested = requested;
  next_sequence();
  counters_.count_place(pool.counts, static_cast<std::int64_t>(block->size),
                        static_cast<std::int64_t>(requested));
  count_split(pool, was_whole ? Rests::kMayGrow : Rests::kShrink);
  publish_if_drifted();
  repeats_ = requested == freed_request_ ? repeats_ + 1 : 0;
  door_ = repeats_ >= kRepeats ? block : nullptr;
  return block;
}

// Whether more than best fit decides if the block is the one.
inline bool StreamHeap::may_be_unfit(const PoolState& pool, const Block* block) {
  const PoolRules& rules = pool.rules;
  return rules.max_split != UINT64_MAX ||
         (rules.spare_tails && block->next != nullptr &&
          block->next->state == Block::State::kUnbacked);
}

// Takes `rounded` bytes of a free block, or all of it where the rest would be too small.
inline Block* StreamHeap::cut_to(PoolState& pool, Block* block, std::uint64_t rounded) {
  const PoolRules& rules = pool.rules;
  const std::uint64_t rest = block->size - rounded;
  if (rest < rules.min_rest || rounded >= rules.max_split) {
    pool.heap.take(block);
    return block;
  }
  if (block->size >= rules.page_bytes && back_spares_pages(rules, block, rounded))
    return pool.heap.take_back(block, rounded);
  pool.heap.take_front(block, rounded);
  return block;
}

// Whether the back of a free block of at least a page is the better place for `size` bytes: fewer
// of the pages wholly inside the block would be entered than at its front.
//
//   block:   ..|   page   |   page   |.....     a small block goes to the back: no page is entered
inline bool StreamHeap::back_spares_pages(const PoolRules& rules, const Block* block,
                                          std::uint64_t size) {
  const auto base = reinterpret_cast<std::uintptr_t>(
      static_cast<const Extent*>(block->owner)->segment.base);
  // What is left of the used pages at either end.
  const std::uint64_t after_first = rules.over_page(block->offset - base);
  const std::uint64_t front = after_first == 0 ? 0 : rules.page_bytes - after_first;
  const std::uint64_t back = rules.over_page(block->offset - base + block->size);
  // Bytes of pages that the block enters when it reaches beyond that.
  const auto entered = [&](std::uint64_t edge) {
    const std::uint64_t up = size - edge + rules.page_bytes - 1;
    return size <= edge ? 0 : up - rules.over_page(up);
  };
  return front + back < block->size && entered(back) < entered(front);
}

inline void StreamHeap::return_to_heap(PoolState& pool, Block* block) {
  freed_request_ = block->requested;
  counters_.forget_requested(pool.counts, static_cast<std::int64_t>(freed_request_));
  block->requested = next_sequence();
  const Block* merged = pool.heap.release(block);
  count_whole(pool, merged, +1);
  count_split(pool, Rests::kMayGrow);
}

// A free block that is its whole extent came (+1) or went (-1). True when it was one.
inline bool StreamHeap::count_whole(PoolState& pool, const Block* block, int direction) {
  if (pool.growable || !is_whole_extent(block)) return false;
  pool.whole_free_blocks += direction;
  pool.whole_free_bytes += direction * static_cast<std::int64_t>(block->size);
  return true;
}

// Free blocks that share their segment with others. PyTorch does not count growable segments here.
inline void StreamHeap::count_split(PoolState& pool, Rests rests) {
  if (pool.growable) return;
  const auto blocks = static_cast<std::int64_t>(pool.heap.free_blocks()) - pool.whole_free_blocks;
  const auto bytes = static_cast<std::int64_t>(pool.heap.free_bytes()) - pool.whole_free_bytes;
  if (rests == Rests::kShrink)
    counters_.lower_split(pool.counts, blocks, bytes);
  else
    counters_.set_split(pool.counts, blocks, bytes);
}

}  // namespace tenon
