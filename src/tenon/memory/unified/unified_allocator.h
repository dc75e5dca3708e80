// The allocator for memory that host and device share. tensor/compat/mps_names.h and compat/mlx.h
// have it by the names of PyTorch's MPS allocator and of MLX.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "tenon/memory/device_allocator.h"
#include "tenon/memory/front/growth_mutex.h"
#include "tenon/memory/front/stream_slots.h"
#include "tenon/memory/unified/callbacks.h"
#include "tenon/memory/unified/heap_supply.h"
#include "tenon/memory/unified/lane.h"
#include "tenon/memory/unified/memory_limits.h"

namespace tenon {

// How buffers are aligned, reused and limited.
struct UnifiedOptions {
  std::optional<unified::Storage> storage;  // of allocate(); default: shared where memory is one
  // What shared buffers are made of; default: kShared where host and device have one memory, else
  // none are made. A device with memory of its own takes kManaged or kPinned.
  std::optional<MemoryKind> shared_memory;
  std::uint64_t alignment = 16;             // of buffers up to 1 MiB: a power of two, 16 at least
  // A cached buffer serves a smaller request whole when it is at most so much larger: MPS's bound
  // and MLX's, of which the lower one counts.
  std::uint64_t max_oversize_bytes = 32 * kMiB;
  double max_oversize_factor = 2;
  std::uint64_t limit_bytes = 0;  // on what is held from the driver; 0: none
  // Heaps are of growth_bytes (growth_share.h), and before a new one idle heaps, all too small for
  // the request, go back. Buffers of up to 1 MiB share the heaps of larger ones, and cached buffers
  // become room before room is cut.
  bool grows_by_shares = false;
  // With what suits that: a cached buffer serves only requests that nearly fill it.
  void grow_by_shares() {
    grows_by_shares = true;
    max_oversize_factor = 1.125;
  }
};

// A buffer that is in use.
struct BufferInfo {
  std::uint64_t requested_bytes = 0;
  std::uint64_t size_bytes = 0;      // as handed out
  std::uint64_t id = 0;              // stays while the buffer is recycled
  unified::Storage storage = unified::Storage::kPrivate;
  const void* host = nullptr;        // where the host sees it; null: the buffer is private
  std::uint64_t offset_bytes = 0;    // in its heap
  std::uint32_t uses = 0;            // by other streams, not over yet
};

// Pooled buffers over few large heaps.
//
//   heap   8 MiB   requests up to 1 MiB, aligned to options.alignment
//         32 MiB   below 10 MiB, aligned to 256 bytes, like all above
//          1 GiB   below 512 MiB, while memory is not short
//      dedicated   the rest, rounded to 2 MiB
//   scalars of up to 8 bytes have heaps of their own
//
// A request is served by, in this order: the stream's smallest cached buffer that options accept,
// its free room, its cached buffers merged with that room, memory that another stream can spare
// (ordered by an event if need be), a new heap. Streams of other threads are asked when memory is
// short: before growth beyond a soft limit, and when there is no growth. Growth beyond a soft limit
// gives idle heaps back first, growth beyond a hard one fails (MemoryLimits). Then everything idle
// goes back, callbacks and pressure callbacks are asked, and it is OutOfMemory.
//
// Streams: a buffer belongs to the stream that allocated it until it is freed, and to those that
// record_stream and record_events name. Its own stream may have it again at once; another one waits
// for that stream's work. Before the host touches a shared buffer it must wait_for_events().
//
// Thread safety: most requests take the lock of the stream's lane alone, which costs its owner two
// plain stores. All else takes every lane's lock: growth, other streams' memory, events, figures.
// No lock is held while callbacks and observers run. allocate and free: O(log n), amortised over
// merging. Misuse (foreign pointers, double frees) throws InvalidPointer and changes nothing.
class UnifiedAllocator final : public DeviceAllocator {
 public:
  [[gnu::cold]] explicit UnifiedAllocator(Backend& backend, const UnifiedOptions& options = {});
  // Gives everything back to the driver; DataPtrs that are left must not be used.
  ~UnifiedAllocator() override = default;

