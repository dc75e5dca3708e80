// A node of the trees that keep a crowded bin of the size index in order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/heap/block.h"

namespace tenon {

// A node of a B+ tree over free blocks by (size, offset). Eight cache lines: among a million blocks
// each step to another node or block is a cache miss, so a node holds copies of the keys, and a
// search of 8000 blocks reads three or four nodes and no block but the one it finds.
//
//   level 1:   | <= (512, 7168) | <= (512, 40960) | ...     an entry says the largest key below it
//                  |                  |
//   level 0:   | (512, 0) (512, 7168) |   | (512, 9216) ... |       one entry for each block
//                   |         |
//                 block     block                        whose `node` is the leaf
struct alignas(64) SizeNode {
  // (size, offset) as one number.
  using Key = unsigned __int128;
  static Key key(std::uint64_t size, std::uint64_t offset) { return (Key{size} << 64) | offset; }
  static Key key(const Block* block) { return key(block->size, block->offset); }

  static constexpr std::uint32_t kFanOut = 20;
  static constexpr Key kNone = ~Key{0};

  SizeNode* parent = nullptr;
  std::uint32_t level;  // 0: a leaf
  std::uint32_t count = 0;
  Key keys[kFanOut];         // ascending; kNone behind the last
  void* children[kFanOut];  // blocks, or above the leaves nodes

  explicit SizeNode(std::uint32_t at_level) : level(at_level) { std::fill_n(keys, kFanOut, kNone); }

  bool is_full() const { return count == kFanOut; }
  Key last() const { return keys[count - 1]; }
  Block* block(std::uint32_t at) const { return static_cast<Block*>(children[at]); }
  SizeNode* node(std::uint32_t at) const { return static_cast<SizeNode*>(children[at]); }

  // How many keys are below `wanted` (not kNone): the index of the first that is not. The order of
  // two blocks is a coin toss to a branch predictor, so nine keys are compared without a branch:
  // every fourth, then four.
  std::uint32_t position(Key wanted) const {
    constexpr std::uint32_t kStep = 4;
    std::uint32_t at = 0;
    for (std::uint32_t i = kStep - 1; i < kFanOut - 1; i += kStep) at += keys[i] < wanted ? kStep : 0;
    const Key* from = keys + at;
    for (std::uint32_t i = 0; i < kStep; ++i) at += from[i] < wanted ? 1 : 0;
    return at;
  }
  void insert_at(std::uint32_t at, Key key, void* child) {
    std::copy_backward(keys + at, keys + count, keys + count + 1);
    std::copy_backward(children + at, children + count, children + count + 1);
    keys[at] = key;
    ++count;
    adopt(at, child);
  }
  void remove_at(std::uint32_t at) {
    std::copy(keys + at + 1, keys + count, keys + at);
    std::copy(children + at + 1, children + count, children + at);
    keys[--count] = kNone;
  }
  void adopt(std::uint32_t at, void* child) {
    children[at] = child;
    if (level == 0)
      block(at)->node = this;
    else
      node(at)->parent = this;
  }
  // All lines at once, which costs one miss instead of one for each step of a search.
  void prefetch() const {
    for (std::size_t line = 0; line < sizeof *this; line += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(this) + line);
  }
};
static_assert(sizeof(SizeNode) == 512);

}  // namespace tenon
