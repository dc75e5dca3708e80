// Host memory that a device reads and writes by itself: pinned, cached, and given back. Thread
// safety and failure: as DeviceAllocator (device_allocator.h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tenon/memory/gpu/stream_ordered_allocator.h"

namespace tenon {

// Blocks of a backend's pinned memory for copies to and from the device.
//
// The host writes a block as soon as it has it, so no order of streams protects it. A freed block
// is used again only when its streams have finished what was queued before the free: the one it was
// allocated for and those of record_stream. An event covers all the frees since the last look.
//
// One heap serves all streams; observers hear of the default stream. Sizes are rounded up to 512
// bytes and no further. Blocks of up to 1 MiB share segments of 2 MiB. Larger ones have segments of
// their own, rounded to 4 KiB, which later requests may share. Whole free segments go back to the
// system by empty_cache() and when pinned memory runs out. Best fit by (size, address), O(log n).
class PinnedAllocator final : public StreamOrderedAllocator {
 public:
  // `limit_bytes`: most pinned memory to hold; 0: none.
  explicit PinnedAllocator(Backend& backend, std::uint64_t limit_bytes = 0)
      : StreamOrderedAllocator(backend, {}, limit_bytes) {}
  // Waits for what is pending, then gives everything back, whatever is still in use.
  ~PinnedAllocator() override;

  std::string name() const override { return "pinned"; }
  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override;
  void record_stream(const DataPtr& data, Stream stream) override;

 private:
  std::unique_ptr<FrontHeap> make_heap(Stream stream) override;
  bool may_grow(FrontHeap& heap, std::size_t size_bytes) override;
  bool grow_pool(BlockHeap& heap, Pool, std::uint64_t rounded) override;
  std::optional<Segment> make_segment(std::uint64_t size_bytes) override {
    return backend_.allocate_segment(size_bytes, MemoryKind::kPinned);
  }
  std::uint64_t most_bytes() const override { return limit_bytes(); }
  std::string advice() const override {
    return "pinned memory is the host's; free some, or use pageable memory";
  }

  IdleCache idle_cache_{*this};  // last
};

}  // namespace tenon
