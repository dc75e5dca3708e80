// The policy `arena`: buffers of fixed size classes, straight from the driver, reused. Thread
// safety and failure: as ChunkedAllocator (chunked_allocator.h).
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tenon/memory/placement/buffer_bins.h"
#include "tenon/memory/placement/chunked_allocator.h"

namespace tenon {

// What is kept of free buffers, and how much may be held.
struct ArenaOptions {
  std::uint32_t max_per_size = 1024;  // free buffers kept of each size class and stream
  std::uint64_t limit_bytes = 0;      // on what is held from the driver; 0: none
};

// A chunk is one buffer, of a size class's bytes. Free buffers lie in bins by class, the last freed
// on top. A buffer that its bin has no room for, or whose users on other streams could not be
// waited for, is surplus: it goes back to the driver (release_surplus).
class ArenaHeap final : public PlacementHeap<ArenaHeap, arena::PooledBuffer> {
 public:
  ArenaHeap(DeviceAllocator& allocator, Stream stream, const ArenaOptions& options)
      : PlacementHeap(allocator, stream), bins_(options.max_per_size) {}

  // What PlacementHeap asks of a buffer (chunk_heap.h). Its offset is its number on its stream.
  static std::uint64_t offset_of(Handle buffer) { return buffer->serial; }
  static std::uint64_t size_of(Handle buffer) { return buffer->size_bytes; }
  static Handle& link_of(Handle buffer) { return buffer->link; }
  // These two without a look at the chunk.
  static void* address_of(Handle buffer) { return buffer->data; }
  static ArenaHeap& heap_of(Handle buffer) {
    return *static_cast<ArenaHeap*>(buffer->upstream_context);
  }

  // The free buffer of the size's class that was freed last; null where there is none.
  Handle place_block(std::uint64_t size) { return bins_.take(arena::BufferClasses::of(size)); }
  // Throws InvalidPointer for a buffer that is free already.
  void release_block(Handle buffer);
  bool release_fast(Handle buffer) {
    if (!buffer->in_use || buffer->used_elsewhere || !bins_.has_room_for(buffer)) [[unlikely]]
      return false;
    counters.count_released(buffer->size_bytes, buffer->requested);
    bins_.put(buffer);
    return true;
  }
  // The buffer's own stream waits for `stream` when it is freed.
  bool record_use(void* buffer, Stream stream) override;

  std::uint64_t wanted_bytes(std::uint64_t size_bytes, int choice) const override {
    using Classes = arena::BufferClasses;
    return choice == 0 ? Classes::bytes(Classes::of(size_bytes)) : 0;
  }
  [[gnu::cold]] bool withdraw(Extent& chunk) override;
  Extent* surplus() const override {
    return surplus_ == nullptr ? nullptr : static_cast<Extent*>(surplus_->owner);
  }
  [[gnu::cold]] std::uint64_t largest_free() const override;

 private:
  [[gnu::cold]] void* give(Extent& chunk) override;
  void for_each_block(const Extent& chunk, const Visit& visit) const override {
    auto* const buffer = static_cast<Handle>(chunk.first);
    visit(buffer, chunk_of(buffer), state_of(buffer->in_use));
  }
  [[gnu::cold]] void check_placement() const override;
  bool order_after_users(Handle buffer);
  void keep(Handle buffer, bool may_be_reused);

  arena::BufferBins bins_;
  Handle surplus_ = nullptr;  // a list by `next`
  std::unordered_map<const arena::PooledBuffer*, std::vector<Stream>> users_;
};

// The size-class half of the arena (scopes are the other). A request is rounded up by less than an
// eighth. Every stream keeps up to `max_per_size` free buffers of each size. Nothing is split or
// merged, so requests are fast, and it holds the most memory. For programs that ask for the same
// sizes over and over. When a request fails, every free buffer goes back first.
//
// Streams: a buffer is reused on its own stream only, at once. For a block that record_stream names
// for another stream, its own stream waits for the other at the free. allocate and free: O(1). A
// block's layout offset is its number among the buffers that its stream made. Everything else is
// ChunkedAllocator's.
class ArenaAllocator final : public PlacementAllocator<ArenaHeap, ArenaOptions> {
 public:
  // Throws InvalidArgument for a `max_per_size` of 0.
  [[gnu::cold]] explicit ArenaAllocator(Backend& backend, const ArenaOptions& options = {});

 protected:
  [[gnu::cold]] std::string advice() const override;

 private:
  IdleCache idle_cache_{*this};  // last
};

}  // namespace tenon
