// One heap for each stream, over chunks of driver memory: what pool, buddy and plan have in common.
#pragma once

#include <concepts>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tenon/base/biased_lock.h"
#include "tenon/base/spin_lock.h"
#include "tenon/memory/device_allocator.h"
#include "tenon/memory/lane_counters.h"
#include "tenon/memory/per_stream/chunk.h"
#include "tenon/memory/per_stream/fallback.h"
#include "tenon/memory/stream_slots.h"

namespace tenon {

// A stream's heap and its rule for growing. Handles are pointers to something with the policy's
// fields `owner` (inherited from the extent's name when blocks are cut) and `requested`.
template <typename L>
concept Lane = requires(L lane, const L& view, typename L::Handle handle,
                        typename L::Extent* extent, std::uint64_t number, Chunk* chunk) {
  { lane.place(number) } -> std::same_as<typename L::Handle>;  // null when nothing fits
  lane.release(handle);
  { L::offset_of(handle) } -> std::same_as<std::uint64_t>;
  { L::size_of(handle) } -> std::same_as<std::uint64_t>;
  // Bytes of a new chunk for a request that found no room: the first (0), second, ... choice; 0
  // bytes when there is no further choice. `number` of bytes are in chunks already.
  { view.chunk_bytes(number, int{}, number) } -> std::same_as<std::uint64_t>;
  { lane.add_chunk(number, number, chunk) } -> std::same_as<typename L::Extent*>;
  { L::is_wholly_free(extent) } -> std::same_as<bool>;
  lane.remove_chunk(extent);
  lane.note_refused();  // the driver had none of the chunks
  { view.largest_free() } -> std::same_as<std::uint64_t>;
  view.check_invariants();
};

// A lane that can try the common case alone: what it then gives is what place() would have given,
// null has no effect, and nothing is thrown.
template <typename L>
concept QuickLane = requires(L lane, std::uint64_t number) {
  { lane.place_at_once(number) } -> std::same_as<typename L::Handle>;
};

// A lane that may also place in a chunk that another lane has brought.
template <typename L>
concept BorrowingLane = requires(L lane, Chunk* chunk) {
  { lane.chunk_to_borrow() } -> std::same_as<Chunk*>;  // null: there is nothing to borrow
  { lane.add_chunk(0, 0, chunk, true) } -> std::same_as<typename L::Extent*>;
};

// Serves each stream from a heap of its own, so blocks are reused in stream order and no stream
// needs to wait for another. A heap that has no room grows by a chunk from the driver. When the
// driver has none left, chunks in which nothing lives go back to it and it is asked again; then the
// fallback, if there is one, is asked for the block alone.
//
// Thread safety: as DeviceAllocator. One lock for each lane, which costs its usual thread next to
// nothing and is held for one placement, so threads on streams of their own do not meet; growth has
// a mutex of its own, so a thread that waits for the driver stops nobody who finds room.
// Complexity: the heap's. A free by DataPtr looks nothing up: the block names its chunk, the chunk
// its lane. A block is only ever reused on its own stream; record_stream is refused for others.
template <typename L>
class PerStreamAllocator : public DeviceAllocator {
 public:
  using Handle = typename L::Handle;
  using Config = typename L::Config;

  // Gives all memory back to the driver; blocks that still live must not be used any more.
  ~PerStreamAllocator() override;

  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override;
  void record_stream(const DataPtr& data, Stream stream) override;
  void empty_cache() override;

  AllocatorStats stats() const override;
  void reset_peak_stats() override;
  std::uint64_t largest_free_bytes() const override;
  std::vector<SegmentInfo> snapshot() const override;
  std::uint64_t layout_offset(const DataPtr& data) const override;
  void check_invariants() const override;

