// The statistics of an allocator whose threads count for themselves.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/stats.h"

namespace tenon::host {

// Bytes requested, bytes of blocks, blocks, and bytes of blocks again, of one direction: see
// LocalAccount. Modulo 2^32. Every processor that Tenon runs on adds all four at once (SSE2, NEON).
using Counts = std::uint32_t __attribute__((vector_size(16)));

// Bit i: count i is negative.
inline int negatives(Counts counts) {
#if defined(__SSE2__)
  using Signs = float __attribute__((vector_size(16)));
  return __builtin_ia32_movmskps(reinterpret_cast<Signs>(counts));  // one instruction
#else
  const Counts signs = counts >> 31;
  return static_cast<int>(signs[0] | signs[1] << 1 | signs[2] << 2 | signs[3] << 3);
#endif
}

// What one thread has changed since the shared accounts were updated last; under the lock of the
// thread's heap. Levels count from that update.
//
// The fields that an allocation or a free writes come first, on one cache line with the lock.
// Allocations write other fields than frees: a pair that changes a field twice waits for the store
// of the first change. Note [room under the peak] in front/level.h: the room is bound - allocated.
//
// The fourth count sees to it that the others do not overflow: what was allocated since the update,
// and kFull less what may be freed before the level must be looked at. So a free reads nothing that
// an allocation writes.
class LocalAccount {
 public:
  // How far a level may drift before the shared accounts are updated. Larger blocks do not come
  // here.
  static constexpr std::uint32_t kMost = 1 << 28;
  static constexpr std::uint64_t kLargestBytes = 1 << 20;
  // With several threads, a level may drift so far, or 1/64 of the total if that is more.
  static constexpr std::int64_t kFlushBytes = 512 * 1024;

  // What a block counts, beside the bytes requested.
  static constexpr Counts counts_of(std::uint32_t bytes) { return Counts{0, bytes, 1, bytes}; }

  // --- Fast path: false, without effect, where a level rises above its peak or has drifted.
  bool count_allocated_fast(Counts block, std::uint32_t requested) {
    const Counts allocated = allocated_ + block + Counts{requested};
    if (negatives(bound_ - allocated) != 0) [[unlikely]] return false;
    allocated_ = allocated;
    return true;
  }
  bool count_freed_fast(Counts block, std::uint32_t requested) {
    Counts bound = bound_ + block + Counts{requested};
    if ((negatives(bound) & 8) != 0 && !allow_more(bound)) [[unlikely]] return false;
    bound_ = bound;
    return true;
  }
  // A number that is another one after an allocation or a free, and perhaps after an update.
  std::uint32_t operations() const { return allocated_[2] + bound_[2] - peak_[2]; }

 private:
  friend class Accounts;

  // Slow path. Returns whether the shared accounts must be updated.
  bool count_allocated(std::uint64_t bytes, std::uint64_t requested) {
    allocated_ += counts_of(low(bytes)) + Counts{low(requested)};
    for (std::size_t i = 0; i < 3; ++i)
      if (const std::uint32_t beyond = allocated_[i] - bound_[i]; beyond <= kMost) {
        peak_[i] += beyond;
        bound_[i] = allocated_[i];
      }
    return level(1, bound_) >= limit_ || negatives(bound_ - allocated_) != 0;
  }
  bool count_freed(std::uint64_t bytes, std::uint64_t requested) {
    bound_ += counts_of(low(bytes)) + Counts{low(requested)};
    return !allow_more(bound_);
  }
  // What may be freed from now on; false where the level has drifted.
  bool allow_more(Counts& bound) const {
    const std::int32_t more = limit_ + level(1, bound);
    bound[3] = kFull - static_cast<std::uint32_t>(more);
    return more > 0;
  }
  static std::uint32_t low(std::uint64_t number) { return static_cast<std::uint32_t>(number); }
  // Of a count, from the last update on.
  std::int32_t level(std::size_t i, Counts bound) const {
    return static_cast<std::int32_t>(peak_[i] + allocated_[i] - bound[i]);
  }
  static constexpr std::uint32_t kFull = std::uint32_t{1} << 31;

