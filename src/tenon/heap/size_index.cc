#include "tenon/heap/size_index.h"

#include "tenon/base/check.h"

namespace tenon {

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
