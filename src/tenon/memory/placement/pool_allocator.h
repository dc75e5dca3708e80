// The policy `pool`: best fit, splitting and coalescing over growing chunks, one pool per stream.
// Thread safety and failure: as ChunkedAllocator (chunked_allocator.h). allocate and free: O(log
// free blocks).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/heap/best_fit_heap.h"
#include "tenon/memory/growth_share.h"
#include "tenon/memory/placement/chunked_allocator.h"

namespace tenon {

// How chunks grow, in bytes.
struct PoolConfig {
  std::uint64_t pool_bytes = 256 * kMiB;  // size of a chunk, unless a request needs more
  // By growth_bytes instead; free chunks, all too small for the request, go back before. So
  // reserved memory follows what the program holds.
  bool grows_by_shares = false;
};

// Best fit. Grows by max(pool size, 2 x request), or by shares; where the driver has no room for
// that, by the request alone. What is left of a block goes back to the heap if it is 256 bytes or
// more.
class PoolPlacement {
 public:
  using Config = PoolConfig;
  using Handle = Block*;
  using Extent = Block;

  PoolPlacement(const Config& config, Stream, StreamHeap&) : config_(config) {}

  static std::uint64_t offset_of(Handle block) { return block->offset; }
  static std::uint64_t size_of(Handle block) { return block->size; }
  static Handle& link_of(Handle block) { return block->link; }

  Handle place(std::uint64_t size) {
    return heap_.place(align_up(size, kChunkStepBytes), 1, kChunkStepBytes);
  }
  void release(Handle block) { heap_.release(block); }
  // With the free block above; null where that is too small.
  Handle extend(Handle block, std::uint64_t size_bytes) {
    const std::uint64_t size = align_up(size_bytes, kChunkStepBytes);
    const std::uint64_t room = block->size + BestFitHeap::free_above(block);
    if (size > room) return nullptr;
    heap_.extend(block, room - size >= kChunkStepBytes ? size : room);
    return block;
  }

  std::uint64_t chunk_bytes(std::uint64_t size, int choice, std::uint64_t held) const {
    const std::uint64_t rounded = align_up(size, kChunkStepBytes);
    if (choice == 0 && config_.grows_by_shares) return growth_bytes(held, rounded);
    if (choice == 0)
      return align_up(std::max(config_.pool_bytes, 2 * rounded), kChunkStepBytes);
    return choice == 1 ? rounded : 0;
  }
  bool replaces_free_chunks() const { return config_.grows_by_shares; }
  Extent* add_chunk(std::uint64_t offset, std::uint64_t size, Chunk* chunk, bool) {
    Block* extent = heap_.add_extent(offset, size);
    extent->owner = chunk;
    return extent;
  }
  static bool is_wholly_free(const Extent* extent) {
    return extent->state == Block::State::kFree && extent->next == nullptr;
  }
  void remove_chunk(Extent* extent) { heap_.remove_extent(extent); }
  void note_refused() {}

  // visit(block, whether it is in use), by offset.
  template <typename Visit>
  void for_each_block(Extent* extent, Visit&& visit) const {
    BestFitHeap::for_each_in_extent(extent, [&](Block* block) {
      visit(block, block->state == Block::State::kUsed);
    });
  }
  std::uint64_t largest_free() const { return heap_.largest_free(); }
  void check_invariants() const { heap_.check_invariants(); }

 private:
  const Config config_;
  BestFitHeap heap_;
};

// MemoryPool's rules (memory_pool.h) in stream order over a Backend. Blocks are aligned to 256
// bytes. Everything else is ChunkedAllocator's.
class PoolAllocator final : public PlacementAllocator<PoolPlacement> {
 public:
  explicit PoolAllocator(Backend& backend, PoolConfig config = {}, std::uint64_t limit_bytes = 0);
  std::string name() const override { return "pool"; }

 private:
  IdleCache idle_cache_{*this};  // last
};

}  // namespace tenon
