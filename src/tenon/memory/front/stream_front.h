// The front of every policy that serves each stream from a heap of its own.
#pragma once

#include <concepts>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tenon/memory/device_allocator.h"
#include "tenon/memory/front/fallback.h"
#include "tenon/memory/front/stream_heap.h"
#include "tenon/memory/front/stream_slots.h"
#include "tenon/memory/front/stream_totals.h"

namespace tenon {

// One stream's heap, as the front uses it: under the heap's lock, except for what is static.
// place and release count the block in `counters`. What throws std::bad_alloc has changed nothing.
template <typename H>
concept StreamHeapOf =
    std::derived_from<H, StreamHeap> &&
    requires(H heap, const H& view, typename H::Handle block, std::size_t size, Stream stream,
             std::vector<SegmentInfo>& segments) {
      // A block, or null when nothing fits. `grown`: the heap has just grown for this request.
      { heap.place(size, bool{}) } -> std::same_as<typename H::Handle>;
      // The same where nothing is out of the ordinary; else null, and nothing has changed.
      { heap.place_fast(size) } -> std::same_as<typename H::Handle>;
      // The stream may have the block again at once. Allocates nothing.
      heap.release(block);
      // The same where nothing is out of the ordinary; else false, and nothing has changed.
      { heap.release_fast(block) } -> std::same_as<bool>;
      // Makes the block so large where it is; null: it cannot be, and is as before. The handle may
      // be another one afterwards.
      { heap.extend(block, std::size_t{}) } -> std::same_as<typename H::Handle>;
      // Freed blocks that other streams still use; takes in those that are over, waits on demand.
      { view.has_pending() } -> std::same_as<bool>;
      heap.process_pending(bool{});
      // Free memory that is to go back to the driver (release_surplus).
      { view.has_surplus() } -> std::same_as<bool>;
      { H::heap_of(block) } -> std::same_as<H&>;
      { H::address_of(block) } -> std::same_as<void*>;
      { H::requested_of(block) } -> std::convertible_to<std::uint64_t>;
      { H::link_of(block) } -> std::same_as<typename H::Handle&>;  // of a block that was freed
      { H::kKnowsStreams } -> std::convertible_to<bool>;  // then: heap.record_use(block, stream)
      { view.largest_free() } -> std::same_as<std::uint64_t>;
      view.add_snapshot(segments);
      { H::layout_offset(block) } -> std::same_as<std::uint64_t>;
      view.check_invariants();
    };

// Finds the stream's heap, locks it, counts, observes, and deals with frees from other threads,
// with failure and with questions. A policy adds a heap type H and says how a heap grows.
//
//   allocate_on  -> H::place_fast            owner's lock: two plain stores; no driver call
//                -> H::place                 after frees by other threads and completed uses
//                -> grow, H::place again     growth mutex, then heap locks by stream id
//                -> fallback, or OutOfMemory
//   drop DataPtr -> H::release_fast
//                -> H::release (the thread that allocates there), push_remote_free (any other)
//
// What is marked cold is compiled for size, since each policy has a copy of it.
//
// The fast path calls nothing that it can do without: an allocation is some 80 instructions in all,
// and a dozen more to save and restore registers would show. Whatever else there is to do is a
// function of its own, called last.
//
// Thread safety: as DeviceAllocator. Threads on streams of their own share no lock but for growth,
// which has a mutex of its own, so a thread that waits for the driver stops no other that finds
// room. A free by DataPtr looks nothing up, allocates nothing and throws nothing.
template <typename H>
class StreamFront : public DeviceAllocator {
 public:
  using Handle = typename H::Handle;

  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override;
  void record_stream(const DataPtr& data, Stream stream) override;
  std::size_t usable_size(const DataPtr& data) const override;
  [[gnu::cold]] bool try_grow(DataPtr& data, std::size_t size_bytes) override;
  [[gnu::cold]] void empty_cache() override;

  [[gnu::cold]] AllocatorStats stats() const override;
  [[gnu::cold]] void reset_peak_stats() override;
  std::uint64_t reserved_bytes() const override;
  [[gnu::cold]] std::uint64_t largest_free_bytes() const override;
  [[gnu::cold]] std::vector<SegmentInfo> snapshot() const override;
  std::uint64_t layout_offset(const DataPtr& data) const override;
  [[gnu::cold]] void check_invariants() const override;

