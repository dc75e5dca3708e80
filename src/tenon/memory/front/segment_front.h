// The front of policies whose heaps place blocks in extents, and grow by whole segments.
#pragma once

#include <optional>

#include "tenon/memory/front/extent_heap.h"

namespace tenon {

// Takes segments from the driver for a heap, counts them, and gives those back that no block lives
// in. (A policy that grows by pages counts these itself.)
//
// Thread safety and failure: as StreamFront.
class SegmentFront : public StreamFront {
 public:
  [[gnu::cold]] void check_invariants() const override;

 protected:
  using StreamFront::StreamFront;
  // Gives all segments back to the driver; blocks that still live must not be used any more.
  ~SegmentFront() override { free_all_segments(); }

  bool release_cached() override { return release_free_segments(); }

  // --- All below with growth_mutex_ held and no heap locked.
  // One from the driver, or none where memory is short; and back. What throws has changed nothing.
  virtual std::optional<Segment> make_segment(std::uint64_t size_bytes) {
    return backend_.allocate_segment(size_bytes);
  }
  virtual void free_segment(const Segment& segment) { backend_.free_segment(segment); }
  // The heap gets a new one. False: memory is short, or the limit is reached.
  bool add_segment(ExtentHeap& heap, Pool pool, std::uint64_t size_bytes);
  // Gives the extent's back, if no block lives in it. One that the driver refuses stays.
  bool release_segment(ExtentHeap& heap, Extent& extent);
  // Those of one heap, or of all after the frees by other threads. Whether there were any.
  bool release_free_segments(ExtentHeap& heap);
  bool release_free_segments();
  // For a destructor that frees them otherwise than the driver does.
  void free_all_segments();

  void add_reserved(Pool pool, std::int64_t bytes) {
    count_reserved(device_stats_, stat_pool(pool), bytes);
  }
  void count_segment(Pool pool, int change) {
    tenon::count_segment(device_stats_, stat_pool(pool), change);
  }

  std::uint64_t oversize_bytes_ = UINT64_MAX;  // segments from here on are counted apart

 private:
  static StatPool stat_pool(Pool pool) {
    return pool == Pool::kSmall ? StatPool::kSmall : StatPool::kLarge;
  }
};

}  // namespace tenon
