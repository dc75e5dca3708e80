#include "tenon/heap/size_tree.h"

#include "tenon/base/check.h"

namespace tenon {
namespace {

// The largest key below `node` was `gone`: those above it learn which it is now.
void replace_last(SizeNode* node, SizeNode::Key gone) {
  const SizeNode::Key last = node->last();
  for (SizeNode* above = node->parent; above != nullptr; above = above->parent) {
    const std::uint32_t at = above->position(gone);
    above->keys[at] = last;
    if (at + 1 < above->count) return;
  }
}

}  // namespace

void SizeNode::insert_at(std::uint32_t at, Key key, void* child) {
  std::copy_backward(keys + at, keys + count, keys + count + 1);
  std::copy_backward(children + at, children + count, children + count + 1);
  keys[at] = key;
  ++count;
  adopt(at, child);
}

void SizeNode::remove_at(std::uint32_t at) {
  std::copy(keys + at + 1, keys + count, keys + at);
  std::copy(children + at + 1, children + count, children + at);
  keys[--count] = kNone;
}

void SizeNode::adopt(std::uint32_t at, void* child) {
  children[at] = child;
  if (level == 0)
    block(at)->leaf = this;
  else
    node(at)->parent = this;
}

Block* SizeTrees::find(const SizeNode* tree, Key wanted) {
  std::uint32_t at = tree->position(wanted);
  if (at == tree->count) return nullptr;  // below the root the last key is not below `wanted`
  while (tree->level != 0) {
    tree = tree->node(at);
    tree->prefetch();
    at = tree->position(wanted);
  }
  return tree->block(at);
}

Block* SizeTrees::first(const SizeNode* tree) {
  while (tree->level != 0) tree = tree->node(0);
  return tree->block(0);
}

Block* SizeTrees::last(const SizeNode* tree) {
  while (tree->level != 0) tree = tree->node(tree->count - 1);
  return tree->block(tree->count - 1);
}

void SizeTrees::insert(SizeNode*& tree, Block* block) {
  if (tree->is_full()) {
    SizeNode* root = nodes_.create(tree->level + 1);
    root->insert_at(0, tree->last(), tree);
    split(root, 0);
    tree = root;
  }
  SizeNode* node = tree;
  const Key key = SizeNode::key(block);
  while (node->level != 0) {
    std::uint32_t at = node->position(key);
    if (at == node->count) node->keys[--at] = key;  // a new largest
    SizeNode* below = node->node(at);
    below->prefetch();
    if (below->is_full()) {  // now, so that it has room for halves of its own children
      make_room(node, at);
      below = node->node(node->position(key));
    }
    node = below;
  }
  node->insert_at(node->position(key), key, block);
}

// A full child gives keys to the one before it, so that keys in ascending order leave full nodes
// behind them; or to a new one. Requires: the parent has room.
void SizeTrees::make_room(SizeNode* parent, std::uint32_t at) {
  if (at > 0 && parent->node(at - 1)->count <= kMostKeysToFill)
    share(parent, at - 1);
  else
    split(parent, at);
}

// The child at `at` gives its upper half to a new one beside it. Requires: the parent has room.
void SizeTrees::split(SizeNode* parent, std::uint32_t at) {
  constexpr std::uint32_t kHalf = SizeNode::kFanOut / 2;
  SizeNode* low = parent->node(at);
  SizeNode* high = nodes_.create(low->level);
  for (std::uint32_t i = kHalf; i < low->count; ++i)
    high->insert_at(i - kHalf, low->keys[i], low->children[i]);
  std::fill(low->keys + kHalf, low->keys + low->count, SizeNode::kNone);
  low->count = kHalf;
  parent->insert_at(at, low->last(), low);
  parent->adopt(at + 1, high);
}

void SizeTrees::erase(SizeNode*& tree, Block* block) {
  SizeNode* leaf = block->leaf;
  const std::uint32_t at = leaf->position(SizeNode::key(block));
  TENON_DCHECK(at < leaf->count && leaf->block(at) == block,
               "block at {} of {} bytes is not in the index", block->offset, block->size);
  remove(tree, leaf, at);
}

void SizeTrees::remove(SizeNode*& tree, SizeNode* node, std::uint32_t at) {
  const Key gone = node->keys[at];
  node->remove_at(at);
  if (node->parent == nullptr) {
    if (tree->level == 0 || tree->count > 1) return;
    SizeNode* child = tree->node(0);  // a root with one child is not needed
    child->parent = nullptr;
    nodes_.destroy(tree);
    tree = child;
    return;
  }
  if (at == node->count) replace_last(node, gone);
  if (node->count < kFewKeys) fill_up(tree, node);
}

// A node with few keys joins a neighbour below the same parent, or, where one node cannot hold
// both, they share their keys evenly. Requires: the parent has two children, as every parent has.
void SizeTrees::fill_up(SizeNode*& tree, SizeNode* node) {
  SizeNode* parent = node->parent;
  const std::uint32_t at = parent->position(node->last());
  const std::uint32_t left = at > 0 ? at - 1 : at;
  SizeNode* low = parent->node(left);
  SizeNode* high = parent->node(left + 1);
  if (low->count + high->count <= SizeNode::kFanOut) {
    for (std::uint32_t i = 0; i < high->count; ++i)
      low->insert_at(low->count, high->keys[i], high->children[i]);
    nodes_.destroy(high);
    // The joined node is known by the upper key, the largest of both.
    parent->adopt(left + 1, low);
    return remove(tree, parent, left);
  }
  share(parent, left);
}

// The children at `left` and behind it have equally many keys from now on, or one more.
void SizeTrees::share(SizeNode* parent, std::uint32_t left) {
  SizeNode* low = parent->node(left);
  SizeNode* high = parent->node(left + 1);
  const std::uint32_t half = (low->count + high->count) / 2;
  while (low->count > half) {
    const std::uint32_t last = low->count - 1;
    high->insert_at(0, low->keys[last], low->children[last]);
    low->remove_at(last);
  }
  while (low->count < half) {
    low->insert_at(low->count, high->keys[0], high->children[0]);
    high->remove_at(0);
  }
  parent->keys[left] = low->last();
}

void SizeTrees::for_each(const SizeNode* tree, BlockVisitor visit) {
  for (std::uint32_t i = 0; i < tree->count; ++i)
    if (tree->level == 0)
      visit(tree->block(i));
    else
      for_each(tree->node(i), visit);
}

void SizeTrees::check_invariants(const SizeNode* tree) {
  TENON_CHECK(tree->count > 0 && tree->count <= SizeNode::kFanOut, "a node of {} keys",
              tree->count);
  for (std::uint32_t i = 0; i < SizeNode::kFanOut; ++i) {
    const Key key = tree->keys[i];
    TENON_CHECK((i < tree->count) == (key != SizeNode::kNone), "a node has keys behind its last");
    if (i >= tree->count) continue;
    TENON_CHECK(i == 0 || tree->keys[i - 1] < key, "a node is out of order");
    if (tree->level == 0) {
      TENON_CHECK(tree->block(i)->leaf == tree, "a block is not in the leaf it knows");
      TENON_CHECK(key == SizeNode::key(tree->block(i)), "a leaf's key is not its block's");
      continue;
    }
    const SizeNode* child = tree->node(i);
    TENON_CHECK(child->count >= kFewKeys, "a node of {} keys below another", child->count);
    TENON_CHECK(child->parent == tree && child->level + 1 == tree->level, "nodes' links disagree");
    check_invariants(child);
    TENON_CHECK(child->last() == key, "a node's largest key is not its parent's");
  }
}

}  // namespace tenon