  Counts allocated_ = {};
  Counts bound_ = {};  // freed, and the peak

  Counts peak_ = {};
  Counts published_ = {};  // of allocated_
  std::int32_t limit_ = 0;
  bool is_alone_ = true;  // no other thread allocates
};

// What all threads together hold. A peak is exact while one thread allocates, and with several it
// may miss, for each of them, what the thread had not yet published (LocalAccount::kFlushBytes).
// Thread-safe: one lock, a leaf. On cache lines of its own, since what lies beside it is read at
// every allocation.
class alignas(64) Accounts {
 public:
  // Under the lock of the account's heap.
  void count_allocated(LocalAccount& account, std::uint64_t bytes, std::uint64_t requested) {
    if (bytes > LocalAccount::kLargestBytes)
      flush(account, [&](AllocatorStats& stats) {
        stats.allocation[0].increase(1);
        stats.allocated_bytes[0].increase(static_cast<std::int64_t>(bytes));
        stats.requested_bytes[0].increase(static_cast<std::int64_t>(requested));
      });
    else if (account.count_allocated(bytes, requested))
      flush(account);
  }
  void count_freed(LocalAccount& account, std::uint64_t bytes, std::uint64_t requested) {
    if (bytes > LocalAccount::kLargestBytes)
      flush(account, [&](AllocatorStats& stats) { decrease(stats, bytes, requested); });
    else if (account.count_freed(bytes, requested))
      flush(account);
  }
  // By threads without an account.
  void count_freed(std::uint64_t bytes, std::uint64_t requested) {
    change([&](AllocatorStats& stats) { decrease(stats, bytes, requested); });
  }
  // From now on other threads allocate as well.
  void join_others(LocalAccount& account) {
    account.is_alone_ = false;
    flush(account);
  }

  // All that the account has not published yet, and then a change of the shared figures. The
  // account of the only thread goes on below the peak of all.
  void flush(LocalAccount& account) {
    flush(account, [](AllocatorStats&) {});
  }
  template <typename Change>
  void flush(LocalAccount& account, Change&& apply) {
    const std::lock_guard lock(lock_);
    const std::array<Stat*, 3> all = {&stats_.requested_bytes[0], &stats_.allocated_bytes[0],
                                      &stats_.allocation[0]};
    for (std::size_t i = 0; i < all.size(); ++i) {
      Stat& stat = *all[i];
      stat.peak = std::max<std::int64_t>(stat.peak, stat.current + account.peak_[i]);
      stat.current += account.level(i, account.bound_);
      stat.allocated += account.allocated_[i] - account.published_[i];
    }
    apply(stats_);
    constexpr std::int64_t kMost = LocalAccount::kMost;
    std::int64_t limit = kMost;
    account.peak_ = Counts{};
    if (account.is_alone_)
      for (std::size_t i = 0; i < all.size(); ++i)
        account.peak_[i] =
            static_cast<std::uint32_t>(std::min(all[i]->peak - all[i]->current, kMost));
    else
      limit = std::clamp(all[1]->current / 64, LocalAccount::kFlushBytes, kMost);
    account.published_ = account.allocated_;
    account.bound_ = account.allocated_ + account.peak_;
    account.allocated_[3] = 0;
    account.bound_[3] = LocalAccount::kFull - static_cast<std::uint32_t>(limit);
    account.limit_ = static_cast<std::int32_t>(limit);
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
  static void decrease(AllocatorStats& stats, std::uint64_t bytes, std::uint64_t requested) {
    stats.allocation[0].decrease(1);
    stats.allocated_bytes[0].decrease(static_cast<std::int64_t>(bytes));
    stats.requested_bytes[0].decrease(static_cast<std::int64_t>(requested));
  }

  mutable SpinLock lock_;
  AllocatorStats stats_;
};

}  // namespace tenon::host
