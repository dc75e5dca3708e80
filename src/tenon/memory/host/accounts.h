// The statistics of an allocator whose threads count for themselves.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/stats.h"

namespace tenon::host {

// Bytes requested, bytes of blocks, blocks, and bytes of blocks for another use (LocalAccount).
// Modulo 2^32. Every processor that Tenon runs on adds all four at once (SSE2, NEON).
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
// thread's heap.
//
// The fields that an allocation or a free writes come first, on one cache line with the lock.
// Allocations write other fields than frees: a pair that changes a field twice waits for the store
// of the first change. Note [room under the peak] in front/level.h: the room is bound - allocated.
//
// These counts begin anew now and then, and what they were goes into `changes_`. The fourth sees to
// it that they do not overflow: it is what was allocated since, and kFull less what may be freed
// before the level must be looked at. So a free reads nothing that an allocation writes.
class LocalAccount {
 public:
  // With several threads: how far a level may drift before the shared accounts are updated, or 1/64
  // of the total if that is more.
  static constexpr std::int64_t kFlushBytes = 512 * 1024;

  // What a block counts, beside the bytes requested. Requires: at most kLargestBytes.
  static constexpr Counts counts_of(std::uint32_t bytes) { return Counts{0, bytes, 1, bytes}; }
  static constexpr std::uint64_t kLargestBytes = 1 << 20;

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
  struct Change {
    std::int64_t level = 0;
    std::int64_t peak = 0;
    std::int64_t allocated = 0;

    void add(std::int64_t amount) {
      level += amount;
      allocated += amount;
    }
  };

  // --- Slow path. Both return whether the shared accounts must be updated.
  bool count_allocated(std::uint64_t bytes, std::uint64_t requested) {
    if (bytes > kLargestBytes) return count_large_allocated(bytes, requested);
    allocated_ += counts_of(low(bytes)) + Counts{low(requested)};
    for (std::size_t i = 0; i < 3; ++i)
      if (const std::uint32_t beyond = allocated_[i] - bound_[i]; beyond <= kMost) {
        peak_[i] += beyond;
        bound_[i] = allocated_[i];
      }
    if (negatives(bound_ - allocated_) == 0 && !is_due(level(1, bound_))) return false;
    begin_anew();
    return is_due(0);
  }
  bool count_freed(std::uint64_t bytes, std::uint64_t requested) {
    if (bytes > kLargestBytes) return count_large_freed(bytes, requested);
    bound_ += counts_of(low(bytes)) + Counts{low(requested)};
    if (allow_more(bound_)) return false;
    begin_anew();
    return is_due(0);
  }
  // Large blocks are in changes_ at once. The counts' rooms change by as much, if they can.
  bool count_large_allocated(std::uint64_t bytes, std::uint64_t requested) {
    const Counts block = {low(requested), low(bytes), 1, 0};
    const Counts bound = bound_ - block;
    const bool fits = bytes <= kMost && negatives(bound - allocated_) == 0;
    if (!fits) settle();
    changes_[0].add(static_cast<std::int64_t>(requested));
    changes_[1].add(static_cast<std::int64_t>(bytes));
    changes_[2].add(1);
    if (fits) {
      bound_ = bound;
      peak_ -= block;
    } else {
      for (Change& change : changes_) change.peak = std::max(change.peak, change.level);
      restart();
    }
    return is_due(level(1, bound_));
  }
  bool count_large_freed(std::uint64_t bytes, std::uint64_t requested) {
    changes_[0].level -= static_cast<std::int64_t>(requested);
    changes_[1].level -= static_cast<std::int64_t>(bytes);
    --changes_[2].level;
    const Counts block = {low(requested), low(bytes), 1, 0};
    const Counts room = bound_ + block - allocated_;
    if (bytes <= kMost && negatives(Counts{kMost, kMost, kMost, kFull - 1} - room) == 0) {
      bound_ += block;
      peak_ += block;
    }
    if (!is_alone_) {
      may_free_ = static_cast<std::int32_t>(at_most(drift_ + changes_[1].level));
      bound_[3] = kFull - 1;
    }
    return is_due(level(1, bound_));
  }
  // Whether bytes have drifted, with those that are not in changes_ yet.
  bool is_due(std::int64_t more) const { return std::abs(changes_[1].level + more) >= drift_; }
  // What may be freed from now on; false where the level must be looked at.
  bool allow_more(Counts& bound) const {
    const std::int32_t more = may_free_ + level(1, bound);
    bound[3] = kFull - static_cast<std::uint32_t>(more);
    return more > 0;
  }
  void begin_anew() {
    settle();
    restart();
  }
  void settle() {
    settle(0);
    settle(1);
    settle(2);
    settled_ = allocated_;
  }
  void settle(std::size_t i) {
    Change& change = changes_[i];
    const std::int64_t before = change.level;
    change.level += level(i, bound_);
    change.peak = std::max(change.peak, is_alone_ ? before + static_cast<std::int32_t>(peak_[i])
                                                  : change.level);
    change.allocated += allocated_[i] - settled_[i];
  }
  void restart() {
    peak_ = Counts{room(0), room(1), room(2), 0};
    may_free_ = static_cast<std::int32_t>(at_most(drift_ + changes_[1].level));
    bound_ = allocated_ + peak_;
    allocated_[3] = kFull / 2;
    bound_[3] = kFull - static_cast<std::uint32_t>(may_free_);
  }
  // With several threads the peak is that of the moments when the shared accounts are updated: a
  // thread that climbs need not come here before.
  std::uint32_t room(std::size_t i) const {
    return at_most((is_alone_ ? changes_[i].peak : drift_) - changes_[i].level);
  }
  static std::uint32_t low(std::uint64_t number) { return static_cast<std::uint32_t>(number); }
  static std::uint32_t at_most(std::int64_t number) {
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(number, 0, kMost));
  }
  // Of a count since it began.
  std::int32_t level(std::size_t i, Counts bound) const {
    return static_cast<std::int32_t>(peak_[i] + allocated_[i] - bound[i]);
  }
  static constexpr std::uint32_t kFull = std::uint32_t{1} << 31;
  static constexpr std::uint32_t kMost = 1 << 29;  // no count may be further from where it began

