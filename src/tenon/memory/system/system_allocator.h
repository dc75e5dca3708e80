// Each block straight from the driver.
#pragma once

#include <mutex>
#include <optional>

#include "tenon/base/pointer_map.h"
#include "tenon/base/slab.h"
#include "tenon/memory/device_allocator.h"
#include "tenon/memory/front/stream_counters.h"

namespace tenon {

// One driver segment for each block, given back as soon as the block is freed. Slow, and waits for
// the device at every free, as cudaMalloc and cudaFree do. It holds no byte that is not in use,
// except for the driver's own rounding. The fallback allocator of the pools and buddies. Under a
// limit, a segment that the driver rounds up beyond it is given back at once.
//
// Thread safety: one mutex, not held during driver calls. O(1) besides the driver.
// Failure: when the driver refuses to take a segment back, the free throws DeviceError. The block
// counts as freed and its memory as reserved. empty_cache and the destructor try again.
class SystemAllocator final : public DeviceAllocator {
 public:
  // `limit_bytes`: most bytes to hold from the driver; 0: no limit except the device's.
  explicit SystemAllocator(Backend& backend, std::uint64_t limit_bytes = 0)
      : DeviceAllocator(backend), limit_bytes_(limit_bytes) {}
  // Blocks that are still in use are given back to the driver: their DataPtrs must not be used.
  ~SystemAllocator() override;

  std::string name() const override { return "system"; }
  // On the host a cache line: its pages are more than any code asks for.
  std::size_t alignment() const override {
    return device_.type == DeviceType::kCpu ? alignment_of_steps(64) : DeviceAllocator::alignment();
  }
  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override;
  // The driver's free waits for all work, so any use on any stream is over by then.
  void record_stream(const DataPtr&, Stream) override {}

  std::size_t usable_size(const DataPtr& data) const override {
    return data == nullptr ? 0 : static_cast<const Block*>(data.get_context())->segment.size_bytes;
  }

  void empty_cache() override;
  AllocatorStats stats() const override;
  void reset_peak_stats() override;
  std::uint64_t layout_offset(const DataPtr& data) const override;
  void check_invariants() const override;

 private:
  struct Block {
    SystemAllocator* owner = nullptr;
    Segment segment;
    std::uint64_t requested_bytes = 0;
    std::uint64_t serial = 0;  // how many blocks the stream had allocated before
    Stream stream;
  };
  static void free_block(void* context);
  std::optional<Segment> take_segment(std::uint64_t size_bytes, Growth* growth);
  bool hold(std::uint64_t size_bytes);
  void release(const Segment& segment);

  const std::uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  Slab<Block> blocks_;
  PointerMap<Block> live_;
  std::vector<std::uint64_t> serials_;  // by stream id
  std::vector<Segment> unreleased_;     // freed, but the driver refused to take them back
  std::uint64_t held_bytes_ = 0;        // segments, and requests that the driver is serving
  StreamCounters counters_;             // of blocks
  AllocatorStats stats_;                // of segments, and the num_ counters
};

}  // namespace tenon
