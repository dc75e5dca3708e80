// Allocators that stand on a Backend: what all policies have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/device/backend.h"
#include "tenon/memory/allocator.h"
#include "tenon/memory/observer.h"
#include "tenon/memory/raw_blocks.h"
#include "tenon/memory/reclaim.h"
#include "tenon/memory/stats.h"

namespace tenon {

// One block of a snapshot.
struct BlockInfo {
  std::uintptr_t address = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t requested_bytes = 0;
  // In use, freed while other streams still use it, free.
  enum class State : std::uint8_t { kActive, kPendingFree, kInactive } state = State::kInactive;
};

// One piece of driver memory of a snapshot, with its blocks by address.
struct SegmentInfo {
  std::uintptr_t address = 0;
  std::uint64_t size_bytes = 0;
  Stream stream;
  bool small_pool = false;
  bool expandable = false;
  std::vector<BlockInfo> blocks;
};

// An allocator over one Backend, in stream order: a block freed on a stream may be handed out again
// on that stream at once. Its next use is queued behind the earlier ones.
//
// Thread safety: every function may be called from any thread. A DataPtr may be dropped on any
// thread and, like the memory it owns, must not outlive its allocator.
class DeviceAllocator : public Allocator {
 public:
  explicit DeviceAllocator(Backend& backend) : backend_(backend), device_(backend.device()) {}
  DeviceAllocator(const DeviceAllocator&) = delete;
  DeviceAllocator& operator=(const DeviceAllocator&) = delete;

  virtual std::string name() const = 0;  // the policy's, as the command knows it
  // What it stands on.
  Backend& backend() const { return backend_; }
  Device device() const { return device_; }

  // On the calling thread's current stream.
  DataPtr allocate(std::size_t size_bytes) override {
    return allocate_on(size_bytes, current_stream(device_));
  }
  // Throws OutOfMemory, with what is known, when the request cannot be met; InvalidArgument when
  // the size exceeds kMaxRequestBytes or the stream is another device's.
  virtual DataPtr allocate_on(std::size_t size_bytes, Stream stream) = 0;

  // The same by bare pointer, for callers that cannot keep a DataPtr. The block's record is found
  // in a PointerMap, in `host` in a PageMap. Freeing a pointer that is not held throws
  // InvalidPointer and changes nothing; null is ignored.
  void* raw_allocate(std::size_t size_bytes) override;
  void raw_deallocate(void* data) override;
  virtual void* raw_allocate_on(std::size_t size_bytes, Stream stream);
  DeleterFn raw_deleter() const override {
    raw_holder().enrol();
    return &free_raw;
  }

  // The driver's, for segments; policies that place blocks more closely say so.
  std::size_t alignment() const override { return backend_.limits().alignment; }

  // The block is also used by work queued on `stream`: once freed it waits for that work too. A
  // no-op for the block's own stream. Throws InvalidPointer for a block of another allocator.
  // The default knows no streams but the block's own and throws InvalidArgument for others.
  virtual void record_stream(const DataPtr& data, Stream stream);

  // Makes a block larger in place, for work on its own stream, if the memory behind it is free:
  // `pool` always, buddy where the block is a lower half, the policies with PyTorch's two pools
  // where the block stays in its own. The others, and adaptors, grow a block within usable_size().
  // False: the block is as it was; move it. Observers hear of a free and a recycled block. Throws
  // InvalidPointer for a block of another allocator.
  virtual bool try_grow(DataPtr& data, std::size_t size_bytes) {
    return size_bytes <= usable_size(data);
  }

  // Gives cached, unused memory back to the driver. Never raises reserved bytes.
  virtual void empty_cache() {}

  // A copy of the counts, O(streams). Peaks over several streams are approximate (stats.h).
  virtual AllocatorStats stats() const = 0;
  // Peaks become the current values.
  virtual void reset_peak_stats() = 0;
  virtual std::uint64_t reserved_bytes() const {
    return static_cast<std::uint64_t>(stats().reserved_bytes[0].current);
  }
  // Largest free block inside what is reserved.
  virtual std::uint64_t largest_free_bytes() const { return 0; }
  virtual std::vector<SegmentInfo> snapshot() const { return {}; }

  // The block's place within its stream's range, for the layout hash: it depends on that stream's
  // sequence of calls alone, not on addresses. Requires: `data` is a live block of this allocator.
  virtual std::uint64_t layout_offset(const DataPtr& data) const = 0;

  // Throws InternalError when the allocator's state is not whole. O(blocks).
  virtual void check_invariants() const {}

  // Appends this allocator and those that its blocks come from, the nearest first.
  virtual void add_sources(std::vector<const Allocator*>& sources) const {
    sources.push_back(this);
  }

  // Virtual for adaptors, whose observers are their upstream's.
  virtual ObserverList& observers() { return observers_; }

  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    if (size_bytes > 0) backend_.copy(dest, src, size_bytes, current_stream(device_));
  }

 protected:
  // How a request that needs more memory fares, over all its tries.
  struct Growth {
    bool grown = false;      // it got memory from the driver
    bool of_driver = true;   // the last refusal was the driver's; false: the allocator's own limit
    bool retried = false;    // num_alloc_retries has counted it
  };

  // What allocate_on checks first. Throws InvalidArgument for what no allocator can serve.
  void check_request(std::size_t size_bytes, Stream stream) const {
    if (size_bytes > kMaxRequestBytes || stream.device != device_) [[unlikely]]
      refuse_request(size_bytes, stream);
  }
  [[noreturn]] void refuse_request(std::size_t size_bytes, Stream stream) const;  // always throws
  // Throws InvalidArgument, in the name of `caller`, for another device's stream.
  void check_stream(Stream stream, const char* caller) const;
  // Reports the failure and throws. No lock of the allocator may be held.
  [[noreturn]] void throw_out_of_memory(std::size_t size_bytes, Stream stream,
                                        std::uint64_t limit_bytes, std::string advice,
                                        bool of_driver);

  // Asks others for idle memory (reclaim.h); true: the request is worth another try. Likewise.
  bool reclaim_for_retry(bool of_driver) const { return reclaim_idle(shortage(of_driver)); }
  // Finds the blocks of raw_allocate.
  virtual RawHolder& raw_holder() const { return raw_table_; }
  RawTable& raw_table() const { return raw_table_; }
  // alignment() of a policy whose blocks lie at multiples of `step_bytes` in segments.
  std::size_t alignment_of_steps(std::uint64_t step_bytes) const {
    return std::min<std::uint64_t>(step_bytes, backend_.limits().alignment);
  }

  Backend& backend_;
  const Device device_;
  ObserverList observers_;

 private:
  Shortage shortage(bool of_driver) const { return {{device_, &backend_}, this, of_driver}; }
  std::string held_elsewhere(std::uint64_t reserved_bytes) const;

  mutable RawTable raw_table_;
};

}  // namespace tenon
