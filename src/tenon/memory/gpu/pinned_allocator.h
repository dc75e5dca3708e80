// Host memory that a device reads and writes by itself: pinned, cached, and given back. Failure: as
// DeviceAllocator (device_allocator.h).
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "tenon/heap/best_fit_heap.h"
#include "tenon/memory/device_allocator.h"
#include "tenon/memory/front/pending_frees.h"
#include "tenon/memory/front/stream_counters.h"

namespace tenon {

// Blocks of a backend's pinned memory for copies to and from the device.
//
// The host writes a block as soon as it has it, so no order of streams protects it. A freed block
// is used again only when its streams have finished what was queued before the free. Its streams
// are the one it was allocated for and those of record_stream. An event per stream covers all the
// frees since the last look, not one per free.
//
// Sizes are rounded up to 512 bytes and no further. Blocks of up to 1 MiB share segments of 2 MiB.
// Larger ones have segments of their own, rounded to 4 KiB, which later requests may share. Whole
// free segments go back to the system by empty_cache() and when pinned memory runs out. Best fit by
// (size, address), O(log n). Thread-safe: one mutex.
class PinnedAllocator final : public DeviceAllocator {
 public:
  // `limit_bytes`: most pinned memory to hold; 0: none.
  explicit PinnedAllocator(Backend& backend, std::uint64_t limit_bytes = 0)
      : DeviceAllocator(backend),
        limit_bytes_(limit_bytes),
        pending_(backend, PendingFrees::Events::kWhenAsked) {}
  // Waits for what is pending, then gives everything back, whatever is still in use.
  ~PinnedAllocator() override;

  std::string name() const override { return "pinned"; }
  std::size_t alignment() const override { return alignment_of_steps(512); }
  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override;
  void record_stream(const DataPtr& data, Stream stream) override;
  std::size_t usable_size(const DataPtr& data) const override {
    return data == nullptr ? 0 : block_of(data, "usable_size")->size;
  }
  void empty_cache() override;

  AllocatorStats stats() const override;
  void reset_peak_stats() override;
  std::uint64_t largest_free_bytes() const override;
  std::uint64_t layout_offset(const DataPtr& data) const override;
  void check_invariants() const override;

 private:
  struct Extent {
    PinnedAllocator* self;
    Segment segment;
    std::uint64_t layout_base;  // its place in the order of growth
  };

  static void free_block(void* context);
  Block* block_of(const DataPtr& data, const char* caller) const;
  Block* obtain(std::uint64_t rounded, std::uint64_t size_bytes, Stream stream, Growth* growth);
  // All under mutex_.
  Block* place(std::uint64_t rounded);
  bool grow(std::uint64_t rounded, Growth* growth);
  void collect(bool wait);
  bool release_whole();

  const std::uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  BestFitHeap heap_;
  std::vector<std::unique_ptr<Extent>> extents_;
  PendingFrees pending_;  // every block is used by the stream that it was allocated for
  StreamCounters counters_;  // of blocks
  AllocatorStats stats_;     // of segments, and the num_ counters
  std::uint64_t layout_end_ = 0;
  IdleCache idle_cache_{*this};  // last
};

}  // namespace tenon
