// Best fit over extents, with splitting and coalescing: the placement behind most policies.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "tenon/base/check.h"
#include "tenon/base/slab.h"
#include "tenon/heap/block.h"
#include "tenon/heap/size_index.h"

namespace tenon {

// Places blocks inside extents. Blocks are kept by address (links) and, while free, by
// (size, address) (SizeIndex). Coalescing never crosses an extent's border, even when two extents
// happen to be adjacent.
//
// A free block is either backed (memory behind all of it: State::kFree) or unbacked (addresses
// only: State::kUnbacked). Neighbours merge only when they are alike. The policy says where the
// pages are (add_extent, back, unback), and the heap touches no memory.
//
// Invariants (check_invariants):
//   1. An extent's blocks tile it: each ends where its `next` begins.
//   2. No two free neighbours are alike.
//   3. Exactly the backed free blocks are in the size index; free_bytes() is their sum and
//      free_blocks() their number. Exactly the unbacked blocks are in unbacked().
//
// place, release, split, back, unback: O(log n). Deterministic: the same calls give the same
// offsets. Not thread-safe. Metadata of each block, apart from the memory it describes: a Block of
// 64 bytes, and 128 bytes reserved for the index. Those are untouched until a bin holds dozens.
//
// release allocates nothing: what a free block may need was reserved when the block was made. Cuts
// and placements of backed blocks throw std::bad_alloc with nothing changed, and changes of backing
// allocate nothing after reserve_cuts.
class BestFitHeap {
 public:
  // As the concept Heap asks (heap.h).
  using Handle = Block*;
  static std::uint64_t offset_of(Handle block) { return block->offset; }
  static std::uint64_t size_of(Handle block) { return block->size; }

  // Lowest offset first.
  struct ByOffset {
    // Whether a lies below b.
    bool operator()(const Block* a, const Block* b) const { return a->offset < b->offset; }
  };
  // Free blocks of one room, lowest first.
  using BlocksByOffset = std::set<Block*, ByOffset>;

  BestFitHeap() = default;
  [[gnu::cold]] ~BestFitHeap();
  BestFitHeap(const BestFitHeap&) = delete;
  BestFitHeap& operator=(const BestFitHeap&) = delete;

  // A new extent as one free block, backed or not. Extents must not overlap (not checked).
  [[gnu::cold]] Block* add_extent(std::uint64_t offset, std::uint64_t size, bool backed = true);
  // Requires: the block is free and is its whole extent.
  [[gnu::cold]] void remove_extent(Block* block);

  // The best-fitting backed block, cut to `size`: a rest of at least `min_rest` bytes stays free, a
  // smaller one stays with the block. Null when nothing fits. If the smallest block that is large
  // enough cannot hold the size aligned, takes the smallest that can at any address. Without one,
  // tries the sizes in between one by one, so null means that none fits. Requires: size > 0;
  // alignment is a power of two.
  Block* place(std::uint64_t size, std::uint64_t alignment = 1, std::uint64_t min_rest = 1);

  // Makes a used block free (backed) and merges it with its neighbours; returns the result, whose
  // stamp (Block::requested) is the released block's.
  Block* release(Block* block);

  // --- The steps of place, for policies with rules of their own.
  // The smallest backed free block of at least `size`, lowest offset among equals; not taken.
  Block* find(std::uint64_t size) const { return index_.find(size); }
  Block* find_after(const Block* block) const { return index_.after(block); }
  // Visits the backed free blocks of at least `size`, smallest first, while the visitor says true.
  template <typename Visit>
  void for_each_from(std::uint64_t size, Visit&& visit) const {
    index_.for_each_from(size, visit);
  }
  // Marks a free block used. Its neighbours stay.
  void take(Block* block);
  // Takes the first `size` bytes of a free backed block; the rest stays free. Requires: 0 < size <
  // block->size.
  void take_front(Block* block, std::uint64_t size);
  // The same with the last `size` bytes; returns them.
  Block* take_back(Block* block, std::uint64_t size);
  // Makes a used block `size` bytes long, with what is free (backed) above it. Requires:
  // block->size < size <= block->size + free_above(block).
  void extend(Block* block, std::uint64_t size);
  static std::uint64_t free_above(const Block* block) {
    const Block* above = block->next;
    return above != nullptr && above->state == Block::State::kFree ? above->size : 0;
  }
  // Cuts `size` bytes off the front of a used block; the rest becomes free (backed), merging with a
  // free neighbour above. Returns the rest. Requires: 0 < size < block->size.
  Block* split(Block* block, std::uint64_t size);
  // The same, and the rest stays used.
  Block* split_used(Block* block, std::uint64_t size);
  // Cuts a free block in two at `size`, both still free and alike: for the moment before one of
  // them changes its state. Breaks invariant 2 until then.
  Block* split_free(Block* block, std::uint64_t size);
  // After this the next `cuts` cuts, and as many changes of backing, allocate nothing. Throws
  // std::bad_alloc; then nothing has changed.
  [[gnu::cold]] void reserve_cuts(std::size_t cuts);
  // Whether the next cut allocates nothing.
  bool can_cut() const { return !slab_.is_full(); }

  // --- Pages. A free block changes its backing as a whole (cut it first) and merges with
  // neighbours that are then alike; returns the result.
  Block* back(Block* block);
  Block* unback(Block* block);

