// The allocator for host memory: bins of small blocks for each thread, over large regions. Failure:
// as DeviceAllocator (device_allocator.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "tenon/memory/device_allocator.h"
#include "tenon/memory/host/accounts.h"
#include "tenon/memory/host/decay_thread.h"
#include "tenon/memory/host/heap_directory.h"
#include "tenon/memory/host/raw_blocks.h"

namespace tenon {

// Requests up to 64 KiB come from size classes (eight to the octave) in spans that belong to the
// calling thread. Larger ones, and the spans, come from large regions by best fit. The idea of
// mimalloc's pages (Leijen, Zorn, de Moura 2019), with the records out of line. The allocator never
// reads or writes what it places, so the same code runs on simulated devices.
//
//   thread 1:  bins of spans --+
//   thread 2:  bins of spans --+--> RegionStore --> Backend      one store for each stream,
//   blocks above 64 KiB -------+                                 one in all if there are none
//
// Streams: a block freed on a stream is reused on that stream only; where the backend has no
// streams, anywhere. Memory goes back to the driver in whole regions: by empty_cache, when memory
// is short, and when a region was unused for RegionStore::kDecayOperations.
//
// Threads: a cached pair executes no atomic read-modify-write; the heap's lock is biased to its
// thread (BiasedLock). A block freed by another thread goes onto its heap's list, which the owner
// drains. empty_cache trims the heaps of all threads at once.
//
// By bare pointer: the block is found through a PageMap (its memory budget is stated there), which
// spans enter, and large blocks when they are first held that way.
//
// Idle memory, on a backend with a clock for it (limits().idle_ns; the host's is one second): a
// thread of the allocator runs once in that time. It returns what was idle for one to two of these
// periods to the system, in whole huge pages. empty_cache and trim do so at once. Free pages beyond
// what was ever in use do not wait for that: Note [close fit] (region_store.h). On such a backend,
// and after an idle second only, a placement may so depend on the clock.
//
// fork: the child has the whole allocator. What other threads were about to do happens not at all
// or wholly; their heaps are adopted by the child's next threads.
//
// Alignment: 64 bytes. Cost: O(1) for small blocks, O(log n) for others, besides the driver.
class HostAllocator final : public DeviceAllocator {
 public:
  [[gnu::cold]] explicit HostAllocator(Backend& backend, std::uint64_t limit_bytes = 0);
  // Blocks that are still in use are given back to the driver: their DataPtrs must not be used.
  [[gnu::cold]] ~HostAllocator() override;

  std::string name() const override { return "host"; }
  DataPtr allocate(std::size_t size_bytes) override;
  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override;
  void* raw_allocate(std::size_t size_bytes) override;
  void* raw_allocate_on(std::size_t size_bytes, Stream stream) override;
  void raw_deallocate(void* data) override;
  std::size_t alignment() const override { return alignment_of_steps(64); }
  void record_stream(const DataPtr& data, Stream stream) override;
  std::size_t usable_size(const DataPtr& data) const override;
  // The same of a block that is held by its bare pointer; 0 where there is none.
  std::size_t raw_usable_size(const void* data) const;
  void empty_cache() override;
  // empty_cache, and whatever the backend keeps besides. Returns the bytes the backend had kept.
  std::uint64_t trim();

  AllocatorStats stats() const override;
  void reset_peak_stats() override;
  std::uint64_t largest_free_bytes() const override;
  std::uint64_t layout_offset(const DataPtr& data) const override;
  [[gnu::cold]] void check_invariants() const override;

 private:
  friend class HostThread;  // hands heaps back when a thread ends, and prepares forks
  void before_fork();
  void after_fork(host::HeapDirectory::Process process);
  friend class OwnRawHolder<HostAllocator>;
  RawHolder& raw_holder() const override { return raw_holder_; }
  bool holds_raw(const void* data) const {
    return raw_blocks_.find_small(data) != nullptr || raw_blocks_.find_large(data) != nullptr ||
           raw_table().hold_of(data) != RawHolder::Hold::kNone;
  }
  enum class Try : bool { kFirst, kLast };  // before and after idle memory was given back

  // --- Allocation: bins, store, driver, in this order. `header` is the request (held.h).
  host::Held place_small_fast(std::size_t size_bytes, std::uintptr_t how, std::uint64_t key);
  host::Held place_large_fast(std::size_t size_bytes, std::uintptr_t how, std::uint64_t key);
  host::Held place_fast(std::size_t size_bytes, std::uintptr_t how, std::uint64_t key);
  [[gnu::noinline]] DataPtr allocate_large(std::size_t size_bytes);
  [[gnu::noinline]] DataPtr allocate_slow(std::size_t size_bytes, Stream stream);
  [[gnu::noinline]] void* raw_allocate_large(std::size_t size_bytes);
  host::Held take(std::uintptr_t header, Stream stream);
  host::Held try_once(host::LocalHeap& heap, std::uintptr_t header, Try which, bool& fresh,
                      host::Released& released);
  host::Held held_large(Block* block, std::uintptr_t header);
  Block* obtain(host::LocalHeap& heap, std::uint64_t size_bytes, Try which, bool& fresh,
                host::Released& released);
  // Whether the driver has refused, or else the allocator's own limit does.
  bool is_of_driver(std::size_t size_bytes) const;
  [[gnu::cold]] [[noreturn]] void give_up(std::size_t size_bytes, Stream stream);

  // --- Frees.
  static void free_block(void* context);
  bool release_small_fast(host::Slot* slot, host::Span* span, void* data, std::uintptr_t header);
  bool release_large_fast(Block* block, void* data);
  [[gnu::noinline]] static void free_large_block(Block* block);
  [[gnu::noinline]] static void free_slow(void* context);
  [[gnu::noinline]] void raw_deallocate_large(void* data, Block* block);
  [[gnu::noinline]] void raw_deallocate_other(void* data);
  void free_small(host::Slot* slot);
  void free_large(Block* block);
  void count_freed(std::uint64_t bytes, std::uint64_t requested);
  friend class host::LocalHeap;
  void release_idle(host::Released& released);
  bool decay();
  host::LocalHeap& heap_of_this_thread(Stream stream);

  const std::uint64_t id_;  // of this instance; never used again
  const std::uint64_t limit_bytes_;
  const std::uint64_t region_bytes_;
  const bool has_streams_;
  // HostThread::key_of a stream: its id counts only where the backend has streams. A request that
  // names no stream has a heap that is known beforehand only where there are none.
  std::uint64_t key_of(Stream stream) const { return key_ | (stream.id & stream_mask_); }
  const std::uint64_t key_;
  const std::uint32_t stream_mask_;
  const std::uint64_t streamless_key_;
  // The same by bare pointer; kNowhere once a block could not enter raw_blocks_. From then on
  // DeviceAllocator finds what is held that way.
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{1};
  std::atomic<std::uint64_t> raw_key_ = streamless_key_;
  bool finds_raw() const { return raw_key_.load(std::memory_order_relaxed) != kNowhere; }
  mutable host::Accounts accounts_;
  host::RawBlocks raw_blocks_;
  host::HeapDirectory heaps_;
  std::unique_ptr<host::DecayThread> decay_thread_;  // null: the backend has no clock for it
  mutable OwnRawHolder<HostAllocator> raw_holder_{*this};
  IdleCache idle_cache_{*this};  // last
};

// The process's, over host_backend(). Thread-safe, and never destroyed, so that memory may be freed
// while the program ends.
HostAllocator& host_allocator();

}  // namespace tenon
