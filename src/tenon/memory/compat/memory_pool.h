// A pool over any allocator, by bare pointer: best fit in large chunks that are never given back
// while it lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/long_lock.h"
#include "tenon/base/pointer_map.h"
#include "tenon/heap/best_fit_heap.h"
#include "tenon/memory/allocator.h"

namespace tenon {

// What a MemoryPool has done. Sizes are those of blocks, after rounding. What was allocated and
// not freed is in use: total_allocated - total_freed == current_usage.
struct MemoryPoolStats {
  std::uint64_t total_allocated = 0;         // bytes, ever
  std::uint64_t total_freed = 0;             // bytes, ever; reset() frees what is in use
  std::uint64_t current_usage = 0;           // bytes
  std::uint64_t peak_usage = 0;              // bytes
  std::uint64_t num_allocations = 0;
  std::uint64_t num_deallocations = 0;       // blocks freed, by reset() too
  std::uint64_t num_pool_allocations = 0;    // requests served from chunks: all of them
  std::uint64_t num_device_allocations = 0;  // chunks taken from upstream
};

// Serves requests from chunks of `upstream` by best fit: the smallest free block that is large
// enough, the lowest among equals. Splits a block if 256 bytes or more are left. Merges free
// neighbours at once, within a chunk.
//
//   chunk 1 | used | free |  used  |  free   |      a request that fits nowhere adds a chunk of
//   chunk 2 |    used   |       free         |      max(pool size, 2 x request)
//
// Deterministic: the same calls give the same blocks within chunks. allocate and deallocate: O(log
// free blocks). Blocks are aligned as upstream's are, and at least to 64 bytes. Chunks go back when
// the pool is destroyed.
//
// Thread-safe: a spin lock is held for one placement; threads sleep on it while the table grows.
// Upstream is called outside of it, by one thread at a time. Not stream-ordered: on a GPU, free a
// block only when no queued work uses it. The policy `pool` (pool_allocator.h) has the same rules
// in stream order.
class MemoryPool {
 public:
  static constexpr std::size_t kDefaultPoolBytes = 256 * kMiB;
  static constexpr std::size_t kMinBlockBytes = 256;  // smaller rests stay with their block
  static constexpr std::size_t kMinAlignment = 64;

  // Takes the first chunk. Throws InvalidArgument for a null upstream or a pool size of 0 or above
  // kMaxRequestBytes, and what upstream throws.
  [[gnu::cold]] explicit MemoryPool(std::shared_ptr<Allocator> upstream,
                                    std::size_t pool_size = kDefaultPoolBytes);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Null for a size of 0. Throws OutOfMemory (a std::bad_alloc) when upstream cannot give a chunk
  // even of the request's own size; InvalidArgument above kMaxRequestBytes.
  void* allocate(std::size_t size_bytes);

  // Null is ignored. Throws InvalidPointer (a std::runtime_error), and changes nothing, for what is
  // not a block in use.
  void deallocate(void* data);

  // Frees every block: each chunk is one free block again. Keeps chunks and the counts of the past.
  [[gnu::cold]] void reset();

  std::size_t alignment() const { return alignment_; }  // of every block

  // What was done so far, and bytes held, free, and free in one piece. check_invariants() throws
  // InternalError; O(blocks).
  MemoryPoolStats stats() const { return statistics(); }  // the name of all other allocators
  [[gnu::cold]] MemoryPoolStats statistics() const;
  std::uint64_t reserved_bytes() const;      // in chunks
  std::uint64_t free_bytes() const;
  [[gnu::cold]] std::uint64_t largest_free_bytes() const;
  [[gnu::cold]] void check_invariants() const;

 private:
  struct PoolChunk {
    DataPtr memory;
    Block* extent = nullptr;
  };

  void* place(std::uint64_t rounded);
  void count_freed(const Block& block);
  [[gnu::cold]] void add_chunk(std::uint64_t size_bytes);
  void grow(std::uint64_t rounded);

  const std::shared_ptr<Allocator> upstream_;
  const std::size_t alignment_;
  const std::uint64_t pool_size_;
  std::mutex grow_mutex_;     // one thread at a time calls upstream; taken before lock_
  mutable LongLock lock_;     // all below
  BestFitHeap heap_;          // by address
  PointerMap<Block> used_;
  std::vector<PoolChunk> chunks_;
  std::uint64_t reserved_bytes_ = 0;
  MemoryPoolStats stats_;
};

}  // namespace tenon
