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
class PoolHeap final : public PlacementHeap<PoolHeap, Block> {
 public:
  PoolHeap(DeviceAllocator& allocator, Stream stream, const PoolConfig& config)
      : PlacementHeap(allocator, stream), config_(config) {}

  // What PlacementHeap asks of a block (chunk_heap.h).
  static std::uint64_t offset_of(const Block* block) { return block->offset; }
  static std::uint64_t size_of(const Block* block) { return block->size; }
  static Block*& link_of(Block* block) { return block->link; }
  // The smallest free block that the size, rounded up to 256 bytes, fits in; null: there is none.
  Block* place_block(std::uint64_t size) {
    return heap_.place(align_up(size, kChunkStepBytes), 1, kChunkStepBytes);
  }
  // The block is free, and one with its free neighbours.
  void release_block(Block* block) { heap_.release(block); }
  // With the free block above; null where that is too small.
  Block* extend_block(Block* block, std::uint64_t size_bytes) {
    const std::uint64_t size = align_up(size_bytes, kChunkStepBytes);
    const std::uint64_t room = block->size + BestFitHeap::free_above(block);
    if (size > room) return nullptr;
    heap_.extend(block, room - size >= kChunkStepBytes ? size : room);
    return block;
  }

  [[gnu::cold]] std::uint64_t wanted_bytes(std::uint64_t size_bytes, int choice) const override {
    const std::uint64_t rounded = align_up(size_bytes, kChunkStepBytes);
    if (choice == 0 && config_.grows_by_shares) return growth_bytes(extent_bytes(), rounded);
    if (choice == 0)
      return align_up(std::max(config_.pool_bytes, 2 * rounded), kChunkStepBytes);
    return choice == 1 ? rounded : 0;
  }
  bool replaces_free_chunks() const override { return config_.grows_by_shares; }
  [[gnu::cold]] bool withdraw(Extent& chunk) override {
    auto* const first = static_cast<Block*>(chunk.first);
    if (first->state != Block::State::kFree || first->next != nullptr) return false;
    heap_.remove_extent(first);
    return true;
  }
  std::uint64_t largest_free() const override { return heap_.largest_free(); }

 private:
  [[gnu::cold]] void* give(Extent& chunk) override {
    Block* first = heap_.add_extent(chunk.offset(), chunk.size_bytes);
    first->owner = &chunk;
    return first;
  }
  [[gnu::cold]] void for_each_block(const Extent& chunk, const Visit& visit) const override {
    BestFitHeap::for_each_in_extent(static_cast<Block*>(chunk.first), [&](Block* block) {
      visit(block, chunk_of(block), state_of(block->state == Block::State::kUsed));
    });
  }
  void check_placement() const override { heap_.check_invariants(); }

  const PoolConfig config_;
  BestFitHeap heap_;
};

// MemoryPool's rules (memory_pool.h) in stream order over a Backend. Blocks are aligned to 256
// bytes. Everything else is ChunkedAllocator's.
class PoolAllocator final : public PlacementAllocator<PoolHeap, PoolConfig> {
 public:
  // Throws InvalidArgument for a pool size of 0.
  [[gnu::cold]] explicit PoolAllocator(Backend& backend, PoolConfig config = {},
                                       std::uint64_t limit_bytes = 0);

 private:
  IdleCache idle_cache_{*this};  // last
};

}  // namespace tenon
