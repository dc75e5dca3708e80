// What one stream has, for the policies that place by best fit: blocks in two pools.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/heap/best_fit_heap.h"
#include "tenon/memory/front/completion.h"
#include "tenon/memory/front/extent_heap.h"
#include "tenon/memory/front/pending_frees.h"
#include "tenon/memory/gpu/pytorch_rules.h"

namespace tenon {

// How a pool's blocks are cut and lent.
struct PoolRules {
  CutRules cut = {};
  std::uint64_t oversize = UINT64_MAX;      // from here on, blocks do not serve smaller requests
  std::uint64_t max_rounding = UINT64_MAX;  // how much larger such a block may be than its request
  bool spare_tails = true;  // blocks that could grow are used last
  // What fits nowhere in the pool goes into free memory of the large one, before either grows.
  bool borrows_of_large = false;
  // Pages of this size, from the extent's base on, are worth sparing: a block goes to that end of
  // its free block where it enters fewer of those that are wholly free. Note [Low islands]
  std::uint64_t page_bytes = UINT64_MAX;

  // Bytes beyond the last whole page.
  std::uint64_t over_page(std::uint64_t bytes) const {
    const std::uint64_t mask = page_bytes - 1;
    return (page_bytes & mask) == 0 ? bytes & mask : bytes % page_bytes;  // a division takes long
  }
};

// How requests become blocks: rounded up to 512 bytes or as the settings say, small and large ones
// from pools apart.
struct SizeRules {
  std::uint64_t round(std::uint64_t size_bytes) const {
    return is_plain ? align_up(size_bytes, kMinBlockSize) : settings->round_size(size_bytes);
  }
  Pool pool_for(std::uint64_t rounded) const {
    return rounded <= kSmallSize ? Pool::kSmall : Pool::kLarge;
  }

  const CachingSettings* settings = nullptr;
  bool is_plain = true;                    // sizes are rounded to 512 bytes and no finer
  bool has_one_pool = false;               // the large one, for small requests too
};

// Free to a policy: no block is in use there, and memory may be missing.
inline bool is_free(const Block* block) {
  return block != nullptr && block->state != Block::State::kUsed;
}

// The heap of one stream of these policies: blocks in extents, and blocks that wait for other
// streams. The policy maps and unmaps pages of a growable extent's free blocks through heap(); all
// extents of a pool are growable then. Everything requires its lock, but for what is static or says
// otherwise.
class BlockHeap final : public ExtentHeap {
 public:
  using Handle = Block*;

  // `events`: of blocks that other streams use.
  [[gnu::cold]] BlockHeap(DeviceAllocator& allocator, Stream stream, const SizeRules& sizes,
                          PendingFrees::Events events = PendingFrees::Events::kAtEachFree);

  BestFitHeap& heap(Pool pool) { return pools_[static_cast<int>(pool)].heap; }
  const BestFitHeap& heap(Pool pool) const { return pools_[static_cast<int>(pool)].heap; }
  PoolRules& rules(Pool pool) { return pools_[static_cast<int>(pool)].rules; }

  // Blocks in use of at least rules().oversize.
  Stat& oversize() { return oversize_; }

  // --- For the fast path (FastHeap).
  Block* place_fast(std::size_t size_bytes) { return find_place(size_bytes, false); }
  bool release_fast(Block* block);
  static Extent* extent_of(const Block* block) { return static_cast<Extent*>(block->owner); }
  static BlockHeap& heap_of(const Block* block) { return heap_of(*extent_of(block)); }
  static void* address_of(const Block* block) {
    return reinterpret_cast<void*>(block->offset + extent_of(block)->shift);
  }

  // --- For the front (FrontHeap).
  BlockFacts facts(void* block) const override;
  // Where the stream has just grown for the request, the rules on oversize blocks do not keep the
  // new one from it.
  void* place(std::size_t size_bytes, bool grown) override { return find_place(size_bytes, grown); }
  // It is reusable on this stream at once, unless other streams use it.
  [[gnu::noinline]] void release(void* block) override;
  [[gnu::cold]] void* extend(void* block, std::size_t size_bytes) override;
  void add_remote_free(void* block) override;
  void release_remote_frees() override { drain_remote_frees(*this); }
  static Block*& link_of(Block* block) { return block->link; }
  bool record_use(void* block, Stream stream) override;
  bool has_pending() const override { return pending_.is_due(); }
  void process_pending(bool wait) override;
  std::uint64_t largest_free() const override;