 protected:
  // `limit_bytes`: most bytes to hold from the driver; 0: no limit but the device's. `fallback`
  // serves, over the same backend, what the heaps cannot; null: there is none.
  [[gnu::cold]] StreamFront(Backend& backend, std::uint64_t limit_bytes,
                            std::unique_ptr<DeviceAllocator>&& fallback = nullptr);

  // --- What a policy does. All are called with growth_mutex_ held and no heap locked.
  virtual std::unique_ptr<H> make_heap(Stream stream) = 0;
  // Whether the heap would grow for the request at all. If not, it is not asked to place it again.
  virtual bool may_grow(H&, std::size_t) { return true; }
  // Makes room for the request in the heap; false when that cannot be.
  virtual bool grow(H& heap, std::size_t size_bytes) = 0;
  // Gives the cached memory of all streams back to the driver, after their pending frees are over.
  // Returns whether any went back.
  virtual bool release_cached() = 0;
  // Gives the heap's surplus back to the driver.
  virtual void release_surplus(H&) {}
  // What would help a request that failed; for the error message. May be empty.
  virtual std::string advice() const { return {}; }

  // --- For policies, with growth_mutex_ held.
  // True when `more` bytes would pass the allocator's own limit.
  bool exceeds_limit(std::uint64_t more) {
    return refused_by_limit_ = limit_bytes_ != 0 && reserved_now() + more > limit_bytes_;
  }
  std::uint64_t limit_bytes() const { return limit_bytes_; }
  void set_limit_bytes(std::uint64_t bytes) { limit_bytes_ = bytes; }
  std::uint64_t reserved_now() const {
    return static_cast<std::uint64_t>(device_stats_.reserved_bytes[0].current);
  }
  template <typename Visit>
  void for_each_heap(Visit&& visit) const {  // in order of stream id
    heaps_.for_each(visit);
  }
  // Each under its lock, with the frees of other threads taken in.
  template <typename Visit>
  void for_each_locked_heap(Visit&& visit) const {
    heaps_.for_each([&](H& heap) {
      const BiasedGuard lock(heap.lock);
      H::drain_remote_frees(heap);
      visit(heap);
    });
  }
  // An event for the observers, who learn of it once no lock is held.
  [[gnu::cold]] void note(MemoryEvent event, void* data, std::uint64_t size_bytes, Stream stream);
  // Takes in what other threads freed, and waits for what other streams use.
  void finish_pending_frees();
  // The block behind a DataPtr that this front handed out; null: another allocator did.
  Handle find_block(const DataPtr& data) const;
  Handle block_of(const DataPtr& data, const char* caller) const;

  mutable std::mutex growth_mutex_;  // growth, release, new heaps, and what follows
  AllocatorStats device_stats_;      // segments, reserved bytes and the num_ counters

 private:
  static void free_block(void* context);
  [[gnu::noinline]] static void free_slowly(Handle block);
  [[gnu::noinline]] DataPtr allocate_slowly(std::size_t size_bytes, Stream stream);
  DataPtr wrap(Handle block) { return {H::address_of(block), block, &free_block, device_}; }
  [[gnu::cold]] H& add_heap(Stream stream);
  Handle place(H& heap, std::size_t size_bytes, bool grown, bool* has_surplus);
  void trim(H& heap) noexcept;
  [[gnu::cold]] Handle grow_and_place(H& heap, std::size_t size_bytes, Growth* growth);
  [[gnu::noinline, gnu::cold]] DataPtr allocate_when_short(H& heap, std::size_t size_bytes,
                                                           Stream stream, Growth growth);
  [[gnu::cold]] DataPtr allocate_again(H& heap, std::size_t size_bytes, Stream stream,
                                       Growth* growth);
  DataPtr hand_out(Handle block, bool grown, std::size_t size_bytes, Stream stream);
  [[gnu::cold]] DataPtr ask_fallback(std::size_t size_bytes, Stream stream, Growth* growth);
  [[noreturn, gnu::cold]] void give_up(std::size_t size_bytes, Stream stream, bool of_driver);
  [[gnu::cold]] void report_notes();

  std::uint64_t limit_bytes_;
  bool refused_by_limit_ = false;  // the growth under way, when it was last tested
  StreamTotals totals_;
  std::vector<MemoryEventInfo> notes_;
  StreamSlots<H> heaps_;
  std::unique_ptr<Fallback> fallback_;
};

// For snapshots.
void sort_by_address(std::vector<SegmentInfo>& segments);

}  // namespace tenon

#include "tenon/memory/front/stream_front_inl.h"
