// The statistics of an allocator whose threads count for themselves.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/stats.h"

namespace tenon::host {


// What one thread has changed since it last told the shared accounts. Blocks, bytes, requested
// bytes; under the lock of the thread's heap.
class LocalAccount {
 public:
  // With several threads: what one of them may keep to itself, or 1/64 of the total if that is
  // more.
  static constexpr std::int64_t kFlushBytes = 512 * 1024;

  void allocated(std::int64_t bytes, std::int64_t requested) {
    raise(0, 1);
    raise(1, bytes);
    raise(2, requested);
  }
  void freed(std::int64_t bytes, std::int64_t requested) {
    freed_[0] += 1;
    freed_[1] += bytes;
    freed_[2] += requested;
  }
  // Allocated and freed that many times in turn.
  void passed(std::int64_t times, std::int64_t bytes, std::int64_t requested) {
    for (auto* total : {&allocated_, &freed_}) {
      (*total)[0] += times;
      (*total)[1] += times * bytes;
      (*total)[2] += times * requested;
    }
  }
  bool is_due() const { return std::abs(drift(1)) >= flush_bytes_.load(std::memory_order_relaxed); }

  // There are other threads now, so this one must publish what it does. Any thread may call it.
  void begin_to_tell() { flush_bytes_.store(kFlushBytes, std::memory_order_relaxed); }
  bool tells() const { return flush_bytes_.load(std::memory_order_relaxed) != INT64_MAX; }

 private:
  friend class Accounts;
  std::int64_t drift(std::size_t i) const { return allocated_[i] - freed_[i]; }
  void raise(std::size_t i, std::int64_t amount) {
    allocated_[i] += amount;
    if (drift(i) > highs_[i]) [[unlikely]] highs_[i] = drift(i);
  }

  std::array<std::int64_t, 3> allocated_ = {};
  std::array<std::int64_t, 3> freed_ = {};
  std::array<std::int64_t, 3> highs_ = {};  // of allocated - freed
  std::atomic<std::int64_t> flush_bytes_ = INT64_MAX;
};

// What all threads together hold. A peak is exact while one thread allocates, and with several it
// may miss, for each of them, what the thread had not yet told (LocalAccount::kFlushBytes).
// Thread-safe: one lock, a leaf.
class Accounts {
 public:
  void flush(LocalAccount& account) {
    const std::lock_guard lock(lock_);
    for (std::size_t i = 0; i < 3; ++i) {
      Stat& stat = *usage(stats_)[i];
      stat.peak = std::max(stat.peak, stat.current + account.highs_[i]);
      stat.current += account.drift(i);
      stat.allocated += account.allocated_[i];
      account.allocated_[i] = account.freed_[i] = account.highs_[i] = 0;
    }
    if (account.tells())
      account.flush_bytes_.store(
          std::max(LocalAccount::kFlushBytes, stats_.allocated_bytes[0].current / 64),
          std::memory_order_relaxed);
  }

  // By threads without an account.
  void allocated(std::int64_t bytes, std::int64_t requested) {
    const std::lock_guard lock(lock_);
    stats_.allocation[0].increase(1);
    stats_.allocated_bytes[0].increase(bytes);
    stats_.requested_bytes[0].increase(requested);
  }
  void freed(std::int64_t bytes, std::int64_t requested) {
    const std::lock_guard lock(lock_);
    stats_.allocation[0].decrease(1);
    stats_.allocated_bytes[0].decrease(bytes);
    stats_.requested_bytes[0].decrease(requested);
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

  // But for these, which count as used here and are not.
  AllocatorStats stats_without(std::int64_t blocks, std::int64_t bytes,
                               std::int64_t requested) const {
    const std::lock_guard lock(lock_);
    AllocatorStats out = stats_;
    out.allocation[0].decrease(blocks);
    out.allocated_bytes[0].decrease(bytes);
    out.requested_bytes[0].decrease(requested);
    out.active = out.allocation;
    out.active_bytes = out.allocated_bytes;
    return out;
  }

 private:
  static std::array<Stat*, 3> usage(AllocatorStats& stats) {
    return {&stats.allocation[0], &stats.allocated_bytes[0], &stats.requested_bytes[0]};
  }

  mutable SpinLock lock_;
  AllocatorStats stats_;
};

}  // namespace tenon::host
