// The heaps of one stream that could go back to the driver.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenon/memory/unified/buffer.h"

namespace tenon::unified {

// A heap with no buffer out is idle; the idle ones form a list, that which became idle first at its
// head. A clock that the lists of all streams share numbers these moments, so that the oldest of
// all can be found. O(1). Not thread-safe.
class IdleHeaps {
 public:
  explicit IdleHeaps(std::atomic<std::uint64_t>& clock) : clock_(clock) {}
  IdleHeaps(const IdleHeaps&) = delete;
  IdleHeaps& operator=(const IdleHeaps&) = delete;

  // A buffer of the heap goes out, or is back.
  void went_out(BufferHeap* heap) {
    if (heap->buffers_out++ == 0) remove(heap);
  }
  void came_back(BufferHeap* heap) {
    if (--heap->buffers_out == 0) add(heap);
  }

  void add(BufferHeap* heap) {
    heap->idle_since = clock_.fetch_add(1, std::memory_order_relaxed);
    heap->older = newest_;
    heap->newer = nullptr;
    (newest_ != nullptr ? newest_->newer : oldest_) = heap;
    newest_ = heap;
  }
  void remove(BufferHeap* heap) {
    (heap->older != nullptr ? heap->older->newer : oldest_) = heap->newer;
    (heap->newer != nullptr ? heap->newer->older : newest_) = heap->older;
    heap->older = heap->newer = nullptr;
  }

  BufferHeap* oldest() const { return oldest_; }

 private:
  std::atomic<std::uint64_t>& clock_;
  BufferHeap* oldest_ = nullptr;
  BufferHeap* newest_ = nullptr;
};

}  // namespace tenon::unified