  // --- Memory.
  std::string name() const override { return "unified"; }
  std::size_t alignment() const override { return alignment_of_steps(options_.alignment); }
  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override {
    return allocate_buffer(size_bytes, stream, default_storage_);
  }
  // Whether host and device reach the same bytes.
  bool supports_shared_storage() const { return shares_; }
  // Throws InvalidArgument for shared storage where it is not supported.
  DataPtr allocate_buffer(std::size_t size_bytes, Stream stream, unified::Storage storage);
  // A shared (else private) buffer of `size_bytes` <= 8 with a copy of the value, on the calling
  // thread's current stream.
  DataPtr alloc_scalar_buffer_with_value(const void* value, std::size_t size_bytes);
  // Frees a buffer whose DataPtr gave up ownership (release_context), by its address.
  void deallocate(void* data);
  // Memory by bare pointer: the allocator knows its addresses.
  void raw_deallocate(void* data) override { deallocate(data); }

  // Waits for pending buffers, and gives all heaps without a buffer in use back to the driver.
  void empty_cache() override;
  // Pending buffers whose recorded work is over become available again: how many bytes. Never
  // waits, and gives nothing to the driver.
  std::uint64_t free_inactive_buffers();

  // --- Buffers, by the address of their first byte. Each throws InvalidPointer for any other
  // pointer.
  BufferInfo describe(const void* data) const;
  void set_buffer_shape(const void* data, std::span<const std::int64_t> shape);
  // As set, empty before; valid until the buffer is freed or its shape is set again.
  std::span<const std::int64_t> buffer_shape(const void* data) const;

  // --- Events.
  void record_stream(const DataPtr& data, Stream stream) override;
  std::size_t usable_size(const DataPtr& data) const override {
    return data == nullptr ? 0 : describe(data.get()).size_bytes;
  }
  // The work queued now on the calling thread's current stream uses these buffers. True when there
  // was any buffer.
  bool record_events(std::span<const void* const> buffers);
  // The host waits until the recorded work on these buffers is over, and whatever used their bytes
  // before they were allocated. True when any had an event recorded.
  bool wait_for_events(std::span<const void* const> buffers);

  // --- Limits and pressure.
  unified::MemoryLimits& limits() { return limits_; }
  // As MemoryLimits has it, and in force when this returns.
  std::uint64_t set_cache_limit(std::uint64_t bytes);
  PressureCallbacks& pressure_callbacks() { return pressure_; }

  // --- DeviceAllocator's questions.
  AllocatorStats stats() const override;
  void reset_peak_stats() override;
  std::uint64_t reserved_bytes() const override;
  std::uint64_t largest_free_bytes() const override;
  [[gnu::cold]] std::vector<SegmentInfo> snapshot() const override;
  std::uint64_t layout_offset(const DataPtr& data) const override;
  [[gnu::cold]] void check_invariants() const override;

 private:
  struct Request {
    std::uint64_t size_bytes = 0;  // rounded
    std::uint64_t requested_bytes = 0;
    std::uint64_t alignment = 0;
    Stream stream;
    unified::Storage storage = unified::Storage::kPrivate;
    unified::SizeClass size_class = unified::SizeClass::kLarge;

    std::size_t pool_index() const { return unified::Lane::pool_index(storage, size_class); }
  };
  struct Served {
    unified::Buffer* buffer = nullptr;
    MemoryEvent event = MemoryEvent::kRecycled;
  };
  // Holds mutex_ and every lane's lock.
  class AllLanesLock {
   public:
    explicit AllLanesLock(const UnifiedAllocator& allocator)
        : AllLanesLock(allocator, std::unique_lock(allocator.mutex_)) {}
    AllLanesLock(const UnifiedAllocator& allocator, std::unique_lock<GrowthMutex> growing);
    ~AllLanesLock();
    AllLanesLock(const AllLanesLock&) = delete;
    AllLanesLock& operator=(const AllLanesLock&) = delete;

   private:
    const UnifiedAllocator& allocator_;
    const std::unique_lock<GrowthMutex> growing_;
  };
  using Buffers = std::span<const void* const>;

  static void free_block(void* context);
  Request make_request(std::size_t size_bytes, Stream stream, unified::Storage storage,
                       bool scalar) const;
  DataPtr obtain(const Request& request);
  DataPtr obtain_slowly(const Request& request);
  Served try_to_serve(const Request& request, Growth* growth);
  DataPtr wrap(unified::Buffer* buffer, MemoryEvent event, const Request& request);
  [[gnu::cold]] unified::Lane& make_lane(Stream stream);
  void free_slowly(void* data);

