#include "tenon/heap/size_index.h"

#include "tenon/base/check.h"
#include "tenon/base/hash.h"

namespace tenon {
namespace {

// Treap priority: Seidel and Aragon, "Randomized search trees" (1996), with a hash for the random
// number. One multiplication is not enough: offsets in arithmetic progression, which is what
// allocators see, then give trees several times as deep (size_index_test measures it).
std::uint64_t priority(const Block* block) {
  std::uint64_t x = (block->offset ^ (block->offset >> 21)) * 0x9e3779b97f4a7c15ULL;
  x ^= x >> 32;
  return x * 0xd6e8feb86659fd93ULL;
}

bool precedes(std::uint64_t size_a, std::uint64_t offset_a, std::uint64_t size_b,
              std::uint64_t offset_b) {
  return size_a < size_b || (size_a == size_b && offset_a < offset_b);
}

bool precedes(const Block* a, const Block* b) {
  return precedes(a->size, a->offset, b->size, b->offset);
}

}  // namespace

void SizeIndex::insert(Block* block) {
  const int bin = bin_of(block->size);
  bits_[bin >> 6] |= std::uint64_t{1} << (bin & 63);
  summary_ |= std::uint64_t{1} << (bin >> 6);

  Block** where = &roots_[bin];
  const std::uint64_t rank = priority(block);
  while (*where != nullptr && priority(*where) >= rank)
    where = precedes(block, *where) ? &(*where)->left : &(*where)->right;

  // The subtree found splits around the new block, which becomes its root.
  Block* rest = *where;
  *where = block;
  Block** below = &block->left;
  Block** above = &block->right;
  while (rest != nullptr) {
    if (precedes(rest, block)) {
      *below = rest;
      below = &rest->right;
      rest = rest->right;
    } else {
      *above = rest;
      above = &rest->left;
      rest = rest->left;
    }
  }
  *below = nullptr;
  *above = nullptr;
}

void SizeIndex::erase(Block* block) {
  const int bin = bin_of(block->size);
  Block** where = &roots_[bin];
  while (*where != block) {
    TENON_DCHECK(*where != nullptr, "block at {} of {} bytes is not in the index", block->offset,
                 block->size);
    where = precedes(block, *where) ? &(*where)->left : &(*where)->right;
  }
  // The two children merge into the hole.
  Block* low = block->left;
  Block* high = block->right;
  while (low != nullptr && high != nullptr) {
    if (priority(low) >= priority(high)) {
      *where = low;
      where = &low->right;
      low = low->right;
    } else {
      *where = high;
      where = &high->left;
      high = high->left;
    }
  }
  *where = low != nullptr ? low : high;

  if (roots_[bin] == nullptr) {
    bits_[bin >> 6] &= ~(std::uint64_t{1} << (bin & 63));
    if (bits_[bin >> 6] == 0) summary_ &= ~(std::uint64_t{1} << (bin >> 6));
  }
}

int SizeIndex::next_bin(int from) const {
  if (from >= kBins) return -1;
  const int word = from >> 6;
  const std::uint64_t here = bits_[word] & (~std::uint64_t{0} << (from & 63));
  if (here != 0) return (word << 6) + std::countr_zero(here);
  const std::uint64_t later = summary_ & (~std::uint64_t{1} << word);
  if (later == 0) return -1;
  const int next = std::countr_zero(later);
  return (next << 6) + std::countr_zero(bits_[next]);
}

// The first block whose (size, offset) is at least the given pair.
Block* SizeIndex::find_after(std::uint64_t size, std::uint64_t offset) const {
  const int bin = bin_of(size);
  Block* best = nullptr;
  for (Block* node = roots_[bin]; node != nullptr;) {
    if (precedes(node->size, node->offset, size, offset)) {
      node = node->right;
    } else {
      best = node;
      node = node->left;
    }
  }
  if (best != nullptr) return best;
  const int next = next_bin(bin + 1);
  if (next < 0) return nullptr;
  best = roots_[next];
  while (best->left != nullptr) best = best->left;
  return best;
}

Block* SizeIndex::find(std::uint64_t size) const { return find_after(size, 0); }

Block* SizeIndex::after(const Block* block) const {
  return find_after(block->size, block->offset + 1);
}

Block* SizeIndex::largest() const {
  if (summary_ == 0) return nullptr;
  const int word = 63 - std::countl_zero(summary_);
  Block* node = roots_[(word << 6) + 63 - std::countl_zero(bits_[word])];
  while (node->right != nullptr) node = node->right;
  return node;
}

void SizeIndex::check_invariants() const {
  for (int bin = 0; bin < kBins; ++bin) {
    const bool marked = (bits_[bin >> 6] >> (bin & 63)) & 1;
    TENON_CHECK(marked == (roots_[bin] != nullptr), "bin {}: bit and tree disagree", bin);
    const Block* previous = nullptr;
    visit_tree(roots_[bin], [&](Block* block) {
      TENON_CHECK(bin_of(block->size) == bin, "a block of {} bytes is in bin {}", block->size, bin);
      TENON_CHECK(previous == nullptr || precedes(previous, block), "bin {} is out of order", bin);
      for (const Block* child : {block->left, block->right})
        TENON_CHECK(child == nullptr || priority(child) <= priority(block),
                    "bin {}: a child outranks its parent", bin);
      previous = block;
    });
  }
  for (int word = 0; word < kWords; ++word)
    TENON_CHECK(((summary_ >> word) & 1) == (bits_[word] != 0), "summary bit {} is wrong", word);
}

}  // namespace tenon
