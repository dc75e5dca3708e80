// Where the heaps of the unified allocator come from, and where they go back to.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tenon/device/backend.h"
#include "tenon/memory/stats.h"
#include "tenon/memory/unified/buffer_pool.h"

namespace tenon::unified {

// All heaps of one allocator. Only one that is idle (IdleHeaps, of its pool's lane) can go back to
// the driver.
//
// Not thread-safe; what changes a lane requires its lock. Counts segments, reserved bytes and
// device calls in the statistics it is given.
class HeapSupply {
 public:
  // `shared_memory`: what heaps of shared buffers are made of.
  HeapSupply(Backend& backend, AllocatorStats& stats, MemoryKind shared_memory)
      : backend_(backend), stats_(stats), shared_memory_(shared_memory) {}
  ~HeapSupply();  // gives every heap back
  HeapSupply(const HeapSupply&) = delete;
  HeapSupply& operator=(const HeapSupply&) = delete;

  // One more heap for the pool. False: the driver has no memory.
  bool grow(BufferPool& pool, std::uint64_t size_bytes);

  // Throws what the driver throws; the heap is then idle as before. Requires: the heap is idle.
  void release(BufferHeap* heap);

  std::uint64_t reserved_bytes() const { return reserved_bytes_; }
  // Of one pool; O(heaps).
  std::uint64_t reserved_bytes(const BufferPool& pool) const;
  const std::vector<BufferHeap*>& heaps() const { return heaps_; }

  struct Released {
    void* base = nullptr;
    std::uint64_t size_bytes = 0;
    std::uint32_t stream = 0;
    bool is_new = false;  // taken, not given back
  };
  // Heaps taken and given back since the last call, for the caller to report.
  std::vector<Released> take_released() { return std::exchange(released_, {}); }

 private:
  Backend& backend_;
  AllocatorStats& stats_;
  const MemoryKind shared_memory_;
  std::vector<BufferHeap*> heaps_;  // owned
  std::uint64_t reserved_bytes_ = 0;
  std::vector<Released> released_;
};

}  // namespace tenon::unified
