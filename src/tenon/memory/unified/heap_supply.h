// Where the heaps of the unified allocator come from, and which of them could go back.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tenon/device/backend.h"
#include "tenon/memory/stats.h"
#include "tenon/memory/unified/buffer_pool.h"

namespace tenon::unified {

// All heaps of one allocator. A heap with no buffer out is idle; idle heaps form a list, the one
// that became idle first at its head, and only they can go back to the driver.
//
// Not thread-safe. Counts segments, reserved bytes and device calls in the statistics it is given.
class HeapSupply {
 public:
  HeapSupply(Backend& backend, AllocatorStats& stats) : backend_(backend), stats_(stats) {}
  ~HeapSupply();  // gives every heap back
  HeapSupply(const HeapSupply&) = delete;
  HeapSupply& operator=(const HeapSupply&) = delete;

  // One more heap for the pool. False: the driver has no memory.
  bool grow(BufferPool& pool, std::uint64_t size_bytes);

  void went_out(BufferHeap* heap) {
    if (heap->buffers_out++ == 0) unlink_idle(heap);
  }
  void came_back(BufferHeap* heap) {
    if (--heap->buffers_out == 0) link_idle(heap);
  }

  BufferHeap* oldest_idle() const { return oldest_; }
  // Throws what the driver throws; the heap is then idle as before. Requires: the heap is idle.
  void release(BufferHeap* heap);

  std::uint64_t reserved_bytes() const { return reserved_bytes_; }
  const std::vector<BufferHeap*>& heaps() const { return heaps_; }

  struct Released {
    void* base = nullptr;
    std::uint64_t size_bytes = 0;
    std::uint32_t stream = 0;
  };
  // Heaps given back since the last call, for whoever reports them.
  std::vector<Released> take_released() { return std::exchange(released_, {}); }

 private:
  void link_idle(BufferHeap* heap);
  void unlink_idle(BufferHeap* heap);

  Backend& backend_;
  AllocatorStats& stats_;
  std::vector<BufferHeap*> heaps_;  // owned
  BufferHeap* oldest_ = nullptr;    // of the idle ones
  BufferHeap* newest_ = nullptr;
  std::uint64_t reserved_bytes_ = 0;
  std::vector<Released> released_;
};

}  // namespace tenon::unified