  // --- Under the lane's lock.
  unified::Buffer* reuse_fast(unified::BufferPool& pool, const Request& request);
  static unified::Buffer* merge_and_place(unified::BufferPool& pool, const Request& request);
  static void hand_out(unified::Buffer* buffer, const Request& request);
  bool put_back_fast(unified::Lane& lane, unified::Buffer* buffer);
  void mark_for_others(unified::Lane& lane);
  static void count_back(unified::Lane& lane, unified::Buffer* buffer);
  static void expect_pending(unified::BufferPool& pool, unified::Buffer* buffer);
  static void count_pending(unified::BufferPool& pool, const unified::Buffer* buffer, int sign);
  static void make_cached(unified::BufferPool& pool, unified::Buffer* buffer);
  // Calls visit(lane, buffer), under a Lock of the lane, for the buffer in use that starts there.
  // The lanes of this thread are searched first. Throws InvalidPointer when there is none.
  template <typename Lock, typename Visit>
  auto at_buffer(const void* data, const char* call, Visit&& visit) const;

  // --- All below with all lanes locked.
  Served serve(const Request& request);
  [[gnu::cold]] Served serve_by_eviction(const Request& request, Growth* growth);
  std::uint64_t largest_acceptable(std::uint64_t size_bytes) const;
  [[gnu::cold]] std::uint64_t heap_bytes(const unified::BufferPool& pool, const Request& request,
                                         bool under_pressure) const;
  unified::Buffer* reuse(unified::BufferPool& pool, const Request& request);
  unified::Buffer* take_pending(unified::BufferPool& pool, const Request& request);
  enum class From : bool { kThisThread, kOtherThreads };
  [[gnu::cold]] unified::Buffer* borrow(const Request& request, From whose);
  bool passes(std::uint64_t more, std::uint64_t limit) const {
    return more > limit || supply_.reserved_bytes() > limit - more;
  }
  [[gnu::cold]] bool grow(unified::BufferPool& pool, const Request& request);
  void put_back(unified::Buffer* buffer);
  bool settle(unified::Buffer* buffer);
  std::uint64_t settle_pending(unified::BufferPool& pool);
  void settle_everything();
  // Gives idle heaps back, those that became idle first, while `wanted` says so.
  template <typename Wanted>
  void release_idle(Wanted&& wanted) {
    while (wanted()) {
      unified::BufferHeap* const heap = supply_.oldest_idle();
      if (heap == nullptr) return;
      supply_.release(heap);
    }
  }
  void trim_to_cache_limit() noexcept;
  AllocatorStats totals() const;
  template <typename Visit>
  void for_each_pool(Visit&& visit) const {
    lanes_.for_each([&](unified::Lane& lane) {
      for (const auto& pool : lane.pools)
        if (pool != nullptr) visit(*pool);
    });
  }
  unified::Buffer* find_in_use(const void* data, const char* call) const;
  std::vector<unified::Buffer*> find_in_use(Buffers buffers, const char* call) const;
  [[noreturn]] void refuse_pointer(const void* data, const char* call, bool known) const;

  // --- Without it.
  [[noreturn]] void refuse_shared() const;
  void report(MemoryEvent event, void* data, std::uint64_t size_bytes, Stream stream);
  void report_heaps(const unified::HeapChanges& changes);

  const UnifiedOptions options_;
  const bool shares_;
  const unified::Storage default_storage_;
  unified::MemoryLimits limits_;
  PressureCallbacks pressure_;

  alignas(64) std::atomic<std::uint64_t> last_id_{0};     // of buffers
  alignas(64) std::atomic<std::uint64_t> idle_clock_{0};  // of Lane
  mutable GrowthMutex mutex_;  // before the locks of several lanes; what follows needs all of them
  unified::Completions completions_;
  AllocatorStats stats_;  // of heaps, and the num_ counters
  unified::HeapSupply supply_;
  PeakBoard peaks_;
  StreamSlots<unified::Lane> lanes_;
  IdleCache idle_cache_{*this};  // last
};

}  // namespace tenon
