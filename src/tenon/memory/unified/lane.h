// What the unified allocator keeps for one stream, and counts there.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "tenon/base/biased_lock.h"
#include "tenon/memory/peak_board.h"
#include "tenon/memory/stats.h"
#include "tenon/memory/unified/buffer_pool.h"
#include "tenon/memory/unified/buffer_records.h"
#include "tenon/memory/unified/idle_heaps.h"
#include "tenon/memory/unified/stream_clocks.h"

namespace tenon::unified {

// One stream's pools, and the records, heaps and statistics of the buffers in them, whoever uses
// these. Threads on streams of their own meet in none of it.
//
// Thread safety: everything is under `lock` but `stream`, `clock` (see StreamClocks) and `user`.
// Peaks over several lanes are as exact as PeakBoard keeps them.
struct alignas(64) Lane {
  using Board = PeakBoard<9>;  // of all pools, the small and the large ones: three pairs

  Lane(UnifiedAllocator* allocator, std::atomic<std::uint64_t>& last_id,
       std::atomic<std::uint64_t>& idle_clock, std::uint32_t stream_id,
       StreamClocks::Clock& stream_clock)
      : stream(stream_id), clock(stream_clock), records(allocator, last_id), idle(idle_clock) {
    lock.lock();  // its thread owns the lock, not one that happens to look at all lanes first
    lock.unlock();
  }

  static std::size_t pool_index(Storage storage, SizeClass size_class) {
    return static_cast<std::size_t>(storage) * 3 + static_cast<std::size_t>(size_class);
  }
  BufferPool& pool(Storage storage, SizeClass size_class) {
    auto& pool = pools[pool_index(storage, size_class)];
    if (pool == nullptr) [[unlikely]]
      pool = std::make_unique<BufferPool>(*this, records, stats, stream, storage, size_class);
    return *pool;
  }

  // The calling thread was the last that allocated here.
  bool is_this_threads() const { return user.load(std::memory_order_relaxed) == thread_mark(); }

  // --- Statistics. Those of a buffer are its home's.
  // From now on peaks are shared with other lanes.
  void join(Board* shared);
  void publish();
  void publish_if_drifted() {
    if (board == nullptr) [[likely]] return;
    if (std::abs(stats.allocated_bytes[0].current - published[0][1]) >= allowed_drift) publish();
  }
  Board::Levels levels(std::int64_t Stat::*which) const;
  // Adds currents and totals; peaks are this lane's own.
  void add_stats(AllocatorStats& out) const;

  mutable BiasedLock lock;
  std::atomic<const void*> user{nullptr};  // thread_mark of who allocated last
  const std::uint32_t stream;
  StreamClocks::Clock& clock;
  BufferRecords records;
  IdleHeaps idle;
  AllocatorStats stats;
  std::array<std::unique_ptr<BufferPool>, 6> pools;  // by pool_index

  Board* board = nullptr;  // null while this is the only lane
  Board::Levels published = {};
  std::int64_t allowed_drift = 0;
};

// Replaces the peaks of the levels by the board's.
void set_peaks(AllocatorStats& out, const Lane::Board::Levels& peaks);

}  // namespace tenon::unified
