// The large blocks that a thread has freed last.
#pragma once

#include <array>
#include <cstdint>

#include "tenon/memory/host/accounts.h"
#include "tenon/memory/host/held.h"

namespace tenon::host {

// Free blocks by exact size, the last one first; to the store they are in use. A request for the
// same size takes one without the store's lock and search.
//
//   set 7:  [192 KiB] - [192 KiB]        a set holds blocks of one size
//   set 8:  empty
//
// Bounded in bytes, since blocks that wait here do not join their neighbours: by an eighth of what
// the store may keep resident beyond its highest use (RegionStore::kLeastSlack). When the bound is
// reached all blocks go back to the store, so sizes that the program has left do not stay.
//
// O(1). Not thread-safe: under the lock of the thread's heap.
class LargeCache {
 public:
  static constexpr std::uint64_t kLargestBytes = 512 << 10;  // a larger block is the store's
  static constexpr std::uint64_t kBytes = 2 << 20;           // of all blocks here

  // The blocks of one size.
  struct alignas(64) Set {
    Block* first = nullptr;
    void* data = nullptr;  // its address; that of the others is their context
    std::uint64_t size_bytes = 0;
    Counts counts = {};  // what a block counts (accounts.h)
  };

  // Where blocks of that size wait; null when there are none.
  Set* find(std::uint64_t size_bytes) {
    Set& set = set_of(size_bytes);
    return set.size_bytes == size_bytes && set.first != nullptr ? &set : nullptr;
  }
  // Requires: find has returned the set.
  Block* pop(Set& set) {
    Block* const block = set.first;
    bytes_ -= set.size_bytes;
    set.first = next(block);
    if (set.first != nullptr) set.data = set.first->context;
    return block;
  }

  // Where a block of that size can go; null when others must leave before.
  Set* find_room(std::uint64_t size_bytes) {
    Set& set = set_of(size_bytes);
    return set.size_bytes == size_bytes && bytes_ + size_bytes <= kBytes ? &set : nullptr;
  }
  // Requires: find_room or make_room has returned the set.
  void push(Set& set, Block* block, void* data) {
    set_header(block, reinterpret_cast<std::uintptr_t>(set.first));
    block->context = data;
    set.first = block;
    set.data = data;
    bytes_ += set.size_bytes;
  }

  // As find_room, and `release` is called for each block that leaves. Requires: at most
  // kLargestBytes.
  template <typename Release>
  Set& make_room(std::uint64_t size_bytes, Release&& release) {
    Set& set = set_of(size_bytes);
    if (bytes_ + size_bytes > kBytes) clear(release);
    if (set.size_bytes == size_bytes) return set;
    clear_set(set, release);
    set.size_bytes = size_bytes;
    set.counts = LocalAccount::counts_of(static_cast<std::uint32_t>(size_bytes));
    return set;
  }
  template <typename Release>
  void clear(Release&& release) {
    for (Set& set : sets_) clear_set(set, release);
  }

  void check_invariants() const;

 private:
  static constexpr int kSetBits = 5;
  Set& set_of(std::uint64_t size_bytes) {
    const auto hash = static_cast<std::uint32_t>(size_bytes >> 6) * 0x9E3779B1u;
    return sets_[hash >> (32 - kSetBits)];
  }
  static Block* next(const Block* block) { return reinterpret_cast<Block*>(header_of(block)); }
  template <typename Release>
  void clear_set(Set& set, Release&& release) {
    while (set.first != nullptr) release(pop(set));
  }

  std::array<Set, std::size_t{1} << kSetBits> sets_ = {};
  std::uint64_t bytes_ = 0;
};

}  // namespace tenon::host
