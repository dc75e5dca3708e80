// Where the heaps of the unified allocator come from, and where they go back to.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/device/backend.h"
#include "tenon/memory/growth_share.h"
#include "tenon/memory/observer.h"
#include "tenon/memory/stats.h"
#include "tenon/memory/unified/buffer_pool.h"

namespace tenon::unified {

// Sizes of heaps, as in PyTorch's MPS allocator.
inline constexpr std::uint64_t kMaxScalarBytes = 8;
inline constexpr std::uint64_t kMaxSmallBytes = kMiB;       // small buffers are pooled apart
inline constexpr std::uint64_t kMinHugeBytes = 10 * kMiB;   // from here on, 1 GiB heaps
inline constexpr std::uint64_t kSmallHeapBytes = 8 * kMiB;
inline constexpr std::uint64_t kLargeHeapBytes = 32 * kMiB;
inline constexpr std::uint64_t kHugeHeapBytes = kGiB;
inline constexpr std::uint64_t kHeapRoundingBytes = 2 * kMiB;
inline constexpr std::uint64_t kScalarHeapBytes = 64 * kKiB;

// Just enough for the one request.
constexpr std::uint64_t dedicated_heap_bytes(std::uint64_t size_bytes) {
  return align_up(size_bytes, kHeapRoundingBytes);
}

// With memory short, a request that would open a heap of 1 GiB gets one of its own size.
constexpr std::uint64_t heap_bytes_for(std::uint64_t size_bytes, bool under_pressure) {
  if (size_bytes <= kMaxSmallBytes) return kSmallHeapBytes;
  if (size_bytes < kMinHugeBytes) return kLargeHeapBytes;
  if (size_bytes < kHugeHeapBytes / 2 && !under_pressure) return kHugeHeapBytes;
  return dedicated_heap_bytes(size_bytes);
}

// All heaps of one allocator. Not thread-safe; what changes a lane requires its lock. Counts
// segments, reserved bytes and device calls in the statistics it is given.
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

  // Of the idle heaps, of all pools or of one, that which became idle first; null: there is none.
  // O(heaps).
  BufferHeap* oldest_idle(const BufferPool* only = nullptr) const;
  // Allocates nothing. Throws what the driver throws; the heap is then idle as before. Requires:
  // the heap is idle.
  void release(BufferHeap* heap);

  std::uint64_t reserved_bytes() const {
    return static_cast<std::uint64_t>(stats_.reserved_bytes[0].current);
  }
  // Of one pool; O(heaps).
  std::uint64_t reserved_bytes(const BufferPool& pool) const;
  const std::vector<BufferHeap*>& heaps() const { return heaps_; }

  // Heaps taken (kMapped) and given back (kReleased) since the last call, for the caller to report.
  HeapChanges take_changes() { return std::exchange(changes_, {}); }

 private:
  void count(MemoryEvent event, const BufferHeap& heap, HeapChanges& place);

  Backend& backend_;
  AllocatorStats& stats_;
  const MemoryKind shared_memory_;
  std::vector<BufferHeap*> heaps_;  // owned
  HeapChanges changes_;
};

}  // namespace tenon::unified
