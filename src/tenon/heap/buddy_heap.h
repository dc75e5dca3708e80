// Binary buddies over extents: powers of two that split in halves and join again.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tenon/base/slab.h"
#include "tenon/heap/heap.h"

namespace tenon {

// One node of an extent's tree of halves, and the handle of a block in use. One cache line.
// `owner`, `context` and `requested` belong to the policy; both halves of a split inherit `owner`.
struct alignas(64) BuddyBlock {
  // A leaf is free or used; a split block has two halves.
  enum class State : std::uint8_t { kFree, kUsed, kSplit };

  // Bytes: a power of two.
  std::uint64_t size() const { return std::uint64_t{1} << order; }

  std::uint64_t offset = 0;
  BuddyBlock* parent = nullptr;  // null: the extent's root
  BuddyBlock* prev = nullptr;    // free: list of its order
  BuddyBlock* next = nullptr;    // free: list of its order. split: the lower half
  void* owner = nullptr;         // the policy's
  void* context = nullptr;       // the policy's
  std::uint64_t requested : 48 = 0;  // the policy's: bytes asked for
  std::uint64_t order : 7 = 0;       // log2 of the size
  std::uint64_t upper : 1 = 0;       // is the upper half of its parent
  State state : 8 = State::kFree;
};
static_assert(sizeof(BuddyBlock) == 64);

// The buddy system (Knowlton 1965) with its metadata out of line, so that it can place blocks in
// memory that the host cannot touch.
//
//   extent  |               split               |     a tree of halves for each extent; leaves are
//           |      split      |      used       |     the blocks; each order has a list of its free
//           |  used  |  free  |                       leaves, last freed first out
//
// Requests are rounded up to a power of two, at least the minimum block. A block is aligned to its
// size within its extent, so extents should begin at multiples of the largest alignment in use.
//
// Invariants (check_invariants):
//   1. A split block's halves tile it; every leaf is free or used.
//   2. No two halves of one block are both free: they would have joined.
//   3. Exactly the free leaves are in the lists of their orders, and free_bytes() is their sum. A
//      bit of the mask is set where a list is not empty.
//
// place, release: O(log(extent / minimum block)), no search. Metadata: 64 bytes a leaf and as much
// for each split, whatever the extent's size. Not thread-safe.
class BuddyHeap {
 public:
  // As the concept Heap asks (heap.h).
  using Handle = BuddyBlock*;
  static std::uint64_t offset_of(Handle block) { return block->offset; }
  static std::uint64_t size_of(Handle block) { return block->size(); }

  // Requires: a power of two.
  [[gnu::cold]] explicit BuddyHeap(std::uint64_t min_block_bytes = 256);
  BuddyHeap(const BuddyHeap&) = delete;
  BuddyHeap& operator=(const BuddyHeap&) = delete;

  // A new extent as one free block, its root, which stays its name. Requires: the size is a power
  // of two, at least the minimum block.
  [[gnu::cold]] BuddyBlock* add_extent(std::uint64_t offset, std::uint64_t size);
  // Whether nothing in the extent is in use.
  static bool is_wholly_free(const BuddyBlock* root) {
    return root->state == BuddyBlock::State::kFree;
  }
  // Requires: is_wholly_free(root).
  [[gnu::cold]] void remove_extent(BuddyBlock* root);

  // What a request takes: the power of two that holds size and alignment.
  std::uint64_t rounded(std::uint64_t size, std::uint64_t alignment = 1) const {
    return std::uint64_t{1} << order_for(size, alignment);
  }

  // Null when no free block is large enough. Requires: size > 0; alignment is a power of two.
  BuddyBlock* place(std::uint64_t size, std::uint64_t alignment = 1);
  // The block becomes free and joins its buddy for as long as that is free too.
  void release(BuddyBlock* block);

  // A used block joins its buddy above, and so on, until it is large enough; the block that they
  // are has another handle. Null: a buddy is not free or lies below, and nothing has changed.
  [[gnu::cold]] BuddyBlock* extend(BuddyBlock* block, std::uint64_t size);

  // Bytes free in all, in the largest free block, in the smallest block there can be, and in the
  // books.
  std::uint64_t free_bytes() const { return free_bytes_; }
  std::uint64_t largest_free() const;
  std::uint64_t min_block_bytes() const { return std::uint64_t{1} << min_order_; }
  std::uint64_t metadata_bytes() const {
    return roots_slab_.capacity_bytes() + halves_.capacity_bytes();
  }
  // Free and used blocks of an extent, by offset.
  template <typename Visit>
  static void for_each_leaf(BuddyBlock* block, Visit&& visit) {
    if (block->state != BuddyBlock::State::kSplit) return visit(block);
    for_each_leaf(block->next, visit);
    for_each_leaf(block->next + 1, visit);
  }
  // Throws InternalError, naming the invariant that does not hold. O(blocks).
  [[gnu::cold]] void check_invariants() const;

 private:
  struct Halves {
    BuddyBlock lower;
    BuddyBlock upper;
  };
  static BuddyBlock* lower_half(BuddyBlock* block) { return block->upper ? block - 1 : block; }
  static BuddyBlock* buddy_of(BuddyBlock* block) { return block->upper ? block - 1 : block + 1; }

  int order_for(std::uint64_t size, std::uint64_t alignment) const;
  void push(BuddyBlock* block);
  void unlink(BuddyBlock* block);
  void split(BuddyBlock* block);
  [[gnu::cold]] std::uint64_t check_tree(const BuddyBlock* block,
                                         std::array<std::uint64_t, 64>& counts) const;

  const int min_order_;
  std::array<BuddyBlock*, 64> free_ = {};  // by order
  std::uint64_t mask_ = 0;                 // bit i: free_[i] is not empty
  std::uint64_t free_bytes_ = 0;
  Slab<BuddyBlock> roots_slab_;
  Slab<Halves> halves_;
  std::vector<BuddyBlock*> roots_;
};
static_assert(Heap<BuddyHeap>);

}  // namespace tenon
