// The front of every policy that serves each stream from a heap of its own.
#pragma once

#include <atomic>
#include <concepts>
#include <memory>
#include <string>
#include <vector>

#include "tenon/memory/device_allocator.h"
#include "tenon/memory/front/growth_mutex.h"
#include "tenon/memory/front/stream_heap.h"
#include "tenon/memory/front/stream_slots.h"

namespace tenon {

// One stream's heap, as the front's slow path uses it: under the heap's lock, unless it says
// otherwise. Blocks are the heap's own handles. place and release count the block in `counters`.
// What throws std::bad_alloc has changed nothing.
class FrontHeap : public StreamHeap {
 public:
  using StreamHeap::StreamHeap;
  virtual ~FrontHeap() = default;

  struct BlockFacts {
    void* address = nullptr;
    std::uint64_t size_bytes = 0;
    std::uint64_t requested_bytes = 0;
    std::uint64_t layout_offset = 0;
  };
  // Of a block in use. Needs no lock.
  virtual BlockFacts facts(void* block) const = 0;
  // A block, or null when nothing fits. `grown`: the heap has just grown for this request.
  virtual void* place(std::size_t size_bytes, bool grown) = 0;
  // The stream may have the block again at once. Allocates nothing.
  virtual void release(void* block) = 0;
  // Makes the block so large where it is; null: it cannot be, and is as before. The handle may be
  // another one afterwards.
  virtual void* extend(void* block, std::size_t size_bytes) = 0;
  // Blocks that other threads free (StreamHeap): adds one, without the lock; releases all.
  virtual void add_remote_free(void* block) = 0;
  virtual void release_remote_frees() = 0;
  // Freed blocks that other streams still use; takes in those that are over, waits on demand.
  virtual bool has_pending() const { return false; }
  virtual void process_pending(bool wait) { static_cast<void>(wait); }
  // Free memory that is to go back to the driver (release_surplus).
  virtual bool has_surplus() const { return false; }
  // False: the heap knows no stream but its own.
  virtual bool record_use(void* block, Stream stream) = 0;
  virtual std::uint64_t largest_free() const = 0;
  virtual void add_snapshot(std::vector<SegmentInfo>& segments) const = 0;
  virtual void check_invariants() const = 0;
};

// Finds the stream's heap, locks it, observes, and deals with frees from other threads, failure and
// questions. A policy says how a heap grows; FastPath, below, adds the common case for its heap H.
//
//   allocate_on  -> H::place_fast            owner's lock: two plain stores; no driver call
//                -> place                    after frees by other threads and completed uses
//                -> grow, place again        growth mutex, then heap locks by stream id
//                -> fallback, or OutOfMemory
//   drop DataPtr -> H::release_fast
//                -> release (the thread that allocates there), add_remote_free (any other)
//
// Thread safety: as DeviceAllocator. Threads on streams of their own share no lock but for growth,
// which has a mutex of its own, so a thread that waits for the driver stops no other that finds
// room. A question about all streams waits for the growth under way, and at most one more. A free
// by DataPtr looks nothing up, allocates nothing and throws nothing. (An event of memory that goes
// back to the driver takes some where there are observers; they miss it if there is none.)
class StreamFront : public DeviceAllocator, private Observer {
 public:
  [[gnu::cold]] ~StreamFront() override;

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
  virtual std::unique_ptr<FrontHeap> make_heap(Stream stream) = 0;
  // Whether the heap would grow for the request at all. If not, it is not asked to place it again.
  virtual bool may_grow(FrontHeap&, std::size_t) { return true; }
  // Makes room for the request in the heap; false when that cannot be.
  virtual bool grow(FrontHeap& heap, std::size_t size_bytes) = 0;
  // Gives the cached memory of all streams back to the driver, after their pending frees are over.
  // Returns whether any went back.
  virtual bool release_cached() = 0;
  // Gives the heap's surplus back to the driver.
  virtual void release_surplus(FrontHeap&) {}
  // For the error message: the most that can be held, and what would help. 0 and empty: unknown.
  virtual std::uint64_t most_bytes() const {
    return limit_bytes_ != 0 ? limit_bytes_ : backend_.total_bytes();
  }
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
  // In order of stream id; H: what make_heap makes.
  template <typename H = FrontHeap, typename Visit>
  void for_each_heap(Visit&& visit) const {
    heaps_.for_each([&](FrontHeap& heap) { visit(static_cast<H&>(heap)); });
  }
  // Each under its lock, with the frees of other threads taken in.
  template <typename H = FrontHeap, typename Visit>
  void for_each_locked_heap(Visit&& visit) const {
    heaps_.for_each([&](FrontHeap& heap) {
      const BiasedGuard lock(heap.lock);
      heap.release_remote_frees();
      visit(static_cast<H&>(heap));
    });
  }
  // An event for the observers, who learn of it once no lock is held.
  [[gnu::cold]] void note(MemoryEvent event, void* data, std::uint64_t size_bytes, Stream stream);
  // The heap of a block, else InvalidPointer in the name of `caller`; a block's use by a stream.
  FrontHeap& heap_of(const DataPtr& data, const char* caller) const;
  void record_use(FrontHeap& heap, const DataPtr& data, Stream stream);
  // Takes in what other threads freed, and waits for what other streams use.
  void finish_pending_frees();