  Counts allocated_ = {};
  Counts bound_ = {};  // freed, and the peak

  Counts peak_ = {};
  Counts settled_ = {};  // of allocated_
  std::int32_t may_free_ = 0;
  std::int64_t drift_ = 0;  // of bytes, at which the shared accounts are updated
  std::array<Change, 3> changes_;  // before the counts began; of the first three
  bool is_alone_ = true;           // no other thread allocates
};

// What all threads together hold. A peak is exact while one thread allocates, and with several it
// may miss, for each of them, what the thread had not yet published (LocalAccount::kFlushBytes).
// Thread-safe: one lock, a leaf. On cache lines of its own, since what lies beside it is read at
// every allocation.
class alignas(64) Accounts {
 public:
  // Under the lock of the account's heap.
  void count_allocated(LocalAccount& account, std::uint64_t bytes, std::uint64_t requested) {
    if (account.count_allocated(bytes, requested)) flush(account);
  }
  void count_freed(LocalAccount& account, std::uint64_t bytes, std::uint64_t requested) {
    if (account.count_freed(bytes, requested)) flush(account);
  }
  // By threads without an account.
  void count_freed(std::uint64_t bytes, std::uint64_t requested) {
    const std::lock_guard lock(lock_);
    stats_.allocation[0].decrease(1);
    stats_.allocated_bytes[0].decrease(static_cast<std::int64_t>(bytes));
    stats_.requested_bytes[0].decrease(static_cast<std::int64_t>(requested));
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
  template <typename Apply>
  void flush(LocalAccount& account, Apply&& apply) {
    account.settle();
    const std::lock_guard lock(lock_);
    const std::array<Stat*, 3> all = {&stats_.requested_bytes[0], &stats_.allocated_bytes[0],
                                      &stats_.allocation[0]};
    for (std::size_t i = 0; i < all.size(); ++i) {
      const LocalAccount::Change& change = account.changes_[i];
      all[i]->peak = std::max(all[i]->peak, all[i]->current + change.peak);
      all[i]->current += change.level;
      all[i]->allocated += change.allocated;
    }
    apply(stats_);
    for (std::size_t i = 0; i < all.size(); ++i)
      account.changes_[i] = {0, account.is_alone_ ? all[i]->peak - all[i]->current : 0, 0};
    account.drift_ = account.is_alone_
                         ? INT64_MAX / 2
                         : std::max(LocalAccount::kFlushBytes, all[1]->current / 64);
    account.restart();
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
  mutable SpinLock lock_;
  AllocatorStats stats_;
};

}  // namespace tenon::host
