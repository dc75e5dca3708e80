// PyTorch's CUDA caching allocator, by its rules. Thread safety and failure: as DeviceAllocator
// (device_allocator.h).
#pragma once

#include "tenon/memory/gpu/stream_ordered_allocator.h"

namespace tenon {

// Fixed segments from the driver, cut by best fit and cached when free. Constants, settings and the
// order of last resorts are PyTorch's, so its reserved bytes are PyTorch's to the byte. Memory is
// stranded per stream and per pool, as there.
//
// On a miss, in this order: garbage collection if a threshold is set, a new segment, release of
// cached oversize blocks, release of every wholly free segment. Fast path O(log free blocks).
// Source: PyTorch's documentation, and what data/traces/pytorch_figures.json records.
class CachingAllocator final : public StreamOrderedAllocator {
 public:
  explicit CachingAllocator(Backend& backend, const CachingSettings& settings = {},
                            std::uint64_t limit_bytes = 0)
      : StreamOrderedAllocator(backend, settings, limit_bytes) {}

  std::string name() const override { return "caching"; }

 protected:
  bool grow_pool(BlockHeap& heap, Pool pool, std::uint64_t rounded) override;
  PoolRules pool_rules(Pool pool) const override { return pytorch_pool_rules(pool, false); }
  std::string advice() const override;

 private:
  bool release_oversize(BlockHeap& heap, std::uint64_t rounded);
  void collect_garbage();

  IdleCache idle_cache_{*this};  // last
};

}  // namespace tenon
