// Free blocks ordered by (size, address), for best fit.
#pragma once

#include <bit>
#include <cstdint>

#include "tenon/base/check.h"
#include "tenon/heap/block.h"
#include "tenon/heap/size_tree.h"

namespace tenon {

// The set of free blocks in exact (size, offset) order.
//
// Sizes fall into bins of 64 to the octave; a bit map finds the next bin that holds anything. In
// practice a bin holds a few blocks, and a search reads two or three of them. They form a treap
// whose priorities are a hash of the offset: links in the blocks, nothing to rebalance. A bin whose
// treap grows deep becomes a B+ tree (size_tree.h) until few blocks are left: blocks by the
// thousand are spread over more memory than the caches hold, and a treap waits for a line at each
// of its steps.
//
//   bits:  0 0 1 0 1 ...      one bit per bin, 64 bins to a word
//              |   |
//          treap   B+ tree    keys (size, offset)
//
// insert, erase, lower_bound: O(log n), O(1) where bins hold few blocks. The answers depend on the
// set alone. No memory of its own but the nodes of trees: once they are reserved for as many blocks
// as will ever be in the index at once, no call allocates. Not thread-safe.
class SizeIndex {
 public:
  SizeIndex() {}  // not `= default`, which would write all roots where an index is made by `()`
  // Throws std::bad_alloc with nothing changed.
  void reserve_for(std::size_t blocks) { trees_.reserve_for(blocks); }
  void insert(Block* block);
  // Requires: block is in the index, with the size and offset it was inserted with.
  void erase(Block* block);
  // A block in the index becomes (offset, size), and `heir`, which may be the same, stands for it
  // from now on. Cheap while the size stays in its bin and the block is alone there.
  void replace(Block* block, Block* heir, std::uint64_t offset, std::uint64_t size);

  // The smallest block of at least `size` > 0 (ties: lowest offset), or null.
  Block* find(std::uint64_t size) const;
  // The next block after `block` in (size, offset) order, or null.
  Block* after(const Block* block) const;
  // The last block in (size, offset) order, or null.
  Block* largest() const;

  bool empty() const { return summary_ == 0; }

  // Visits the blocks of at least `size` > 0 in (size, offset) order, while the visitor returns
  // true. O(1) for each, where bins hold few blocks.
  template <typename Visit>
  void for_each_from(std::uint64_t size, Visit&& visit) const {
    const int own = bin_of(size);
    std::uint64_t mask = ~std::uint64_t{0} << (own & 63);
    for (int word = own >> 6; word >= 0; word = next_word(word)) {
      for (std::uint64_t bits = bits_[word] & mask; bits != 0; bits &= bits - 1) {
        const int bin = (word << 6) + std::countr_zero(bits);
        Block* block = roots_[bin];
        if (!is_tree(block)) [[likely]] {
          if (!visit_while(block, size, visit)) return;
          continue;
        }
        block = bin == own ? find(size) : first_in(block);
        for (; block != nullptr && bin_of(block->size) == bin; block = after(block))
          if (!visit(block)) return;
      }
      mask = ~std::uint64_t{0};
    }
  }
  // Visits all blocks in (size, offset) order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    visit_all(BlockVisitor(visit));
  }

  // Throws InternalError when a link, an order, a priority or a bit is wrong. O(n).
  [[gnu::cold]] void check_invariants() const;
  // Steps of the longest way from a bin to a block. O(n).
  [[gnu::cold]] int depth() const;
  std::uint64_t metadata_bytes() const { return trees_.metadata_bytes(); }

 private:
  static constexpr int kSubBits = 6;         // 64 bins to the octave
  static constexpr int kBins = 64 << kSubBits;
  static constexpr int kWords = kBins / 64;

  // The size as a floating-point number, cut off after its exponent and the six bits that follow.
  // (A processor converts faster than it finds the highest bit, where it has only every
  // x86-64's instructions; and no size is a special case.) Requires: 0 < size < 2^63.
  static int bin_of(std::uint64_t size) {
    constexpr int kMantissaBits = 52;
    constexpr int kExponentOfOne = 1023;
    const auto bits = std::bit_cast<std::uint64_t>(
        static_cast<double>(static_cast<std::int64_t>(size)));
    return static_cast<int>(bits >> (kMantissaBits - kSubBits)) - (kExponentOfOne << kSubBits);
  }

  // Treap priority: Seidel and Aragon, "Randomized search trees" (1996), with a hash for the random
  // number. One multiplication is not enough: offsets in arithmetic progression, which is what
  // allocators see, then give trees several times as deep (size_index_test measures it).
  static std::uint64_t priority(const Block* block) {
    std::uint64_t x = (block->offset ^ (block->offset >> 21)) * 0x9e3779b97f4a7c15ULL;
    x ^= x >> 32;
    return x * 0xd6e8feb86659fd93ULL;
  }
  // The order of two blocks is a coin toss to a branch predictor, so the descents below compare
  // without a branch and choose the child's address by the outcome.
  using Key = SizeNode::Key;
  static Key key(const Block* block) { return SizeNode::key(block); }
  static Block** child(Block* block, bool right) { return right ? &block->right : &block->left; }

  // A bin's B+ tree, by its address plus one, where the bin would have a block.
  static bool is_tree(const Block* root) { return reinterpret_cast<std::uintptr_t>(root) & 1; }
  static SizeNode* tree_of(Block* root) {
    return reinterpret_cast<SizeNode*>(reinterpret_cast<std::uintptr_t>(root) - 1);
  }
  static Block* as_root(SizeNode* tree) {
    return reinterpret_cast<Block*>(reinterpret_cast<std::uintptr_t>(tree) + 1);
  }

