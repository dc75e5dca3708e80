// The large blocks that a thread has freed last.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "tenon/memory/host/held.h"

namespace tenon::host {

// Free blocks by exact size, the last one first; to the store they are in use. A request for the
// same size takes one without the store's lock and search.
//
//   set 7:  [192 KiB] - [192 KiB]        a set holds blocks of one size
//   set 8:  empty
//
// Bounded in bytes, since blocks that wait here do not join their neighbours: by an eighth of what
// the store may keep resident beyond its highest use (ExtentStore::kLeastSlack). When the bound is
// reached all blocks go back to the store, so sizes that the program has left do not stay.
//
// O(1). Not thread-safe: under the lock of the thread's heap.
class LargeCache {
 public:
  static constexpr std::uint64_t kLargestBytes = 512 << 10;  // a larger block is the store's
  static constexpr std::uint64_t kBytes = 2 << 20;           // of all blocks here

  // The block that pop would return; null when there is none of that size.
  Block* top(std::uint64_t size_bytes) const {
    Block* block = sets_[set_of(size_bytes)];
    return block != nullptr && block->size == size_bytes ? block : nullptr;
  }
  // Requires: there is one.
  Block* pop(std::uint64_t size_bytes) {
    Block*& set = sets_[set_of(size_bytes)];
    bytes_ -= size_bytes;
    return std::exchange(set, next(set));
  }

  // Whether push needs no eviction before it.
  bool has_room(std::uint64_t size_bytes) const {
    const Block* set = sets_[set_of(size_bytes)];
    return (set == nullptr || set->size == size_bytes) && bytes_ + size_bytes <= kBytes;
  }
  // Requires: has_room, and at most kLargestBytes. `size_bytes` is the block's.
  void push(Block* block, std::uint64_t size_bytes) {
    Block*& set = sets_[set_of(size_bytes)];
    set_header(block, reinterpret_cast<std::uintptr_t>(set));
    set = block;
    bytes_ += size_bytes;
  }

  // Makes room: `release` is called for each block that leaves.
  template <typename Release>
  void evict_for(std::uint64_t size_bytes, Release&& release) {
    if (bytes_ + size_bytes > kBytes) return clear(release);
    clear_set(sets_[set_of(size_bytes)], release);
  }
  template <typename Release>
  void clear(Release&& release) {
    for (Block*& set : sets_) clear_set(set, release);
  }

  void check_invariants() const;

 private:
  static constexpr int kSetBits = 5;
  static std::size_t set_of(std::uint64_t size_bytes) {
    const auto hash = static_cast<std::uint32_t>(size_bytes >> 6) * 0x9E3779B1u;
    return hash >> (32 - kSetBits);
  }
  static Block* next(const Block* block) { return reinterpret_cast<Block*>(header_of(block)); }
  template <typename Release>
  void clear_set(Block*& set, Release&& release) {
    while (Block* block = set) {
      set = next(block);
      bytes_ -= block->size;
      release(block);
    }
  }

  std::array<Block*, std::size_t{1} << kSetBits> sets_ = {};
  std::uint64_t bytes_ = 0;
};

}  // namespace tenon::host