 protected:
  // `limit_bytes`: most bytes to hold from the driver; 0: no limit but the device's. `fallback`
  // serves, over the same backend, what the lanes cannot; null: nobody does.
  PerStreamAllocator(Backend& backend, Config config, std::uint64_t limit_bytes,
                     std::unique_ptr<DeviceAllocator>&& fallback);

  const Config& config() const { return config_; }
  const DeviceAllocator* fallback() const { return fallback_ ? &fallback_->allocator() : nullptr; }
  // Visits the lanes by stream id, each under its lock.
  template <typename Visit>
  void for_each_lane(Visit&& visit) const {
    lanes_.for_each([&](LaneState& lane) {
      const std::lock_guard lock(lane.lock);
      visit(lane.stream.id, lane.heap);
    });
  }

 private:
  struct alignas(64) LaneState {
    LaneState(const Config& config, Stream on) : heap(make_heap(config, on)), stream(on) {}
    static L make_heap(const Config& config, Stream on) {
      if constexpr (std::constructible_from<L, const Config&, Stream>)
        return L(config, on);
      else
        return L(config, on.id);
    }
    mutable BiasedLock lock;  // all of the lane but `stream`
    L heap;
    LaneCounters counters;
    const Stream stream;
    std::uint64_t offset_end = 0;  // where the next chunk's numbers begin
    std::uint64_t chunk_bytes = 0;
    std::vector<std::unique_ptr<Chunk>> chunks;
    std::unique_ptr<Chunk> borrowed;  // its own record of a chunk that is another lane's
  };

  static Chunk* chunk_of(Handle block) { return static_cast<Chunk*>(block->owner); }
  static void* address_of(Handle block) {
    return reinterpret_cast<void*>(chunk_of(block)->address_of(L::offset_of(block)));
  }
  static void free_block(void* context);

  DataPtr wrap(Handle block) { return {address_of(block), block, &free_block, device_}; }
  LaneState& lane_of(Stream stream) {
    LaneState* lane = lanes_.find(stream);
    return lane != nullptr ? *lane : make_lane(stream);
  }
  LaneState& make_lane(Stream stream);
  static void count_placed(LaneState& lane, Handle block, std::size_t size_bytes) {
    block->requested = size_bytes;
    lane.counters.count_placed(L::size_of(block), size_bytes);
  }
  static void take_back(LaneState& lane, Handle block) {
    lane.counters.count_released(L::size_of(block), block->requested);
    lane.heap.release(block);
  }
  Handle place_in(LaneState& lane, std::size_t size_bytes);
  [[gnu::noinline]] DataPtr allocate_by_steps(std::size_t size_bytes, Stream stream);
  [[gnu::noinline]] static void free_by_steps(Handle block);
  DataPtr allocate_slowly(LaneState& lane, std::size_t size_bytes);
  Handle grow_and_place(LaneState& lane, std::size_t size_bytes);
  bool borrow_chunk(LaneState& lane);
  std::optional<Segment> allocate_chunk(std::uint64_t size_bytes);
  bool release_free_chunks();
  void add_borrowed_blocks(std::vector<SegmentInfo>& segments) const;
  bool release_if_free(LaneState& lane, std::size_t index);
  static void check_lane(const LaneState& lane);
  bool owns(const DataPtr& data) const;

  const Config config_;
  const std::uint64_t limit_bytes_;
  // Growth and release of chunks, new lanes. Then a lane's lock, then, or alone, this:
  mutable std::mutex grow_mutex_;
  mutable SpinLock lock_;  // the counters below
  StreamSlots<LaneState> lanes_;
  LaneTotals totals_;  // under grow_mutex_
  Stat reserved_;
  Stat segments_;
  std::int64_t num_device_alloc_ = 0;
  std::int64_t num_device_free_ = 0;
  std::int64_t num_alloc_retries_ = 0;
  std::int64_t num_ooms_ = 0;
  std::unique_ptr<Fallback> fallback_;
};

}  // namespace tenon

#include "tenon/memory/per_stream/per_stream_allocator_inl.h"
