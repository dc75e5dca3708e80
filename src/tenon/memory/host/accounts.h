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


// What one thread has changed since it last told the shared accounts. Written by its owner alone,
// without read-modify-write instructions; read by anybody.
class LocalAccount {
 public:
  static constexpr std::int64_t kFlushBytes = 512 * 1024;

  void allocated(std::int64_t bytes, std::int64_t requested) {
    bump(drift_[0], highs_[0], 1);
    bump(drift_[1], highs_[1], bytes);
    bump(drift_[2], highs_[2], requested);
    add(totals_[0], 1);
    add(totals_[1], bytes);
    add(totals_[2], requested);
  }
  void freed(std::int64_t bytes, std::int64_t requested) {
    add(drift_[0], -1);
    add(drift_[1], -bytes);
    add(drift_[2], -requested);
  }
  bool is_due() const { return std::abs(get(drift_[1])) >= kFlushBytes; }

 private:
  friend class Accounts;
  using Counter = std::atomic<std::int64_t>;
  static std::int64_t get(const Counter& counter) {
    return counter.load(std::memory_order_relaxed);
  }
  static void add(Counter& counter, std::int64_t amount) {
    counter.store(get(counter) + amount, std::memory_order_relaxed);
  }
  static void bump(Counter& level, Counter& high, std::int64_t amount) {
    const std::int64_t now = get(level) + amount;
    level.store(now, std::memory_order_relaxed);
    if (now > get(high)) high.store(now, std::memory_order_relaxed);
  }

  // Blocks, bytes, requested bytes.
  std::array<Counter, 3> drift_ = {};   // since the last flush
  std::array<Counter, 3> highs_ = {};   // the highest drift since then
  std::array<Counter, 3> totals_ = {};  // allocated since then
};

// What all threads together hold. Currents and totals are exact at any time; a peak is exact while
// one thread allocates, and with several it may miss, for each of them, what the thread had not yet
// told (LocalAccount::kFlushBytes at most). Thread-safe: one lock, a leaf.
class Accounts {
 public:
  // Requires: called by the account's owner.
  void flush(LocalAccount& account) {
    const std::lock_guard lock(lock_);
    for (std::size_t i = 0; i < 3; ++i) {
      Stat& stat = *usage(stats_)[i];
      stat.peak = std::max(stat.peak, stat.current + LocalAccount::get(account.highs_[i]));
      stat.current += LocalAccount::get(account.drift_[i]);
      stat.allocated += LocalAccount::get(account.totals_[i]);
      for (auto* counter : {&account.drift_[i], &account.highs_[i], &account.totals_[i]})
        counter->store(0, std::memory_order_relaxed);
    }
  }

  // For blocks that no thread's account knows of: large ones, and frees by strangers.
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

  // Changes of the shared figures, under the lock.
  template <typename Change>
  void change(Change&& apply) {
    const std::lock_guard lock(lock_);
    apply(stats_);
  }

  // What all say together. `for_each_account(visit)` visits every LocalAccount.
  template <typename ForEach>
  AllocatorStats sum(ForEach&& for_each_account) const {
    const std::lock_guard lock(lock_);
    AllocatorStats out = stats_;
    std::array<std::int64_t, 3> highs = {INT64_MIN, INT64_MIN, INT64_MIN};
    for_each_account([&](const LocalAccount& account) {
      for (std::size_t i = 0; i < 3; ++i) {
        usage(out)[i]->current += LocalAccount::get(account.drift_[i]);
        usage(out)[i]->allocated += LocalAccount::get(account.totals_[i]);
        highs[i] = std::max(highs[i], LocalAccount::get(account.highs_[i]));
      }
    });
    for (std::size_t i = 0; i < 3; ++i) {
      Stat& stat = *usage(out)[i];
      stat.peak = std::max(stat.peak, stat.current);
      if (highs[i] != INT64_MIN)
        stat.peak = std::max(stat.peak, usage(stats_)[i]->current + highs[i]);
    }
    out.active = out.allocation;
    out.active_bytes = out.allocated_bytes;
    return out;
  }

  template <typename ForEach>
  void reset_peaks(ForEach&& for_each_account) {
    const std::lock_guard lock(lock_);
    tenon::reset_peaks(stats_);
    // Highs are their owners' to write; an owner that allocates at this moment may keep its old
    // one.
    for_each_account([this](LocalAccount& account) {
      for (std::size_t i = 0; i < 3; ++i) {
        const std::int64_t drift = LocalAccount::get(account.drift_[i]);
        account.highs_[i].store(drift, std::memory_order_relaxed);
        usage(stats_)[i]->peak += drift;
      }
    });
  }

 private:
  static std::array<Stat*, 3> usage(AllocatorStats& stats) {
    return {&stats.allocation[0], &stats.allocated_bytes[0], &stats.requested_bytes[0]};
  }
  static std::array<const Stat*, 3> usage(const AllocatorStats& stats) {
    return {&stats.allocation[0], &stats.allocated_bytes[0], &stats.requested_bytes[0]};
  }

  mutable SpinLock lock_;
  AllocatorStats stats_;
};

}  // namespace tenon::host
