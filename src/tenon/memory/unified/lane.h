// What the unified allocator keeps for one stream, and counts there.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "tenon/base/biased_lock.h"
#include "tenon/memory/front/stream_counters.h"
#include "tenon/memory/unified/buffer_pool.h"

namespace tenon::unified {

// One stream's pools, and the records, heaps and statistics of the buffers in them, also of those
// that other streams use. Threads on streams of their own share none of it but two counts.
//
// Thread safety: everything is under `lock` but `stream`, `completion` (see Completions) and
// `user`.
struct alignas(64) Lane {
  [[gnu::cold]] Lane(UnifiedAllocator* allocator, std::atomic<std::uint64_t>& last_id,
                     std::atomic<std::uint64_t>& clock_of_idle, std::uint32_t stream_id,
                     Completions::Entry& stream_completion)
      : stream(stream_id),
        completion(stream_completion),
        idle_clock(clock_of_idle),
        records(allocator, last_id) {
    for (Counts* kind : {&small, &large}) counters.add_kind(*kind);
    // Its thread owns the lock, not one that happens to look at all lanes first.
    const std::lock_guard<BiasedLock> own(lock);
  }

  static std::size_t pool_index(Storage storage, SizeClass size_class) {
    return static_cast<std::size_t>(storage) * 3 + static_cast<std::size_t>(size_class);
  }
  BufferPool& pool(Storage storage, SizeClass size_class) {
    auto& pool = pools[pool_index(storage, size_class)];
    if (pool == nullptr) [[unlikely]]
      pool = std::make_unique<BufferPool>(*this, storage, size_class);
    return *pool;
  }

  // The calling thread was the last that allocated here.
  bool is_this_threads() const { return user.load(std::memory_order_relaxed) == thread_mark(); }
  // It is now.
  void note_user() {
    if (!is_this_threads()) [[unlikely]] user.store(thread_mark(), std::memory_order_relaxed);
  }

  // No buffer of the heap is out from now on; one of its buffers is out no more.
  void note_idle(BufferHeap* heap) {
    heap->idle_since = idle_clock.fetch_add(1, std::memory_order_relaxed);
  }
  void came_back(BufferHeap* heap) {
    if (--heap->buffers_out == 0) note_idle(heap);
  }

  // What other threads read stands on a cache line that seldom changes.
  std::atomic<const void*> user{nullptr};  // thread_mark of who allocated last
  const std::uint32_t stream;
  Completions::Entry& completion;
  std::atomic<std::uint64_t>& idle_clock;  // of all lanes
  alignas(64) mutable BiasedLock lock;
  BufferRecords records;
  // Of buffers, which count at their home; small ones (with scalars) and large ones apart.
  Counts small;
  Counts large;
  StreamCounters counters;
  std::array<std::unique_ptr<BufferPool>, 6> pools;  // by pool_index
};

}  // namespace tenon::unified
