// Many free blocks of nearly one size, ordered by (size, address).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/base/slab.h"
#include "tenon/heap/block.h"

namespace tenon {

// A node of a B+ tree. Eight cache lines: among a million blocks each step to another node or block
// is a cache miss, so a node holds copies of the keys, and a search of 8000 blocks reads three or
// four nodes and no block but the one it finds.
//
//   level 1:   | <= (512, 7168) | <= (512, 40960) | ...     each key is the largest below it
//                  |                  |
//   level 0:   | (512, 0) (512, 7168) |   | (512, 9216) ... |       one key for each block,
//                   |         |
//                 block     block                                   which knows its leaf
struct alignas(64) SizeNode {
  __extension__ typedef unsigned __int128 Key;  // (size, offset) as one number
  static Key key(std::uint64_t size, std::uint64_t offset) { return (Key{size} << 64) | offset; }
  static Key key(const Block* block) { return key(block->size, block->offset); }

  static constexpr std::uint32_t kFanOut = 20;
  static constexpr Key kNone = ~Key{0};

  SizeNode* parent = nullptr;
  std::uint32_t level;  // 0: a leaf
  std::uint32_t count = 0;
  Key keys[kFanOut];        // ascending; kNone behind the last
  void* children[kFanOut];  // blocks, or above the leaves nodes

  explicit SizeNode(std::uint32_t at_level) : level(at_level) { std::fill_n(keys, kFanOut, kNone); }

  Block* block(std::uint32_t at) const { return static_cast<Block*>(children[at]); }
  SizeNode* node(std::uint32_t at) const { return static_cast<SizeNode*>(children[at]); }
  Key last() const { return keys[count - 1]; }
  bool is_full() const { return count == kFanOut; }

  // How many keys are below `wanted` (not kNone): the index of the first that is not. The order of
  // two blocks is a coin toss to a branch predictor, so eight keys are compared without a branch:
  // every fourth, then four.
  std::uint32_t position(Key wanted) const {
    constexpr std::uint32_t kStep = 4;
    std::uint32_t at = 0;
#pragma GCC unroll 4
    for (std::uint32_t i = kStep - 1; i + 1 < kFanOut; i += kStep)
      at += keys[i] < wanted ? kStep : 0;
    const Key* from = keys + at;
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < kStep; ++i) at += from[i] < wanted ? 1 : 0;
    return at;
  }
  void insert_at(std::uint32_t at, Key key, void* child);
  void remove_at(std::uint32_t at);
  void adopt(std::uint32_t at, void* child);
  // All lines at once, which costs one miss instead of one for each step of a search.
  void prefetch() const {
#pragma GCC unroll 8
    for (std::size_t line = 0; line < sizeof *this; line += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(this) + line);
  }
};
static_assert(sizeof(SizeNode) == 512);

// What to do with each block of a walk, without its type: walks are compiled once.
class BlockVisitor {
 public:
  // Refers to the function object, which must outlive the walk.
  template <typename Visit>
  explicit BlockVisitor(Visit& visit)
      : visit_([](void* to, Block* block) { (*static_cast<Visit*>(to))(block); }),
        to_(const_cast<void*>(static_cast<const void*>(&visit))) {}
  void operator()(Block* block) const { visit_(to_, block); }

 private:
  void (*visit_)(void*, Block*);
  void* to_;
};

// B+ trees of free blocks in exact (size, offset) order, and the memory of their nodes. A tree is
// the pointer to its root, which insert and erase may replace.
//
// find: O(log n). insert: the same; a full node on the way down gives keys to its neighbour (Knuth,
// The Art of Computer Programming 3, 6.2.4: B*-trees) or splits. erase: O(1) where the leaf stays
// full enough, since a block knows its leaf; a node below kFewKeys joins a neighbour or takes some
// of its keys. What an order of calls does to the shape is not seen from outside. 512 bytes for
// some 15 blocks, in a slab that keeps them.
//
// Every node but a root has kFewKeys keys or more, so a tree of n blocks has at most n / 4 nodes (a
// root with two leaves: 3 for 14 blocks), if it has at least kFewKeys blocks itself. For so many
// the memory is reserved beforehand, and neither insert nor erase ever asks for any. Without a
// reservation insert may throw std::bad_alloc. Not thread-safe.
class SizeTrees {
 public:
  using Key = SizeNode::Key;
  static constexpr std::uint32_t kFewKeys = 7;

  // For all trees together, if each keeps at least kFewKeys blocks. Throws std::bad_alloc.
  void reserve_for(std::size_t blocks) { nodes_.grow_to(blocks / 4); }
  SizeNode* make() { return nodes_.create(0u); }
  // Requires: the tree is a leaf.
  void destroy(SizeNode* tree) { nodes_.destroy(tree); }
  void insert(SizeNode*& tree, Block* block);
  // Requires: block is in the tree.
  void erase(SizeNode*& tree, Block* block);

  // The first block whose key is at least `wanted`, or null.
  static Block* find(const SizeNode* tree, Key wanted);
  // Requires: the tree is not empty.
  static Block* first(const SizeNode* tree);
  static Block* last(const SizeNode* tree);
  // Visits all blocks in order. The visitor may use the block's links.
  static void for_each(const SizeNode* tree, BlockVisitor visit);
  // Throws InternalError when a link or an order is wrong. O(n).
  [[gnu::cold]] static void check_invariants(const SizeNode* tree);

  std::uint64_t metadata_bytes() const { return nodes_.capacity_bytes(); }

 private:
  // A node of more does not take over keys of a full neighbour: it would soon be full too.
  static constexpr std::uint32_t kMostKeysToFill = SizeNode::kFanOut - 4;

  static void share(SizeNode* parent, std::uint32_t left);
  void make_room(SizeNode* parent, std::uint32_t at);
  void split(SizeNode* parent, std::uint32_t at);
  void remove(SizeNode*& tree, SizeNode* node, std::uint32_t at);
  void fill_up(SizeNode*& tree, SizeNode* node);

  Slab<SizeNode, 8> nodes_;
};

}  // namespace tenon
