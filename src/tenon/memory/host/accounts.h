// The statistics of an allocator whose threads count for themselves.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/front/level.h"
#include "tenon/memory/stats.h"

namespace tenon::host {

// What one thread has changed since the shared accounts were updated last; under the lock of the
// thread's heap. Levels count from that update, so they may be negative.
//
// The fields that an allocation or a free writes come first, on one cache line with the lock. A
// store that switches cache lines takes three times as long. Allocations write other fields than
// frees: a pair that changes a field twice waits for the store of the first change.
class LocalAccount {
 public:
  // With several threads: how far a level may drift before the shared accounts are updated, or 1/64
  // of the total if that is more.
  static constexpr std::int64_t kFlushBytes = 512 * 1024;

  // --- Fast path: false, without effect, where a level rises above its peak or has drifted.
  bool count_allocated_fast(std::uint64_t bytes, std::uint64_t requested) {
    const Pair allocated_bytes = allocated_bytes_ + as_pair(bytes, requested);
    const std::int64_t allocated = allocated_ + 1;
    if (any_negative(bytes_bound_ - allocated_bytes) || allocated > bound_) [[unlikely]]
      return false;
    allocated_bytes_ = allocated_bytes;
    allocated_ = allocated;
    return true;
  }
  bool count_freed_fast(std::uint64_t bytes, std::uint64_t requested) {
    const Pair bound = bytes_bound_ + as_pair(bytes, requested);
    const Pair room = bound - allocated_bytes_;  // whole: half of a store is not forwarded at once
    if (room[0] - bytes_peak_[0] >= flush_bytes_.load(std::memory_order_relaxed)) [[unlikely]]
      return false;
    bytes_bound_ = bound;
    ++bound_;
    return true;
  }

  // --- Slow path.
  void count_allocated(std::uint64_t bytes, std::uint64_t requested) {
    allocated_bytes_ += as_pair(bytes, requested);
    ++allocated_;
    for (std::size_t i = 0; i < 2; ++i)
      if (const std::int64_t beyond = allocated_bytes_[i] - bytes_bound_[i]; beyond > 0) {
        bytes_peak_[i] += beyond;
        bytes_bound_[i] = allocated_bytes_[i];
      }
    if (allocated_ > bound_) {
      blocks_peak_ += allocated_ - bound_;
      bound_ = allocated_;
    }
  }
  void count_freed(std::uint64_t bytes, std::uint64_t requested) {
    bytes_bound_ += as_pair(bytes, requested);
    ++bound_;
  }
  bool is_due() const {
    return std::abs(bytes_peak_[0] - bytes_room()[0]) >=
           flush_bytes_.load(std::memory_order_relaxed);
  }
  std::int64_t allocations() const { return allocated_; }  // ever

  // There are other threads, so this one must publish what it does. Any thread may call it.
  void begin_to_publish() { flush_bytes_.store(kFlushBytes, std::memory_order_relaxed); }
  bool publishes() const { return flush_bytes_.load(std::memory_order_relaxed) != INT64_MAX; }

 private:
  friend class Accounts;
  static Pair as_pair(std::uint64_t bytes, std::uint64_t requested) {
    return Pair{static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(requested)};
  }

  Pair bytes_room() const { return bytes_bound_ - allocated_bytes_; }
  std::int64_t blocks_room() const { return bound_ - allocated_; }

  // Bytes of blocks, bytes requested; blocks. Note [room under the peak] in front/level.h: the room
  // is what was freed ever, and the peak, less what was allocated ever.
  Pair allocated_bytes_ = {};
  std::int64_t allocated_ = 0;
  std::int64_t bound_ = 0;  // freed, and the peak
  Pair bytes_bound_ = {};

  Pair bytes_peak_ = {};
  std::int64_t blocks_peak_ = 0;
  Pair published_bytes_ = {};  // of allocated_bytes_
  std::int64_t published_ = 0;  // of allocated_
  std::atomic<std::int64_t> flush_bytes_ = INT64_MAX;
};

// What all threads together hold. A peak is exact while one thread allocates, and with several it
// may miss, for each of them, what the thread had not yet published (LocalAccount::kFlushBytes).
// Thread-safe: one lock, a leaf. On cache lines of its own, since what lies beside it is read at
// every allocation.
class alignas(64) Accounts {
 public:
  void flush(LocalAccount& account) {
    const std::lock_guard lock(lock_);
    flush(stats_.allocation[0], account.blocks_peak_, account.blocks_room(),
          account.allocated_ - account.published_);
    const std::array<Stat*, 2> bytes = {&stats_.allocated_bytes[0], &stats_.requested_bytes[0]};
    for (std::size_t i = 0; i < 2; ++i)
      flush(*bytes[i], account.bytes_peak_[i], account.bytes_room()[i],
            account.allocated_bytes_[i] - account.published_bytes_[i]);
    account.blocks_peak_ = 0;
    account.bytes_peak_ = Pair{};
    account.published_ = account.bound_ = account.allocated_;
    account.published_bytes_ = account.bytes_bound_ = account.allocated_bytes_;
    if (account.publishes())
      account.flush_bytes_.store(
          std::max(LocalAccount::kFlushBytes, stats_.allocated_bytes[0].current / 64),
          std::memory_order_relaxed);
  }

  // By threads without an account.
  void count_freed(std::uint64_t bytes, std::uint64_t requested) {
    const std::lock_guard lock(lock_);
    stats_.allocation[0].decrease(1);
    stats_.allocated_bytes[0].decrease(static_cast<std::int64_t>(bytes));
    stats_.requested_bytes[0].decrease(static_cast<std::int64_t>(requested));
  }

  // Around fork(2).
  void before_fork() { lock_.lock(); }
  void after_fork() { lock_.unlock(); }

  // Changes of the shared figures, under the lock.
  template <typename Change>
  void change(Change&& apply) {
    const std::lock_guard lock(lock_);
    apply(stats_);
  }

  AllocatorStats stats() const {
    const std::lock_guard lock(lock_);
    AllocatorStats out = stats_;
    out.active = out.allocation;
    out.active_bytes = out.allocated_bytes;
    return out;
  }

 private:
  static void flush(Stat& stat, std::int64_t peak, std::int64_t room, std::int64_t allocated) {
    stat.peak = std::max(stat.peak, stat.current + peak);
    stat.current += peak - room;
    stat.allocated += allocated;
  }

  mutable SpinLock lock_;
  AllocatorStats stats_;
};

}  // namespace tenon::host
