// Free blocks ordered by (size, address), for best fit.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "tenon/heap/block.h"

namespace tenon {

// The set of free blocks in exact (size, offset) order.
//
// Sizes fall into bins of eight to the octave; a bit map finds the next bin that holds anything.
// Within a bin the blocks form a treap whose priorities are a hash of the offset, so the shape
// depends on the set alone: the same calls give the same tree, on every machine. In practice a bin
// holds a few blocks and a search reads two or three of them.
//
//   bits:  0 0 1 0 1 ...      one bit per bin, 64 bins to a word
//              |   |
//             treap treap     keys (size, offset)
//
// insert, erase, lower_bound: O(log n) expected, O(1) where bins hold few blocks. No memory of its
// own: the links are in the blocks. Not thread-safe.
class SizeIndex {
 public:
  void insert(Block* block);
  // Requires: block is in the index, with the size and offset it was inserted with.
  void erase(Block* block);

  // The smallest block of at least `size` (ties: lowest offset), or null.
  Block* find(std::uint64_t size) const;
  // The next block after `block` in (size, offset) order, or null.
  Block* after(const Block* block) const;
  // The last block in (size, offset) order, or null.
  Block* largest() const;

  bool empty() const { return summary_ == 0; }

  // Visits all blocks in (size, offset) order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (Block* root : roots_) visit_tree(root, visit);
  }

  // Throws InternalError when a link, an order, a priority or a bit is wrong. O(n).
  void check_invariants() const;

 private:
  static constexpr int kSubBits = 3;                      // eight bins to the octave
  static constexpr int kBins = (64 - kSubBits + 1) << kSubBits;
  static constexpr int kWords = (kBins + 63) / 64;

  // Sizes below 8 have a bin each; above, the leading one and the three bits after it choose.
  static int bin_of(std::uint64_t size) {
    if (size < (1u << kSubBits)) return static_cast<int>(size);
    const int top = 63 - std::countl_zero(size);
    const int sub = static_cast<int>(size >> (top - kSubBits)) & ((1 << kSubBits) - 1);
    return ((top - kSubBits + 1) << kSubBits) + sub;
  }

  int next_bin(int from) const;  // the first bin >= from that holds a block, or -1
  Block* find_after(std::uint64_t size, std::uint64_t offset) const;

  template <typename Visit>
  static void visit_tree(Block* node, Visit&& visit) {
    if (node == nullptr) return;
    visit_tree(node->left, visit);
    visit(node);
    visit_tree(node->right, visit);
  }

  std::array<Block*, kBins> roots_ = {};
  std::array<std::uint64_t, kWords> bits_ = {};
  std::uint64_t summary_ = 0;  // bit w: bits_[w] != 0
};

}  // namespace tenon
