#include "tenon/heap/size_index.h"

#include "tenon/base/check.h"

namespace tenon {

// A block comes into a bin that others are in.
void SizeIndex::insert_below(Block** where, Block* block) {
  const std::uint64_t rank = priority(block);
  const Key wanted = key(block);
  while (*where != nullptr && priority(*where) >= rank)
    where = child(*where, key(*where) < wanted);

  // The subtree found splits around the new block, which becomes its root.
  Block* rest = *where;
  *where = block;
  Block** below = &block->left;
  Block** above = &block->right;
  while (rest != nullptr) {
    if (key(rest) < wanted) {
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

// A block leaves a bin that others stay in.
void SizeIndex::erase_below(Block** where, Block* block) {
  const Key wanted = key(block);
  while (*where != block) {
    TENON_DCHECK(*where != nullptr, "block at {} of {} bytes is not in the index", block->offset,
                 block->size);
    where = child(*where, key(*where) < wanted);
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
}

void SizeIndex::check_invariants() const {
  for (int bin = 0; bin < kBins; ++bin) {
    const bool marked = (bits_[bin >> 6] >> (bin & 63)) & 1;
    TENON_CHECK(marked == (roots_[bin] != nullptr), "bin {}: bit and tree disagree", bin);
    const Block* previous = nullptr;
    visit_tree(roots_[bin], [&](Block* block) {
      TENON_CHECK(bin_of(block->size) == bin, "a block of {} bytes is in bin {}", block->size, bin);
      TENON_CHECK(previous == nullptr || key(previous) < key(block), "bin {} is out of order", bin);
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