  // --- Questions.
  std::uint64_t free_bytes() const { return free_bytes_; }
  std::uint64_t free_blocks() const { return free_blocks_; }
  std::uint64_t largest_free() const {
    const Block* block = index_.largest();
    return block == nullptr ? 0 : block->size;
  }
  // Backed free blocks in (size, offset) order. The visitor must not change the heap.
  template <typename Visit>
  void for_each_free(Visit&& visit) const {
    index_.for_each(visit);
  }
  // Free addresses without memory, lowest first.
  const BlocksByOffset& unbacked() const { return unbacked_; }
  // All blocks of the extent that `block` is in, by address.
  template <typename Visit>
  static void for_each_in_extent(Block* block, Visit&& visit) {
    while (block->prev != nullptr) block = block->prev;
    for (; block != nullptr; block = block->next) visit(block);
  }
  // Throws InternalError, naming the invariant that does not hold. O(blocks).
  [[gnu::cold]] void check_invariants() const;
  // Bytes of metadata held now.
  std::uint64_t metadata_bytes() const {
    return slab_.capacity_bytes() + index_.metadata_bytes();
  }

 private:
  Block* choose(std::uint64_t size, std::uint64_t alignment) const;
  [[gnu::noinline]] Block* choose_roomier(Block* smallest, std::uint64_t size,
                                          std::uint64_t alignment) const;
  Block* cut(Block* block, std::uint64_t size);
  [[gnu::noinline, gnu::cold]] void reserve_blocks();
  Block* make_block();
  Block* add_above(Block* block);
  void absorb(Block* low, Block* high);
  Block* settle(Block* block, Block::State state);
  void index(Block* block);
  void unindex(Block* block);

  Slab<Block> slab_;
  SizeIndex index_;
  BlocksByOffset unbacked_;
  std::vector<BlocksByOffset::node_type> spare_;  // nodes for unbacked_
  std::uint64_t free_bytes_ = 0;
  std::uint64_t free_blocks_ = 0;
};

// ------------------------------------------------------------------------------------------------
// In the header because they are most of what an allocation costs. A free block that only grows,
// shrinks or gets another first byte keeps its place in the index where it can.

inline Block* BestFitHeap::make_block() {
  if (!can_cut()) [[unlikely]] reserve_blocks();
  return slab_.create();
}

// A new block above `block`, which inherits what is the policy's; offset and size are not set.
inline Block* BestFitHeap::add_above(Block* block) {
  Block* above = make_block();
  above->prev = block;
  above->next = block->next;
  above->owner = block->owner;
  above->requested = block->requested;
  above->flags = block->flags;
  if (block->next != nullptr) block->next->prev = above;
  block->next = above;
  return above;
}

// The upper block disappears; the lower one's size and stamp are the caller's business.
inline void BestFitHeap::absorb(Block* low, Block* high) {
  low->next = high->next;
  if (high->next != nullptr) high->next->prev = low;
  slab_.destroy(high);
}

inline void BestFitHeap::take(Block* block) {
  index_.erase(block);
  free_bytes_ -= block->size;
  --free_blocks_;
  block->state = Block::State::kUsed;
}

inline void BestFitHeap::take_front(Block* block, std::uint64_t size) {
  TENON_DCHECK(size > 0 && size < block->size, "cannot cut {} bytes off {}", size, block->size);
  Block* rest = add_above(block);
  index_.replace(block, rest, block->offset + size, block->size - size);
  free_bytes_ -= size;
  block->size = size;
  block->state = Block::State::kUsed;
}

inline Block* BestFitHeap::take_back(Block* block, std::uint64_t size) {
  TENON_DCHECK(size > 0 && size < block->size, "cannot cut {} bytes off {}", size, block->size);
  Block* back = add_above(block);
  back->offset = block->offset + block->size - size;
  back->size = size;
  back->state = Block::State::kUsed;
  index_.replace(block, block, block->offset, block->size - size);
  free_bytes_ -= size;
  return back;
}

inline void BestFitHeap::extend(Block* block, std::uint64_t size) {
  Block* above = block->next;
  const std::uint64_t more = size - block->size;
  TENON_DCHECK(size > block->size && more <= free_above(block), "cannot add {} bytes", more);
  free_bytes_ -= more;
  block->size = size;
  if (more < above->size) return index_.replace(above, above, above->offset + more,
                                                above->size - more);
  index_.erase(above);
  --free_blocks_;
  absorb(block, above);
}

inline Block* BestFitHeap::release(Block* block) {
  TENON_DCHECK(block->state == Block::State::kUsed, "released a block that is not in use");
  Block* low = block->prev;
  Block* high = block->next;
  const bool joins_low = low != nullptr && low->state == Block::State::kFree;
  const bool joins_high = high != nullptr && high->state == Block::State::kFree;
  free_bytes_ += block->size;
  block->state = Block::State::kFree;
  if (!joins_low && !joins_high) {
    ++free_blocks_;
    index_.insert(block);
    return block;
  }
  if (!joins_low) {
    index_.replace(high, block, block->offset, block->size + high->size);
    absorb(block, high);
    return block;
  }
  std::uint64_t size = low->size + block->size;
  if (joins_high) {
    --free_blocks_;
    index_.erase(high);
    size += high->size;
    absorb(block, high);
  }
  index_.replace(low, low, low->offset, size);
  low->requested = block->requested;
  absorb(low, block);
  return low;
}

}  // namespace tenon
