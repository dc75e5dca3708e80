// The policy `arena`: buffers of fixed size classes, straight from the driver, reused.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tenon/base/biased_lock.h"
#include "tenon/memory/arena/buffer_bins.h"
#include "tenon/memory/device_allocator.h"
#include "tenon/memory/lane_counters.h"
#include "tenon/memory/stream_slots.h"
#include "tenon/memory/system/system_allocator.h"

namespace tenon {

struct ArenaOptions {
  std::uint32_t max_per_size = 1024;  // free buffers kept of each size class and stream
  std::uint64_t limit_bytes = 0;      // on what is held from the driver; 0: none
};

// The size-class half of the arena (scopes are the other): a request is rounded up by less than an
// eighth, and every stream keeps up to `max_per_size` free buffers of each size. Nothing is split
// or merged, so it is as fast as an allocator gets and holds the most memory: for programs that
// ask for the same sizes over and over. When a request fails, every free buffer goes back first.
//
// Streams: a buffer is reused on its own stream only, at once. One that record_stream names for
// another stream is given up to its own stream's order at the free: that stream waits for the
// other. Thread safety: a lock for each stream, which costs its usual thread next to nothing and is
// not held during driver calls. allocate and free: O(1).
class ArenaAllocator final : public DeviceAllocator {
 public:
  explicit ArenaAllocator(Backend& backend, const ArenaOptions& options = {});
  // Gives everything back; DataPtrs that are left must not be used.
  ~ArenaAllocator() override = default;

  std::string name() const override { return "arena"; }
  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override;
  void record_stream(const DataPtr& data, Stream stream) override;
  void empty_cache() override;

  AllocatorStats stats() const override;
  void reset_peak_stats() override;
  std::uint64_t largest_free_bytes() const override;
  std::vector<SegmentInfo> snapshot() const override;
  // The buffer's number among those that its stream made.
  std::uint64_t layout_offset(const DataPtr& data) const override;
  void check_invariants() const override;

 private:
  // One stream's buffers; each names it as its owner.
  struct alignas(64) Lane {
    Lane(ArenaAllocator& its_arena, Stream on, std::uint32_t max_per_size)
        : arena(its_arena), stream(on), bins(max_per_size) {}
    ArenaAllocator& arena;
    const Stream stream;
    // A free buffer of the class, or null. Requires: the lock, as below.
    arena::PooledBuffer* take(std::uint32_t size_class, std::uint64_t requested_bytes) {
      arena::PooledBuffer* buffer = bins.take(size_class);
      if (buffer == nullptr) [[unlikely]] return nullptr;
      buffer->requested_bytes = requested_bytes;
      counters.count_placed(bins.class_bytes(size_class), requested_bytes);
      return buffer;
    }
    void count_released(const arena::PooledBuffer* buffer) {
      counters.count_released(bins.class_bytes(buffer->size_class), buffer->requested_bytes);
    }
    mutable BiasedLock lock;  // all below
    LaneCounters counters;
    arena::BufferBins bins;
    std::unordered_map<const arena::PooledBuffer*, std::vector<Stream>> other_users;
  };

  [[gnu::noinline]] DataPtr allocate_by_steps(std::size_t size_bytes, Stream stream);
  static void free_buffer(void* context);
  [[gnu::noinline]] static void free_by_steps(arena::PooledBuffer* buffer);
  Lane& lane_of(Stream stream) {
    Lane* lane = lanes_.find(stream);
    return lane != nullptr ? *lane : make_lane(stream);
  }
  Lane& make_lane(Stream stream);
  arena::PooledBuffer* create(Lane& lane, std::size_t size_bytes, std::uint32_t size_class);
  DataPtr from_driver(std::size_t size_bytes, std::uint64_t class_bytes, Stream stream);
  bool order_after_users(Lane& lane, arena::PooledBuffer* buffer);
  void give_back(Lane& lane, arena::PooledBuffer* surplus);
  void give_back(std::vector<DataPtr> memory);

  const ArenaOptions options_;
  SystemAllocator system_;
  StreamSlots<Lane> lanes_;
  mutable std::mutex lanes_mutex_;  // new lanes, totals_; taken before a lane's lock
  LaneTotals totals_;               // of blocks; what is held is the system allocator's to count
  std::atomic<std::int64_t> num_alloc_retries_{0};
  std::atomic<std::int64_t> num_ooms_{0};
};

}  // namespace tenon