  // --- For FastPath.
  DataPtr allocate_slowly(std::size_t size_bytes, Stream stream);
  static void free_slowly(FrontHeap& heap, void* block);
  virtual DataPtr wrap(void* block) const = 0;
  // Of the block behind the DataPtr; null: not the front's.
  virtual FrontHeap* heap_of(const DataPtr& data) const = 0;

  mutable GrowthMutex growth_mutex_;  // growth, release, new heaps, and what follows
  AllocatorStats device_stats_;      // segments, reserved bytes and the num_ counters
  StreamSlots<FrontHeap> heaps_;

 private:
  void on_memory_event(const MemoryEventInfo& info) override;
  [[gnu::cold]] FrontHeap& add_heap(Stream stream);
  bool is_of_fallback(const DataPtr& data) const;
  void* place(FrontHeap& heap, std::size_t size_bytes, bool grown, bool* has_surplus);
  void trim(FrontHeap& heap) noexcept;
  [[gnu::cold]] void* grow_and_place(FrontHeap& heap, std::size_t size_bytes, Growth* growth);
  [[gnu::cold]] DataPtr allocate_when_short(FrontHeap& heap, std::size_t size_bytes, Stream stream,
                                            Growth growth);
  [[gnu::cold]] DataPtr allocate_again(FrontHeap& heap, std::size_t size_bytes, Stream stream,
                                       Growth* growth);
  DataPtr hand_out(void* block, bool grown, std::size_t size_bytes, Stream stream);
  [[gnu::cold]] DataPtr ask_fallback(std::size_t size_bytes, Stream stream, Growth* growth);
  [[noreturn, gnu::cold]] void give_up(std::size_t size_bytes, Stream stream, bool of_driver);
  void report_notes();

  std::uint64_t limit_bytes_;
  bool refused_by_limit_ = false;  // the growth under way, when it was last tested
  PeakBoard peaks_;
  std::vector<MemoryEventInfo> notes_;
  std::atomic<bool> may_have_notes_{false};  // set before each growth, cleared with the notes
  const std::unique_ptr<DeviceAllocator> fallback_;  // its events are passed on
};

// What a heap type adds to FrontHeap for the common case, under the heap's lock.
template <typename H>
concept FastHeap =
    std::derived_from<H, FrontHeap> &&
    requires(H heap, typename H::Handle block, std::size_t size) {
      // Null: nothing fits, or only the slow path can tell. The heap is as before.
      { heap.place_fast(size) } -> std::same_as<typename H::Handle>;
      // False: the block needs the slow path. The heap is as before.
      { heap.release_fast(block) } -> std::same_as<bool>;
      { H::heap_of(block) } -> std::same_as<H&>;
      { H::address_of(block) } -> std::same_as<void*>;
    };

// The fast path over a front whose heaps are H. An allocation is some 80 instructions, and to save
// and restore registers would take a dozen more. So whatever else there is to do is a function of
// its own, called last.
template <typename H, std::derived_from<StreamFront> Front>
class FastPath : public Front {
 public:
  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override;

 protected:
  using Handle = typename H::Handle;

  template <typename... Arguments>
  explicit FastPath(Arguments&&... arguments) : Front(std::forward<Arguments>(arguments)...) {
    static_assert(FastHeap<H>);
  }

  DataPtr wrap(void* block) const final {
    return {H::address_of(static_cast<Handle>(block)), block, &free_block, this->device_};
  }
  FrontHeap* heap_of(const DataPtr& data) const final {
    if (data.get_deleter() != &free_block || data.get_context() == nullptr) return nullptr;
    H& heap = H::heap_of(static_cast<Handle>(data.get_context()));
    return &heap.allocator() == this ? &heap : nullptr;
  }

 private:
  static void free_block(void* context);
};

template <typename H, std::derived_from<StreamFront> Front>
DataPtr FastPath<H, Front>::allocate_on(std::size_t size_bytes, Stream stream) {
  this->check_request(size_bytes, stream);
  H* const heap = static_cast<H*>(this->heaps_.find(stream));
  if (heap != nullptr && size_bytes != 0 && this->observers_.empty()) [[likely]] {
    Handle block = nullptr;
    if (const OwnerGuard lock(heap->lock); lock) [[likely]]
      if (!heap->has_remote_frees() && !heap->has_pending()) [[likely]] {
        heap->adopt();
        block = heap->place_fast(size_bytes);
      }
    if (block != nullptr) [[likely]]
      return {H::address_of(block), block, &free_block, this->device_};
  }
  return this->allocate_slowly(size_bytes, stream);
}

template <typename H, std::derived_from<StreamFront> Front>
void FastPath<H, Front>::free_block(void* context) {
  const auto block = static_cast<Handle>(context);
  H& heap = H::heap_of(block);
  if (static_cast<FastPath&>(heap.allocator()).observers_.empty()) [[likely]] {
    bool done = false;
    if (const OwnerGuard lock(heap.lock); lock) [[likely]] done = heap.release_fast(block);
    if (done) [[likely]] return;
  }
  FastPath::free_slowly(heap, block);
}

}  // namespace tenon