  void insert_below(Block** where, Block* block);
  void erase_below(Block** where, Block* block);
  void make_tree(Block** where);
  void erase_from_tree(Block** where, Block* block);
  int next_bin(int from) const;  // the first bin >= from that holds a block, or -1
  int next_word(int word) const {  // the first behind `word` with a bit in it, or -1
    const std::uint64_t later = summary_ & (~std::uint64_t{1} << word);
    return later == 0 ? -1 : std::countr_zero(later);
  }
  static Block* first_in(Block* root) {
    if (is_tree(root)) [[unlikely]] return SizeTrees::first(tree_of(root));
    while (root->left != nullptr) root = root->left;
    return root;
  }
  Block* find_after(std::uint64_t size, std::uint64_t offset) const;
  // The first block in this bin, which has a tree, or in a later one.
  [[gnu::noinline]] Block* find_in_tree(int bin, Key wanted) const;

  static void visit_bin(Block* root, BlockVisitor visit);
  void visit_all(BlockVisitor visit) const;
  // Those of a treap of at least `size`; false when the visitor returned false.
  template <typename Visit>
  static bool visit_while(Block* node, std::uint64_t size, Visit&& visit) {
    for (; node != nullptr; node = node->right) {
      if (node->size < size) continue;
      if (node->left != nullptr && !visit_while(node->left, size, visit)) return false;
      if (!visit(node)) return false;
    }
    return true;
  }
  // Of bins whose bit is set; the others' are never read. So they are not written at the start
  // either, and an index costs the pages of the bins that it has used, not all 32 KiB.
  Block* roots_[kBins];
  std::uint64_t bits_[kWords] = {};
  std::uint64_t summary_ = 0;  // bit w: bits_[w] != 0
  SizeTrees trees_;
};

// ------------------------------------------------------------------------------------------------
// In the header because they are most of what an allocation costs.

inline void SizeIndex::insert(Block* block) {
  const int bin = bin_of(block->size);
  std::uint64_t& word = bits_[bin >> 6];
  const std::uint64_t bit = std::uint64_t{1} << (bin & 63);
  if ((word & bit) == 0) [[likely]] {
    word |= bit;
    summary_ |= std::uint64_t{1} << (bin >> 6);
    block->left = block->right = nullptr;
    roots_[bin] = block;
    return;
  }
  insert_below(&roots_[bin], block);
}

inline void SizeIndex::erase(Block* block) {
  const int bin = bin_of(block->size);
  if (roots_[bin] != block || block->left != nullptr || block->right != nullptr) [[unlikely]]
    return erase_below(&roots_[bin], block);  // others remain in the bin
  bits_[bin >> 6] &= ~(std::uint64_t{1} << (bin & 63));
  if (bits_[bin >> 6] == 0) summary_ &= ~(std::uint64_t{1} << (bin >> 6));
}

inline void SizeIndex::replace(Block* block, Block* heir, std::uint64_t offset,
                               std::uint64_t size) {
  const int bin = bin_of(block->size);
  const bool stays = bin == bin_of(size) && roots_[bin] == block && block->left == nullptr &&
                     block->right == nullptr;
  if (!stays) erase(block);
  heir->offset = offset;
  heir->size = size;
  if (!stays) return insert(heir);
  heir->left = heir->right = nullptr;
  roots_[bin] = heir;
}

// Whether the bin's word holds one is a coin toss too; so a later word is looked at in any case,
// and the outcome is chosen.
inline int SizeIndex::next_bin(int from) const {
  if (from >= kBins) return -1;
  const int word = from >> 6;
  const std::uint64_t here = bits_[word] & (~std::uint64_t{0} << (from & 63));
  const std::uint64_t later = summary_ & (~std::uint64_t{1} << word);
  if ((here | later) == 0) [[unlikely]] return -1;
  const int next = std::countr_zero(later) & 63;  // none: 0, which is not used then
  const std::uint64_t in_here = -static_cast<std::uint64_t>(here != 0);  // all ones, or 0
  const std::uint64_t bits = here | (bits_[next] & ~in_here);
  const auto in_word = static_cast<int>((static_cast<std::uint64_t>(word) & in_here) |
                                        (static_cast<std::uint64_t>(next) & ~in_here));
  return (in_word << 6) + std::countr_zero(bits);
}

// The first block whose (size, offset) is at least the given pair.
inline Block* SizeIndex::find_after(std::uint64_t size, std::uint64_t offset) const {
  int bin = next_bin(bin_of(size));
  const Key wanted = SizeNode::key(size, offset);
  while (bin >= 0) {  // a second time when all in the size's own bin come before
    Block* node = roots_[bin];
    if (is_tree(node)) [[unlikely]] return find_in_tree(bin, wanted);
    Block* best = nullptr;
    while (node != nullptr) {
      const bool before = key(node) < wanted;
      best = before ? best : node;
      node = *child(node, before);
    }
    if (best != nullptr) [[likely]] return best;
    bin = next_bin(bin + 1);
  }
  return nullptr;
}

inline Block* SizeIndex::find(std::uint64_t size) const { return find_after(size, 0); }

inline Block* SizeIndex::after(const Block* block) const {
  return find_after(block->size, block->offset + 1);
}

inline Block* SizeIndex::largest() const {
  if (summary_ == 0) return nullptr;
  const int word = 63 - std::countl_zero(summary_);
  Block* node = roots_[(word << 6) + 63 - std::countl_zero(bits_[word])];
  if (is_tree(node)) [[unlikely]] return SizeTrees::last(tree_of(node));
  while (node->right != nullptr) node = node->right;
  return node;
}

}  // namespace tenon
