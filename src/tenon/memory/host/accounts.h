// The statistics of an allocator whose threads count for themselves.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/front/peak_board.h"
#include "tenon/memory/stats.h"

namespace tenon::host {

// Bytes requested, bytes of blocks, and blocks; the fourth is LocalAccount's own. Modulo 2^32.
// Every processor that Tenon runs on adds all four at once (SSE2, NEON).
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
// thread's heap. A level is what was allocated less what was freed, of each count. Kept are
//
//   allocated_   what was allocated: only allocations write it
//   bound_       what was freed, plus the peak: only frees write it, and new peaks
//   peak_        the highest level so far
//
//   bound_ - allocated_ = peak - level     negative: a new peak (Note [room under the peak])
//   allocated_ + peak_ - bound_ = level
//
// So one comparison of all counts finds a new peak, and neither of a pair waits for the store of
// the other: a processor is slow where a field is changed twice in a row.
//
// Now and then the level goes into `sums_`, of 64 bits, and the counts begin anew at a level of 0.
// The fourth count says when. An allocation counts bytes there from kFull / 2 on, so `bound_` is
// soon the smaller one: no count has overflowed by then. A free counts bytes there from kFull less
// what may be freed. When it reaches kFull, which is negative, the level is looked at: so a free
// reads nothing that an allocation writes.
//
// Peaks are exact while only one thread allocates. Several publish their levels to a PeakBoard.
class LocalAccount {
 public:
  // What a block counts, beside the bytes requested. Requires: at most kLargestBytes.
  static constexpr Counts counts_of(std::uint32_t bytes) { return Counts{0, bytes, 1, bytes}; }
  static constexpr std::uint64_t kLargestBytes = 64 << 20;

  void count_allocated(std::uint64_t bytes, std::uint64_t requested) {
    if (bytes > kLargestBytes ||
        !count_allocated_fast(counts_of(low(bytes)), low(requested)))
      count_allocated_slowly(bytes, requested);
  }
  void count_freed(std::uint64_t bytes, std::uint64_t requested) {
    if (bytes > kLargestBytes || !count_freed_fast(counts_of(low(bytes)), low(requested)))
      count_freed_slowly(bytes, requested);
  }
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

  // --- As StreamCounters.
  [[gnu::cold]] void join(PeakBoard* board);
  void publish();
  PeakBoard::Levels peaks();
  void reset_peaks();
  [[gnu::cold]] void add_share(AllocatorStats& out);

 private:
  static constexpr std::uint32_t kFull = std::uint32_t{1} << 31;
  static constexpr std::int64_t kAnyDrift = INT64_MAX / 2;
  static std::uint32_t low(std::uint64_t number) { return static_cast<std::uint32_t>(number); }

  // --- Slow path, where the fast one has had no effect.
  void count_allocated_slowly(std::uint64_t bytes, std::uint64_t requested);
  void count_freed_slowly(std::uint64_t bytes, std::uint64_t requested);
  void count_huge(std::int64_t sign, std::uint64_t bytes, std::uint64_t requested);
  // What may be freed from now on; false where the level must be looked at.
  bool allow_more(Counts& bound) const {
    const std::int32_t more = may_free_ + level(1, bound);
    bound[3] = kFull - static_cast<std::uint32_t>(more);
    return more > 0;
  }
  std::int32_t level(std::size_t i, Counts bound) const {
    return static_cast<std::int32_t>(peak_[i] + allocated_[i] - bound[i]);
  }
  // How far the bytes are from what was published, with those that are not in sums_ yet.
  std::int64_t drift(std::int64_t more) const {
    return sums_[1].current + more - share_.level(PeakBoard::kBytes);
  }
  bool has_drifted(std::int64_t more) const { return std::abs(drift(more)) >= allowed_drift_; }
  PeakBoard::Levels levels(std::int64_t Stat::*which) const;
  void begin_anew();
  [[gnu::cold]] void go_on();  // publishes, where bytes have drifted
  [[gnu::cold]] void settle();  // sums_ has all; restart() must follow
  [[gnu::cold]] void restart();

  // What an allocation or a free writes comes first, on one cache line with the lock.
  Counts allocated_ = {};
  Counts bound_ = {};

  Counts peak_ = {};
  Counts settled_ = {};  // of allocated_, what is in sums_
  std::int32_t may_free_ = 0;
  std::array<Stat, 3> sums_;    // before the counts began; of the first three
  PeakBoard* board_ = nullptr;  // null: no other thread allocates
  std::int64_t allowed_drift_ = kAnyDrift;
  PeakBoard::Share share_;
};

// What all threads together hold, but for what each has in its own account. Thread-safe: one lock,
// under which only the board's is taken. On cache lines of its own, since what lies beside it is
// read at every allocation.
class alignas(64) Accounts {
 public:
  [[gnu::cold]] Accounts() { board_.add(without_account_); }

  // Freed by threads without an account.
  void count_freed(std::uint64_t bytes, std::uint64_t requested);
  // Changes of the shared figures, under the lock.
  template <typename Change>
  void change(Change&& apply) {
    const std::lock_guard lock(lock_);
    apply(stats_);
  }
  // Without what is in the threads' own accounts.
  AllocatorStats stats() const {
    const std::lock_guard lock(lock_);
    return stats_;
  }
  PeakBoard& board() { return board_; }

  // Around fork(2).
  void before_fork() {
    lock_.lock();
    board_.before_fork();
  }
  void after_fork() {
    board_.after_fork();
    lock_.unlock();
  }

 private:
  mutable SpinLock lock_;
  AllocatorStats stats_;
  PeakBoard board_;
  PeakBoard::Share without_account_;
};

}  // namespace tenon::host
