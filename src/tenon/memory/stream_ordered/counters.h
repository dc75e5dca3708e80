// What a stream heap counts of its blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tenon/memory/stats.h"
#include "tenon/memory/stream_ordered/extent.h"

namespace tenon {

// Of one pool, or of both together.
struct PoolCounters {
  Stat allocation;
  Stat allocated_bytes;
  Stat requested_bytes;
  Stat inactive_split;
  Stat inactive_split_bytes;
  std::int64_t pending = 0;        // freed, but other streams still use them; active all the same
  std::int64_t pending_bytes = 0;
  std::int64_t active_peak = 0;    // of allocation + pending, while anything is pending
  std::int64_t active_bytes_peak = 0;

  std::int64_t highest_active() const { return std::max(allocation.peak, active_peak); }
  std::int64_t highest_active_bytes() const {
    return std::max(allocated_bytes.peak, active_bytes_peak);
  }
  void raise_active_peaks() {
    active_peak = std::max(active_peak, allocation.current + pending);
    active_bytes_peak = std::max(active_bytes_peak, allocated_bytes.current + pending_bytes);
  }
  // Adds this share to what the pool `which` of `out` has.
  void add_to(AllocatorStats& out, StatPool which) const;
  void reset_peaks();
};

// The counters of both pools, and the peaks of their sum, kept exact at every step. Only what
// cannot be computed later is counted at each step: the sum itself is not.
class HeapCounters {
 public:
  const PoolCounters& of(Pool pool) const { return pools_[static_cast<int>(pool)]; }
  PoolCounters both() const;
  std::int64_t allocated_bytes() const {
    return pools_[0].allocated_bytes.current + pools_[1].allocated_bytes.current;
  }
  std::int64_t peak_allocated_bytes() const { return both_.allocated_bytes.peak; }

  void count_place(Pool pool, std::int64_t size, std::int64_t requested) {
    PoolCounters& c = at(pool);
    c.allocation.increase(1);
    c.allocated_bytes.increase(size);
    c.requested_bytes.increase(requested);
    raise(&PoolCounters::allocation);
    raise(&PoolCounters::allocated_bytes);
    raise(&PoolCounters::requested_bytes);
    if (pools_[0].pending + pools_[1].pending != 0) [[unlikely]] raise_active_peaks(c);
  }
  // Released and placed again that many times, with the free rests growing and shrinking in turn.
  void count_passed(Pool pool, std::int64_t times, std::int64_t size, std::int64_t requested,
                    std::int64_t split_blocks, std::int64_t split_bytes) {
    PoolCounters& c = at(pool);
    c.allocation.allocated += times;
    c.allocated_bytes.allocated += times * size;
    c.requested_bytes.allocated += times * requested;
    c.inactive_split.allocated += times * std::abs(split_blocks);
    c.inactive_split_bytes.allocated += times * std::abs(split_bytes);
  }
  // The block is no longer in use; it may be pending for a while before its size is forgotten.
  void count_release(Pool pool, std::int64_t size) {
    at(pool).allocation.decrease(1);
    at(pool).allocated_bytes.decrease(size);
  }
  void count_pending(Pool pool, std::int64_t blocks, std::int64_t bytes) {
    at(pool).pending += blocks;
    at(pool).pending_bytes += bytes;
  }
  void forget_requested(Pool pool, std::int64_t requested) {
    at(pool).requested_bytes.decrease(requested);
  }
  // The free blocks that share their segment with others are now so many, and no more than before.
  void lower_split(Pool pool, std::int64_t blocks, std::int64_t bytes) {
    at(pool).inactive_split.current = blocks;
    at(pool).inactive_split_bytes.current = bytes;
  }
  // ... are now so many.
  void set_split(Pool pool, std::int64_t blocks, std::int64_t bytes) {
    set_level(at(pool).inactive_split, blocks);
    set_level(at(pool).inactive_split_bytes, bytes);
    raise(&PoolCounters::inactive_split);
    raise(&PoolCounters::inactive_split_bytes);
  }
  void reset_peaks();

 private:
  PoolCounters& at(Pool pool) { return pools_[static_cast<int>(pool)]; }
  void raise(Stat PoolCounters::*stat) {
    const std::int64_t now = (pools_[0].*stat).current + (pools_[1].*stat).current;
    Stat& peak = both_.*stat;
    if (now > peak.peak) peak.peak = now;
  }
  void raise_active_peaks(PoolCounters& changed);
  static void set_level(Stat& stat, std::int64_t level) {
    if (level > stat.current) stat.allocated += level - stat.current;
    stat.current = level;
    if (level > stat.peak) stat.peak = level;
  }

  PoolCounters pools_[kPools];
  PoolCounters both_;  // its peaks alone are kept
};

}  // namespace tenon
