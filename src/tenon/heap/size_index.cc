#include "tenon/heap/size_index.h"

#include <algorithm>

#include "tenon/base/check.h"

namespace tenon {
namespace {

// An insertion that goes deeper makes a tree of a treap: of some fifty blocks, in the mean.
constexpr int kDeepest = 12;
// A tree of fewer blocks becomes a treap again.
constexpr std::uint32_t kFewBlocks = SizeTrees::kFewKeys;

int depth_of(const Block* node) {
  return node == nullptr ? 0 : 1 + std::max(depth_of(node->left), depth_of(node->right));
}

void visit_treap(Block* node, BlockVisitor visit) {
  for (; node != nullptr; node = node->right) {
    visit_treap(node->left, visit);
    visit(node);
  }
}

}  // namespace

// A block comes into a bin that others are in.
void SizeIndex::insert_below(Block** where, Block* block) {
  Block** const root = where;
  if (is_tree(*root)) {
    SizeNode* tree = tree_of(*root);
    trees_.insert(tree, block);
    *root = as_root(tree);
    return;
  }
  const std::uint64_t rank = priority(block);
  const Key wanted = key(block);
  int depth = 0;
  for (; *where != nullptr && priority(*where) >= rank; ++depth)
    where = child(*where, key(*where) < wanted);

  // The subtree found splits around the new block, which becomes its root.
  Block* rest = *where;
  *where = block;
  Block** below = &block->left;
  Block** above = &block->right;
  for (; rest != nullptr; ++depth) {
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
  if (depth > kDeepest) make_tree(root);
}

void SizeIndex::make_tree(Block** where) {
  SizeNode* tree = trees_.make();
  const auto insert = [&](Block* block) { trees_.insert(tree, block); };
  visit_treap(*where, BlockVisitor(insert));
  *where = as_root(tree);
}

void SizeIndex::erase_from_tree(Block** where, Block* block) {
  SizeNode* tree = tree_of(*where);
  trees_.erase(tree, block);
  *where = as_root(tree);
  if (tree->level != 0 || tree->count >= kFewBlocks) return;
  *where = nullptr;
  const auto insert = [&](Block* rest) { insert_below(where, rest); };
  SizeTrees::for_each(tree, BlockVisitor(insert));
  trees_.destroy(tree);
}

// A block leaves a bin that others stay in.
void SizeIndex::erase_below(Block** where, Block* block) {
  if (is_tree(*where)) return erase_from_tree(where, block);
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

Block* SizeIndex::find_in_tree(int bin, Key wanted) const {
  if (Block* found = SizeTrees::find(tree_of(roots_[bin]), wanted)) return found;
  const int next = next_bin(bin + 1);
  return next < 0 ? nullptr : first_in(roots_[next]);
}

void SizeIndex::visit_bin(Block* root, BlockVisitor visit) {
  if (is_tree(root))
    SizeTrees::for_each(tree_of(root), visit);
  else
    visit_treap(root, visit);
}

void SizeIndex::visit_all(BlockVisitor visit) const {
  for (int bin = next_bin(0); bin >= 0; bin = next_bin(bin + 1)) visit_bin(roots_[bin], visit);
}

void SizeIndex::check_invariants() const {
  for (int bin = next_bin(0); bin >= 0; bin = next_bin(bin + 1)) {
    TENON_CHECK(roots_[bin] != nullptr, "bin {} has a bit and no block", bin);
    const Block* previous = nullptr;
    const bool tree = is_tree(roots_[bin]);
    if (tree) SizeTrees::check_invariants(tree_of(roots_[bin]));
    const auto check = [&](Block* block) {
      TENON_CHECK(bin_of(block->size) == bin, "a block of {} bytes is in bin {}", block->size, bin);
      TENON_CHECK(previous == nullptr || key(previous) < key(block), "bin {} is out of order", bin);
      previous = block;
      if (tree) return;
      for (const Block* child : {block->left, block->right})
        TENON_CHECK(child == nullptr || priority(child) <= priority(block),
                    "bin {}: a child outranks its parent", bin);
    };
    visit_bin(roots_[bin], BlockVisitor(check));
  }
  for (int word = 0; word < kWords; ++word)
    TENON_CHECK(((summary_ >> word) & 1) == (bits_[word] != 0), "summary bit {} is wrong", word);
}

int SizeIndex::depth() const {
  int deepest = 0;
  for (int bin = next_bin(0); bin >= 0; bin = next_bin(bin + 1)) {
    Block* const root = roots_[bin];
    deepest = std::max(deepest, is_tree(root) ? static_cast<int>(tree_of(root)->level) + 1
                                              : depth_of(root));
  }
  return deepest;
}

}  // namespace tenon
