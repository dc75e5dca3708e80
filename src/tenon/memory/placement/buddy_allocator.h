// The policy `buddy`: binary buddies over chunks, one instance per stream. Thread safety and
// failure: as ChunkedAllocator (chunked_allocator.h). allocate and free: O(log size).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "tenon/base/byte_size.h"
#include "tenon/heap/buddy_heap.h"
#include "tenon/memory/placement/chunked_allocator.h"

namespace tenon {

// How chunks grow, in bytes.
struct BuddyConfig {
  std::uint64_t initial_pool_bytes = 64 * kMiB;        // size of a chunk, if that is enough
  std::uint64_t max_pool_bytes = std::uint64_t{1} << 62;  // of all chunks of one stream
};

// Binary buddies. A chunk is a power of two: the initial pool size or, for larger requests, the
// request rounded up. Where the driver has no room for that, it is the smallest that would do.
class BuddyChunks final : public PlacementHeap<BuddyChunks, BuddyBlock> {
 public:
  [[gnu::cold]] BuddyChunks(DeviceAllocator& allocator, Stream stream, const BuddyConfig& config);

  // What PlacementHeap asks of a block (chunk_heap.h).
  static std::uint64_t offset_of(const BuddyBlock* block) { return block->offset; }
  static std::uint64_t size_of(const BuddyBlock* block) { return block->size(); }
  static BuddyBlock*& link_of(BuddyBlock* block) { return block->next; }  // in use: in no list
  // BuddyHeap's place, release and extend. Null: no room.
  BuddyBlock* place_block(std::uint64_t size) { return heap_.place(size); }
  void release_block(BuddyBlock* block) { heap_.release(block); }
  BuddyBlock* extend_block(BuddyBlock* block, std::uint64_t size_bytes) {
    return heap_.extend(block, size_bytes);
  }

  [[gnu::cold]] std::uint64_t wanted_bytes(std::uint64_t size_bytes, int choice) const override {
    const std::uint64_t least = heap_.rounded(size_bytes);
    const std::uint64_t usual = std::max(config_.initial_pool_bytes, least);
    const auto allowed = [&](std::uint64_t bytes) {
      return extent_bytes() <= config_.max_pool_bytes &&
             bytes <= config_.max_pool_bytes - extent_bytes();
    };
    if (choice == 0 && allowed(usual)) return usual;
    return choice <= 1 && allowed(least) ? least : 0;
  }
  [[gnu::cold]] bool withdraw(Extent& chunk) override {
    auto* const root = static_cast<BuddyBlock*>(chunk.first);
    if (!BuddyHeap::is_wholly_free(root)) return false;
    heap_.remove_extent(root);
    return true;
  }
  std::uint64_t largest_free() const override { return heap_.largest_free(); }

 private:
  [[gnu::cold]] void* give(Extent& chunk) override {
    BuddyBlock* root = heap_.add_extent(chunk.offset(), chunk.size_bytes);
    root->owner = &chunk;
    return root;
  }
  [[gnu::cold]] void for_each_block(const Extent& chunk, const Visit& visit) const override {
    BuddyHeap::for_each_leaf(static_cast<BuddyBlock*>(chunk.first), [&](BuddyBlock* block) {
      visit(block, chunk_of(block), state_of(block->state == BuddyBlock::State::kUsed));
    });
  }
  void check_placement() const override { heap_.check_invariants(); }

  const BuddyConfig config_;
  BuddyHeap heap_;
};

// Buddies over chunks from a system allocator's device. That allocator itself serves, unrounded,
// requests that would take the pool beyond its maximum or that the device has no chunk for. Blocks
// are aligned to their own size, rounded up to a power of two, up to the device's alignment (512
// bytes and more on GPUs), and at least to 256 bytes. Metadata is out of line, so the memory may be
// one that the host cannot touch. Bytes in use: stats().allocated_bytes. Everything else is
// ChunkedAllocator's.
class BuddyAllocator final : public PlacementAllocator<BuddyChunks, BuddyConfig> {
 public:
  // Pool sizes are rounded up to powers of two (initial) or taken as they are (maximum, 0: no pool,
  // everything from the system allocator). Throws InvalidArgument for a null system allocator or an
  // initial size of 0.
  BuddyAllocator(std::unique_ptr<DeviceAllocator> system, std::uint64_t initial_pool_bytes,
                 std::uint64_t max_pool_bytes, std::uint64_t limit_bytes = 0);
  // The same over a SystemAllocator, with the policy's own sizes.
  [[gnu::cold]] explicit BuddyAllocator(Backend& backend, BuddyConfig config = {},
                                        std::uint64_t limit_bytes = 0);
  [[gnu::cold]] ~BuddyAllocator() override;  // not inline: the fast path is compiled once

 private:
  IdleCache idle_cache_{*this};  // last
};

}  // namespace tenon
