// What a stream heap counts of its blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tenon/memory/stats.h"
#include "tenon/memory/stream_ordered/extent.h"
#include "tenon/memory/stream_ordered/level.h"

namespace tenon {

// Of one pool, or of both together, as it is told.
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
  // Adds this share to what the pool `which` of `out` has.
  void add_to(AllocatorStats& out, StatPool which) const;
};

// The counters of both pools, and the peaks of their sum, kept exact at every step. Only what
// cannot be computed later is counted at each step.
class HeapCounters {
 public:
  PoolCounters of(Pool pool) const;
  PoolCounters both() const;
  std::int64_t allocated_bytes() const { return both_.used.current()[1]; }
  std::int64_t peak_allocated_bytes() const { return both_.used.peak[1]; }

  void count_place(Pool pool, std::int64_t size, std::int64_t requested) {
    Counts& c = at(pool);
    const Pair block = {1, size};
    c.placed += block;
    c.requested_ever += requested;
    c.used.room -= block;
    both_.used.room -= block;
    if (any_negative(c.used.room | both_.used.room)) [[unlikely]] {
      c.used.settle();
      both_.used.settle();
    }
    c.requested.room -= requested;
    both_.requested.room -= requested;
    if ((c.requested.room | both_.requested.room) < 0) [[unlikely]] {
      c.requested.settle();
      both_.requested.settle();
    }
    if (both_.pending[0] != 0) [[unlikely]] raise_active_peaks(c);
  }
  // Released and placed again that many times, with the free rests growing and shrinking in turn.
  void count_passed(Pool pool, std::int64_t times, std::int64_t size, std::int64_t requested,
                    std::int64_t split_blocks, std::int64_t split_bytes) {
    Counts& c = at(pool);
    c.placed += Pair{times, times * size};
    c.requested_ever += times * requested;
    c.split.allocated += times * std::abs(split_blocks);
    c.split_bytes.allocated += times * std::abs(split_bytes);
  }
  // The block is no longer in use; it may be pending for a while before its size is forgotten.
  void count_release(Pool pool, std::int64_t size) {
    const Pair block = {1, size};
    at(pool).used.room += block;
    both_.used.room += block;
  }
  void count_pending(Pool pool, std::int64_t blocks, std::int64_t bytes) {
    const Pair change = {blocks, bytes};
    at(pool).pending += change;
    both_.pending += change;
  }
  void forget_requested(Pool pool, std::int64_t requested) {
    at(pool).requested.room += requested;
    both_.requested.room += requested;
  }
  // The free blocks that share their segment with others are now so many, and no more than before.
  void lower_split(Pool pool, std::int64_t blocks, std::int64_t bytes) {
    at(pool).split.current = blocks;
    at(pool).split_bytes.current = bytes;
  }
  // ... are now so many.
  void set_split(Pool pool, std::int64_t blocks, std::int64_t bytes) {
    set_level(at(pool).split, blocks);
    set_level(at(pool).split_bytes, bytes);
    raise(both_.split, pools_[0].split.current + pools_[1].split.current);
    raise(both_.split_bytes, pools_[0].split_bytes.current + pools_[1].split_bytes.current);
  }
  void reset_peaks();

 private:
  struct Counts {
    Level<Pair> used;              // blocks and their bytes
    Pair placed = {};              // ever
    Level<std::int64_t> requested;
    std::int64_t requested_ever = 0;
    Stat split;                    // of both pools together, the peaks alone are kept
    Stat split_bytes;
    Pair pending = {};             // blocks and bytes
    Pair active_peak = {};         // of used + pending, while anything is pending

    Pair active() const { return used.current() + pending; }
    void raise_active_peak() {
      for (const int i : {0, 1}) active_peak[i] = std::max(active_peak[i], active()[i]);
    }
    void reset_peaks();
    PoolCounters told() const;
  };

  Counts& at(Pool pool) { return pools_[static_cast<int>(pool)]; }
  void raise_active_peaks(Counts& changed) {
    changed.raise_active_peak();
    both_.raise_active_peak();
  }
  static void raise(Stat& stat, std::int64_t level) {
    if (level > stat.peak) stat.peak = level;
  }
  static void set_level(Stat& stat, std::int64_t level) {
    if (level > stat.current) stat.allocated += level - stat.current;
    stat.current = level;
    raise(stat, level);
  }

  Counts pools_[kPools];
  Counts both_;  // without what is the sum of the pools' anyway: placed, requested_ever
};

}  // namespace tenon
