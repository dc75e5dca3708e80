// What caching, expandable, stitched, private pools and pinned memory have in common.
#pragma once

#include <memory>

#include "tenon/memory/front/segment_front.h"
#include "tenon/memory/gpu/block_heap.h"

namespace tenon {

extern template class FastPath<BlockHeap, SegmentFront>;

// Best fit in two pools for each stream, over the front; the policies differ in how a heap grows
// and what goes back to the driver. Sizes are rounded up to 512 bytes, or as the settings say;
// requests up to 1 MiB and larger ones have pools apart.
//
// Thread safety and failure: as StreamFront.
class StreamOrderedAllocator : public FastPath<BlockHeap, SegmentFront> {
 public:
  std::size_t alignment() const override { return alignment_of_steps(kMinBlockSize); }
  AllocatorStats stats() const override;
  void reset_peak_stats() override;
  // No more than this share of the device's memory, in (0, 1]. Throws InvalidArgument.
  void set_memory_fraction(double fraction);

 protected:
  // `limit_bytes`: 0 for none but the device's own.
  [[gnu::cold]] StreamOrderedAllocator(Backend& backend, const CachingSettings& settings,
                                       std::uint64_t limit_bytes);

  // --- What a policy does, besides advice, and release_cached where it holds more than segments.
  // Makes room for a block of `rounded` bytes in the stream's pool; false when that cannot be.
  virtual bool grow_pool(BlockHeap& heap, Pool pool, std::uint64_t rounded) = 0;
  // How the pool's blocks are cut; called once for each heap.
  virtual PoolRules pool_rules(Pool) const { return {}; }
  // PyTorch's, by the settings.
  PoolRules pytorch_pool_rules(Pool pool, bool expandable) const {
    const CutRules cut = settings_.cut_rules(pool == Pool::kSmall, expandable);
    if (pool == Pool::kSmall) return {cut};
    return {cut, settings_.max_split_size, settings_.max_non_split_rounding};
  }

  std::unique_ptr<FrontHeap> make_heap(Stream stream) override;
  bool release_cached() override {
    finish_pending_frees();
    return release_free_segments();
  }

  const CachingSettings settings_;

 private:
  bool grow(FrontHeap& heap, std::size_t size_bytes) final;

  const SizeRules sizes_;
};

}  // namespace tenon
