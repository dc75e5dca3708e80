// The buffers of one stream, storage and size class, and the heaps they are cut from.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/heap/best_fit_heap.h"
#include "tenon/memory/front/stream_counters.h"
#include "tenon/memory/stats.h"
#include "tenon/memory/unified/buffer_cache.h"

namespace tenon::unified {

struct Lane;

enum class SizeClass : std::uint8_t { kScalar, kSmall, kLarge };

// Free memory of a pool is in one of three states:
//
//   cached buffers   keep their identity; reused whole, best fit by size
//   pending buffers  freed, but another stream's recorded work on them is not known to be over
//   room             of no buffer: cut into new ones, best fit, neighbours merged within a heap
//
// Cached buffers and room are free for the pool's own stream at once. Another stream may have them
// after the buffer's `freed` point: of room, the latest free of any buffer that became room. The
// allocator sees to that.
//
// Invariants (check_invariants):
//   1. Every used block of the placement belongs to exactly one buffer, and the other way round.
//   2. The cache holds exactly the cached buffers, and cached_bytes() is their sum.
//   3. A heap's buffers_out is the number of its buffers that are in use or pending.
//
// take, place, cache: O(log n). merge_cached: O(log n) for each buffer, each of which was cached by
// a free, so a constant number of steps per free over any run. Not thread-safe.
class BufferPool {
 public:
  // Its cached buffers count as inactive splits.
  [[gnu::cold]] BufferPool(Lane& lane, Storage storage, SizeClass size_class);

  Lane& lane() const { return lane_; }
  std::uint32_t stream() const;
  Storage storage() const { return storage_; }
  SizeClass size_class() const { return size_class_; }

  // What is counted of its kind of buffers.
  Counts& counts() const { return counts_; }

  // The smallest cached buffer of `size_bytes` to `most_bytes`, no longer cached; or null.
  Buffer* take(std::uint64_t size_bytes, std::uint64_t most_bytes);
  // A new buffer from the room, or null.
  Buffer* place(std::uint64_t size_bytes, std::uint64_t alignment);
  // Keeps a freed buffer for reuse. Requires: its uses on other streams are over or ordered.
  void cache(Buffer* buffer);
  // All cached buffers become room.
  [[gnu::cold]] void merge_cached();
  // The largest request that merging every cached buffer could possibly serve.
  std::uint64_t mergeable_bytes() const { return cached_.bytes() + places_.free_bytes(); }

  std::vector<Buffer*>& pending() { return pending_; }
  const std::vector<Buffer*>& pending() const { return pending_; }

  // Takes over a segment as room. The record must stay where it is.
  void add_heap(BufferHeap* heap);
  // Requires: no buffer of the heap is in use or pending.
  [[gnu::cold]] void remove_heap(BufferHeap* heap);

  std::uint64_t cached_bytes() const { return cached_.bytes(); }
  [[gnu::cold]] std::uint64_t largest_free_bytes() const;
  // Of the pool's buffers: bytes in use, and bytes in use or pending.
  struct Found {
    std::uint64_t in_use_bytes = 0;
    std::uint64_t active_bytes = 0;
  };
  [[gnu::cold]] Found check_invariants(const std::vector<BufferHeap*>& heaps) const;

 private:
  void count_cached(int sign, const Buffer* buffer);

  Lane& lane_;
  Counts& counts_;
  const Storage storage_;
  const SizeClass size_class_;
  BestFitHeap places_;
  BufferCache cached_;
  std::vector<Buffer*> pending_;
  Ticket merged_;  // the latest free of any buffer that became room
  std::uint64_t end_offset_ = 0;  // of the last heap; offsets are never used twice
};

// Which statistics besides kAll a pool's memory counts in.
inline StatPool stat_pool(const BufferPool& pool) {
  return pool.size_class() == SizeClass::kLarge ? StatPool::kLarge : StatPool::kSmall;
}

}  // namespace tenon::unified