  // --- Extents.
  [[gnu::cold]] bool withdraw(Extent& extent) override;
  static BlockHeap& heap_of(const Extent& extent) { return static_cast<BlockHeap&>(*extent.heap); }
  // The lowest block: cuts and joins keep it in place.
  static Block* first_of(const Extent& extent) { return static_cast<Block*>(extent.first); }
  static bool is_whole_extent(const Block* block) {
    return block->prev == nullptr && block->next == nullptr;
  }
  // Those of the pool that no block lives in, by the size of their free block.
  std::vector<Extent*> free_extents(Pool pool) const {
    std::vector<Extent*> free;
    heap(pool).for_each_free([&](Block* block) {
      if (is_whole_extent(block)) free.push_back(extent_of(block));
    });
    return free;
  }

  // --- Numbers for what the stream has done.
  // Rises with every place and release. Needs no lock.
  std::uint64_t sequence() const { return completion_.now(); }
  // The same numbers with the stream's events, which are under the allocator's growth mutex.
  Completion& completion() { return completion_; }

 private:
  struct PoolState {
    BestFitHeap heap;
    PoolRules rules;
    bool growable = false;  // its extents are; then nothing counts as whole or as a split rest
    std::int64_t whole_free_blocks = 0;  // free blocks that are their whole extent
    std::int64_t whole_free_bytes = 0;
    Counts counts;
  };
  [[gnu::cold]] void* give(Extent& extent) override;
  [[gnu::cold]] void for_each_block(const Extent& extent, const Visit& visit) const override;
  [[gnu::cold]] void check_placement() const override;
  Pair active(Pool pool) const override {
    return pools_[static_cast<int>(pool)].counts.active();
  }
  PoolState& state_of(const Block* block) { return state_of(extent_of(block)->pool); }
  // What serves requests of the pool's sizes.
  PoolState& state_of(Pool pool) { return *states_[static_cast<int>(pool)]; }
  Block* find_place(std::size_t size_bytes, bool grown);
  [[gnu::cold]] Block* place_in_large(std::uint64_t requested, std::uint64_t rounded, bool grown);
  Block* place_in(PoolState& pool, std::uint64_t requested, std::uint64_t rounded, bool grown);
  static bool may_be_unfit(const PoolState& pool, const Block* block);
  Block* choose(const PoolState& pool, Block* block, std::uint64_t rounded, bool grown) const;
  static Block* lowest(const PoolState& pool, std::uint64_t rounded);
  static Block* cut_to(PoolState& pool, Block* block, std::uint64_t rounded);
  static bool back_spares_pages(const PoolRules& rules, const Block* block, std::uint64_t size);
  void return_to_heap(PoolState& pool, Block* block);
  static void count_whole(PoolState& pool, const Block* block, int direction);
  enum class Rests : bool { kMayGrow, kShrink };
  void count_split(PoolState& pool, Rests rests);
  void count_oversize_release(const PoolState& pool, const Block* block) {
    if (block->size >= pool.rules.oversize) [[unlikely]] oversize_.decrease(1);
  }

