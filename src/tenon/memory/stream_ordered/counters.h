// What a stream heap counts of its blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tenon/memory/stats.h"
#include "tenon/memory/stream_ordered/extent.h"
#include "tenon/memory/level.h"

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
  std::int64_t active_peak = 0;    // of allocation + pending
  std::int64_t active_bytes_peak = 0;

  // Adds this share to what the pool `which` of `out` has.
  void add_to(AllocatorStats& out, StatPool which) const;
};

// What is counted of one pool, or of both together, at every step. Only what cannot be computed
// later is.
struct Counts {
  Level<Pair> used;              // blocks and their bytes
  Pair placed = {};              // ever; of both together it is a sum, and not kept
  Level<std::int64_t> requested;
  std::int64_t requested_ever = 0;
  Stat split;                    // of both together, the peaks alone are kept
  Stat split_bytes;
  Pair pending = {};             // blocks and bytes
  Pair active_peak = {};         // of used + pending, while anything is pending

  Pair active() const { return used.current() + pending; }
  Pair highest_active() const { return active_peak > used.peak ? active_peak : used.peak; }
  void raise_active_peak() { active_peak = active() > active_peak ? active() : active_peak; }
  void reset_peaks();
  PoolCounters told() const;
};

// Counts for a pool and for both pools of its heap, so that all peaks are exact.
class HeapCounters {
 public:
  // `of` is one of the two from now on.
  void add_pool(Counts& of) { pools_[pools_[0] == nullptr ? 0 : 1] = &of; }

  PoolCounters both() const;
  const Counts& of_both() const { return both_; }
  std::int64_t allocated_bytes() const { return both_.used.current()[1]; }
  std::int64_t peak_allocated_bytes() const { return both_.used.peak[1]; }

  void count_place(Counts& pool, std::int64_t size, std::int64_t requested) {
    const Pair block = {1, size};
    pool.placed += block;
    pool.requested_ever += requested;
    pool.used.room -= block;
    both_.used.room -= block;
    if (any_negative(pool.used.room | both_.used.room)) [[unlikely]] {
      pool.used.settle();
      both_.used.settle();
    }
    pool.requested.room -= requested;
    both_.requested.room -= requested;
    if ((pool.requested.room | both_.requested.room) < 0) [[unlikely]] {
      pool.requested.settle();
      both_.requested.settle();
    }
    if (both_.pending[0] != 0) [[unlikely]] raise_active_peaks(pool);
  }
  // Released and placed again that many times, with the free rests growing and shrinking in turn.
  static void count_passed(Counts& pool, std::int64_t times, std::int64_t size,
                           std::int64_t requested, std::int64_t split_blocks,
                           std::int64_t split_bytes) {
    pool.placed += Pair{times, times * size};
    pool.requested_ever += times * requested;
    pool.split.allocated += times * std::abs(split_blocks);
    pool.split_bytes.allocated += times * std::abs(split_bytes);
  }
  // The block is no longer in use; it may be pending for a while before its size is forgotten.
  void count_release(Counts& pool, std::int64_t size) {
    const Pair block = {1, size};
    pool.used.room += block;
    both_.used.room += block;
  }
  void count_pending(Counts& pool, std::int64_t blocks, std::int64_t bytes) {
    const Pair change = {blocks, bytes};
    pool.pending += change;
    both_.pending += change;
  }
  void forget_requested(Counts& pool, std::int64_t requested) {
    pool.requested.room += requested;
    both_.requested.room += requested;
  }
  // The free blocks that share their segment with others are now so many, and no more than before.
  static void lower_split(Counts& pool, std::int64_t blocks, std::int64_t bytes) {
    pool.split.current = blocks;
    pool.split_bytes.current = bytes;
  }
  // ... are now so many.
  void set_split(Counts& pool, std::int64_t blocks, std::int64_t bytes) {
    set_level(pool.split, blocks);
    set_level(pool.split_bytes, bytes);
    raise(both_.split, pools_[0]->split.current + pools_[1]->split.current);
    raise(both_.split_bytes, pools_[0]->split_bytes.current + pools_[1]->split_bytes.current);
  }
  void reset_peaks();

 private:
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

  Counts both_;
  Counts* pools_[kPools] = {};
};

}  // namespace tenon
