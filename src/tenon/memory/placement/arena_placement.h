// Where the policy `arena` puts blocks: whole buffers of fixed size classes.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tenon/memory/front/stream_heap.h"
#include "tenon/memory/placement/buffer_bins.h"
#include "tenon/memory/placement/chunk.h"

namespace tenon {

struct ArenaOptions {
  std::uint32_t max_per_size = 1024;  // free buffers kept of each size class and stream
  std::uint64_t limit_bytes = 0;      // on what is held from the driver; 0: none
};

// A chunk is one buffer, of a size class's bytes. Free buffers lie in bins by class, the last freed
// on top. A buffer that its bin has no room for, or whose users on other streams could not be
// waited for, is surplus: it goes back to the driver (ChunkedAllocator::release_surplus).
class ArenaPlacement {
 public:
  using Config = ArenaOptions;
  using Handle = arena::PooledBuffer*;
  using Extent = arena::PooledBuffer;

  ArenaPlacement(const Config& config, Stream stream, StreamHeap& heap)
      : stream_(stream), heap_(heap), bins_(config.max_per_size) {}

  static std::uint64_t offset_of(Handle buffer) { return buffer->serial; }
  static std::uint64_t size_of(Handle buffer) { return buffer->size_bytes; }
  static Handle& link_of(Handle buffer) { return buffer->link; }
  static StreamHeap* heap_of(Handle buffer) {
    return static_cast<StreamHeap*>(buffer->upstream_context);
  }
  static void* address_of(Handle buffer) { return buffer->data; }

  Handle place(std::uint64_t size) { return bins_.take(arena::size_class_of(size)); }
  Handle place_fast(std::uint64_t size) { return place(size); }
  // Throws InvalidPointer for a buffer that is free already.
  void release(Handle buffer);
  bool is_ordinary(Handle buffer) const {
    return buffer->in_use && !buffer->used_elsewhere && bins_.has_room_for(buffer);
  }
  // Requires: is_ordinary.
  void release_ordinary(Handle buffer) { bins_.put(buffer); }
  // The buffer's own stream waits for `stream` when it is freed.
  void record_use(Handle buffer, Stream stream);

  std::uint64_t chunk_bytes(std::uint64_t size, int choice, std::uint64_t) const {
    return choice == 0 ? arena::size_class_bytes(arena::size_class_of(size)) : 0;
  }
  Extent* add_chunk(std::uint64_t, std::uint64_t size, Chunk* chunk, bool borrowed);
  static bool is_wholly_free(const Extent* buffer) { return !buffer->in_use; }
  void remove_chunk(Extent* buffer);
  void note_refused() {}

  // The chunk of a surplus buffer, or null.
  Chunk* surplus() const {
    return surplus_ == nullptr ? nullptr : static_cast<Chunk*>(surplus_->owner);
  }

  template <typename Visit>
  void for_each_block(Extent* buffer, Visit&& visit) const {
    visit(buffer, buffer->in_use);
  }
  std::uint64_t largest_free() const;
  [[gnu::cold]] void check_invariants() const;

 private:
  bool order_after_users(Handle buffer);
  void keep(Handle buffer, bool may_be_reused);

  const Stream stream_;
  StreamHeap& heap_;
  arena::BufferBins bins_;
  Handle surplus_ = nullptr;  // a list by `next`
  std::unordered_map<const arena::PooledBuffer*, std::vector<Stream>> users_;
};

}  // namespace tenon
