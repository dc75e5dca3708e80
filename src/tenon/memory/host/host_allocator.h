// The allocator for host memory: bins of small blocks for each thread, over large extents.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tenon/memory/device_allocator.h"
#include "tenon/memory/host/accounts.h"
#include "tenon/memory/host/extent_store.h"
#include "tenon/memory/host/local_heap.h"

namespace tenon {

// Requests up to 256 KiB come from size classes (eight to the octave) in spans that belong to the
// calling thread; larger ones, and the spans, from 64 MiB extents by best fit. The idea of
// mimalloc's pages (Leijen, Zorn, de Moura 2019), with the records out of line: the allocator never
// reads or writes what it places, so the same code runs on simulated devices.
//
//   thread 1:  bins of spans --+
//   thread 2:  bins of spans --+--> ExtentStore --> Backend      one store for each stream,
//   blocks above 256 KiB ------+                                 one in all if there are none
//
// Streams: a block freed on a stream is reused on that stream only; where the backend has no
// streams, anywhere. Memory goes back to the driver in whole extents: by empty_cache, when memory
// is short, and when an extent has not been used for long (ExtentStore::kDecayOperations).
//
// Threads: a cached pair takes no lock and no atomic read-modify-write. A block freed by another
// thread goes onto its heap's list, which the owner drains. empty_cache trims the heaps of the
// calling thread and of threads that have ended at once, those of others when they next look for
// memory. check_invariants looks at the same heaps.
//
// Alignment: 64 bytes. Cost: O(1) for small blocks, O(log n) for others, besides the driver.
class HostAllocator final : public DeviceAllocator {
 public:
  explicit HostAllocator(Backend& backend, std::uint64_t limit_bytes = 0);
  // Blocks that are still in use are given back to the driver: their DataPtrs must not be used.
  ~HostAllocator() override;

  std::string name() const override { return "host"; }
  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override;
  void record_stream(const DataPtr& data, Stream stream) override;
  void empty_cache() override;

  AllocatorStats stats() const override;
  void reset_peak_stats() override;
  std::uint64_t largest_free_bytes() const override;
  std::uint64_t layout_offset(const DataPtr& data) const override;
  void check_invariants() const override;

 private:
  friend class HostThread;  // hands heaps back when a thread ends

  static void free_block(void* context);
  void free_large(Block* block);
  DataPtr allocate_small(host::LocalHeap& heap, std::size_t size_bytes);
  DataPtr allocate_large(host::LocalHeap& heap, std::size_t size_bytes);
  DataPtr finish(host::LocalHeap& heap, void* data, void* context, std::size_t size_bytes,
                 bool fresh);
  Block* obtain(host::LocalHeap& heap, std::uint64_t size_bytes, bool& fresh);
  [[noreturn]] void give_up(std::size_t size_bytes, Stream stream);

  host::LocalHeap& heap_of_this_thread(Stream stream);
  host::LocalHeap* adopt_heap(std::uint32_t stream_key, Stream stream);
  void abandon(host::LocalHeap& heap);
  host::ExtentStore& store_for(std::uint32_t stream_key, Stream stream);
  void release_free_extents();
  void report_released(std::vector<Segment>& released, Stream stream);

  const std::uint64_t id_;  // of this instance; never used again
  const std::uint64_t limit_bytes_;
  const bool has_streams_;
  host::Accounts accounts_;
  mutable std::mutex mutex_;  // guards the two lists; taken before any other lock
  std::vector<std::unique_ptr<host::ExtentStore>> stores_;  // by stream key; may have gaps
  std::vector<std::unique_ptr<host::LocalHeap>> heaps_;     // all, owned by a thread or abandoned
};

}  // namespace tenon
