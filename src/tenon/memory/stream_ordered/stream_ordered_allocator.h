// The common path of all stream-ordered policies: caching, expandable and stitched.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "tenon/memory/caching/settings.h"
#include "tenon/memory/device_allocator.h"
#include "tenon/memory/stream_ordered/stream_heap.h"
#include "tenon/memory/stream_slots.h"

namespace tenon {

// Serves requests from per-stream heaps; what differs between policies is how a heap grows and what
// goes back to the driver.
//
//   allocate_on  -> StreamHeap::place_at_once    (no driver call, no clock)
//                -> StreamHeap::place            (the same by steps)
//                -> grow, place again            (device lock, then heap locks by stream id)
//   drop DataPtr -> StreamHeap::release_at_once
//                -> StreamHeap::release          (owner thread), or push_remote_free (any other)
//
// Sizes are rounded up to 512 bytes (or as the settings say); requests up to 1 MiB and larger ones
// have heaps apart. Thread safety: as DeviceAllocator. A free by DataPtr looks nothing up.
class StreamOrderedAllocator : public DeviceAllocator {
 public:
  ~StreamOrderedAllocator() override = default;

  DataPtr allocate_on(std::size_t size_bytes, Stream stream) final;
  void record_stream(const DataPtr& data, Stream stream) override;
  void empty_cache() override;

  // No more than this share of the device's memory, in (0, 1]. Throws InvalidArgument.
  void set_memory_fraction(double fraction);

  AllocatorStats stats() const override;
  void reset_peak_stats() override;
  std::uint64_t reserved_bytes() const override;
  std::uint64_t largest_free_bytes() const override;
  std::vector<SegmentInfo> snapshot() const override;
  std::uint64_t layout_offset(const DataPtr& data) const override;
  void check_invariants() const override;

 protected:
  // `limit_bytes`: 0 for none but the device's own.
  StreamOrderedAllocator(Backend& backend, const CachingSettings& settings,
                         std::uint64_t limit_bytes, std::uint64_t small_limit = kSmallSize);

  // --- What a policy does. All are called with device_mutex_ held and no heap locked.
  // Makes room for a block of `rounded` bytes in the stream's pool; false when that cannot be.
  virtual bool grow(StreamHeap& heap, Pool pool, std::uint64_t rounded) = 0;
  // Gives all cached memory of all streams back to the driver, after their pending frees are over.
  // Returns whether any went back.
  virtual bool release_cached() = 0;
  // How the pool's blocks are cut; called once for each heap.
  virtual PoolRules pool_rules(Pool pool) const = 0;
  // What would help a request that failed; for the error message. May be empty.
  virtual std::string advice() const { return {}; }

  // --- For policies, with device_mutex_ held.
  void add_reserved(Pool pool, std::int64_t bytes);
  void count_segment(Pool pool, int change);
  // True when `more` bytes would pass the allocator's own limit.
  bool exceeds_limit(std::uint64_t more) const;
  std::uint64_t limit_bytes() const { return limit_bytes_; }
  std::uint64_t reserved_now() const {
    return static_cast<std::uint64_t>(device_stats_.reserved_bytes[0].current);
  }
  template <typename Visit>
  void for_each_heap(Visit&& visit) const {  // in order of stream id
    heaps_.for_each(visit);
  }
  // An event for the observers, who hear of it once no lock is held.
  void note(MemoryEvent event, void* data, std::uint64_t size_bytes, Stream stream) {
    if (!observers_.empty()) [[unlikely]]
      notes_.push_back({event, data, size_bytes, stream, current_tag()});
  }
  // Takes in what other threads freed and waits for what other streams use.
  void finish_pending_frees();

  const CachingSettings settings_;
  mutable std::mutex device_mutex_;  // growth, release, and device_stats_
  AllocatorStats device_stats_;      // segments, reserved bytes and the num_ counters

 private:
  static void free_block(void* context);
  [[gnu::noinline]] static void free_by_steps(Block* block);
  [[gnu::noinline]] DataPtr allocate_by_steps(std::size_t size_bytes, Stream stream);
  static void* address_of(const Block* block) { return reinterpret_cast<void*>(block->offset); }
  DataPtr wrap(Block* block) { return {address_of(block), block, &free_block, device_}; }
  StreamHeap& make_heap(Stream stream);
  std::uint64_t round_size(std::uint64_t size_bytes) const {
    return plain_rounding_ ? align_up(size_bytes, kMinBlockSize) : settings_.round_size(size_bytes);
  }
  Pool pool_for(std::uint64_t rounded) const {
    return rounded <= small_limit_ ? Pool::kSmall : Pool::kLarge;
  }
  Block* place(StreamHeap& heap, Pool pool, std::uint64_t requested, std::uint64_t rounded,
               bool grown = false);
  Block* place_slowly(StreamHeap& heap, Pool pool, std::uint64_t requested, std::uint64_t rounded,
                      bool* grew);
  Block* block_of(const DataPtr& data, const char* caller) const;
  void report_notes();

  const std::uint64_t small_limit_;  // larger blocks come from the large pool
  const bool plain_rounding_;  // sizes are rounded to 512 bytes and no finer
  std::uint64_t limit_bytes_;
  std::vector<MemoryEventInfo> notes_;  // under device_mutex_
  StreamHeap::Board peak_board_;
  StreamSlots<StreamHeap> heaps_;
};

}  // namespace tenon