  const SizeRules sizes_;
  // As pointers: state_of loads one. To index pools_ instead, the compiler multiplies by
  // sizeof(PoolState) again at each use.
  PoolState* const states_[kPools] = {&pools_[sizes_.has_one_pool ? 1 : 0], &pools_[1]};
  Completion completion_;
  PendingFrees pending_;
  PoolState pools_[kPools];
  Stat oversize_;
};

// --- In the header because they are most of what an allocation costs.

inline bool BlockHeap::release_fast(Block* block) {
  if (PendingFrees::has_uses(block)) [[unlikely]] return false;
  PoolState& pool = state_of(block);
  counters.count_release(pool.counts, static_cast<std::int64_t>(block->size));
  count_oversize_release(pool, block);
  return_to_heap(pool, block);
  counters.publish_if_drifted();
  return true;
}

// Not inlined: `place` calls it too.
[[gnu::noinline]] inline Block* BlockHeap::find_place(std::size_t size_bytes, bool grown) {
  const std::uint64_t rounded = sizes_.round(size_bytes);
  PoolState& own = state_of(sizes_.pool_for(rounded));
  Block* const block = place_in(own, size_bytes, rounded, grown);
  if (block != nullptr || !own.rules.borrows_of_large) [[likely]] return block;
  return place_in_large(size_bytes, rounded, grown);
}

inline Block* BlockHeap::place_in_large(std::uint64_t requested, std::uint64_t rounded,
                                        bool grown) {
  return place_in(state_of(Pool::kLarge), requested, rounded, grown);
}

[[gnu::always_inline]] inline Block* BlockHeap::place_in(PoolState& pool, std::uint64_t requested,
                                                         std::uint64_t rounded, bool grown) {
  Block* block = pool.heap.find(rounded);
  if (block != nullptr && may_be_unfit(pool, block)) block = choose(pool, block, rounded, grown);
  if (block == nullptr) [[unlikely]] return nullptr;
  const bool was_whole = !pool.growable && is_whole_extent(block);
  const std::int64_t whole_bytes = static_cast<std::int64_t>(block->size);
  block = cut_to(pool, block, rounded);  // the last that may throw
  if (was_whole) {
    --pool.whole_free_blocks;
    pool.whole_free_bytes -= whole_bytes;
  }
  if (block->size >= pool.rules.oversize) [[unlikely]] oversize_.increase(1);
  block->requested = requested;
  completion_.advance();
  counters.count_place(pool.counts, static_cast<std::int64_t>(block->size),
                       static_cast<std::int64_t>(requested));
  count_split(pool, was_whole ? Rests::kMayGrow : Rests::kShrink);
  counters.publish_if_drifted();
  return block;
}

// Whether more than best fit decides if the block is the one.
inline bool BlockHeap::may_be_unfit(const PoolState& pool, const Block* block) {
  const PoolRules& rules = pool.rules;
  return rules.oversize != UINT64_MAX || block->size >= rules.page_bytes ||
         (rules.spare_tails && block->next != nullptr &&
          block->next->state == Block::State::kUnbacked);
}

// Takes `rounded` bytes of a free block, or all of it where the rest would be too small.
inline Block* BlockHeap::cut_to(PoolState& pool, Block* block, std::uint64_t rounded) {
  const PoolRules& rules = pool.rules;
  if (!rules.cut.cuts(block->size, rounded)) {
    pool.heap.take(block);
    return block;
  }
  if (block->size >= rules.page_bytes && back_spares_pages(rules, block, rounded))
    return pool.heap.take_back(block, rounded);
  pool.heap.take_front(block, rounded);
  return block;
}

// Whether the back of a free block of at least a page is the better place for `size` bytes.
//
//   block:   ..|   page   |   page   |.....     a small block goes to the back: no page is entered
inline bool BlockHeap::back_spares_pages(const PoolRules& rules, const Block* block,
                                         std::uint64_t size) {
  const auto base = reinterpret_cast<std::uintptr_t>(extent_of(block)->segment.base);
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

inline void BlockHeap::return_to_heap(PoolState& pool, Block* block) {
  counters.forget_requested(pool.counts, static_cast<std::int64_t>(block->requested));
  block->requested = completion_.advance();
  const Block* merged = pool.heap.release(block);
  count_whole(pool, merged, +1);
  count_split(pool, Rests::kMayGrow);
}

// Where a free block that is its whole extent came (+1) or went (-1).
inline void BlockHeap::count_whole(PoolState& pool, const Block* block, int direction) {
  if (pool.growable || !is_whole_extent(block)) return;
  pool.whole_free_blocks += direction;
  pool.whole_free_bytes += direction * static_cast<std::int64_t>(block->size);
}

// Free blocks that share their segment with others. PyTorch does not count growable segments here.
inline void BlockHeap::count_split(PoolState& pool, Rests rests) {
  if (pool.growable) return;
  const auto blocks = static_cast<std::int64_t>(pool.heap.free_blocks()) - pool.whole_free_blocks;
  const auto bytes = static_cast<std::int64_t>(pool.heap.free_bytes()) - pool.whole_free_bytes;
  if (rests == Rests::kShrink)
    counters.lower_split(pool.counts, blocks, bytes);
  else
    counters.set_split(pool.counts, blocks, bytes);
}

}  // namespace tenon
