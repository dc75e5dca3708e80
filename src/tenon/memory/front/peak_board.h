// Peaks of quantities that several streams hold a share of.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/front/level.h"
#include "tenon/memory/stats.h"

namespace tenon {

// Each stream publishes its levels now and then, not at every call: when its bytes have drifted
// from what it last published by kDriftBytes or 1/64 of the peak so far, whichever is more. So a
// peak over several streams is off by at most that for each stream; with one stream nothing is
// published and peaks are exact.
//
// What a publication writes lies together (Note [room under the peak]). The peaks, which seldom
// change, and whatever lies beside the board, which may be read at every allocation, are on other
// cache lines.
class alignas(64) PeakBoard {
 public:
  static constexpr std::int64_t kDriftBytes = 1 << 20;  // any small value: how exact peaks are
  static constexpr std::size_t kPairs = 8;
  // Blocks and bytes in use of all kinds, of small and of large ones; of the active ones of each;
  // requested bytes of all (and 0); of small and of large ones. The bytes of the first pair decide
  // when to publish.
  using Levels = std::array<Pair, kPairs>;

  // Replaces a stream's earlier levels. Returns the drift that it may allow itself.
  std::int64_t publish(const Levels& before, const Levels& now) {
    const std::lock_guard lock(lock_);
    Pair lowest = {};
    for (std::size_t i = 0; i < kPairs; ++i) {
      rooms_[i] -= now[i] - before[i];
      lowest |= rooms_[i];
    }
    if (any_negative(lowest)) [[unlikely]]
      for_each([](Level<Pair>& total) { total.settle(); });
    return std::max(kDriftBytes, peaks_[0][1] / 64);
  }
  void raise_peaks(const Levels& floor) {
    const std::lock_guard lock(lock_);
    std::size_t i = 0;
    for_each([&](Level<Pair>& total) { total.raise_peak(floor[i++]); });
  }
  void reset_peaks() {
    const std::lock_guard lock(lock_);
    for_each([](Level<Pair>& total) { total.reset_peak(); });
  }
  // Replaces the peaks of what is published.
  void set_peaks(AllocatorStats& out) const {
    const std::lock_guard lock(lock_);
    const auto set = [](Stat& stat, std::int64_t peak) {
      stat.peak = std::max(peak, stat.current);
    };
    const std::int64_t requested[] = {peaks_[6][0], peaks_[7][0], peaks_[7][1]};
    for (std::size_t pool = 0; pool < 3; ++pool) {
      set(out.allocation[pool], peaks_[pool][0]);
      set(out.allocated_bytes[pool], peaks_[pool][1]);
      set(out.active[pool], peaks_[3 + pool][0]);
      set(out.active_bytes[pool], peaks_[3 + pool][1]);
      set(out.requested_bytes[pool], requested[pool]);
    }
  }

 private:
  template <typename Change>
  void for_each(Change&& change) {
    for (std::size_t i = 0; i < kPairs; ++i) {
      Level<Pair> total{peaks_[i], rooms_[i]};
      change(total);
      peaks_[i] = total.peak;
      rooms_[i] = total.room;
    }
  }

  mutable SpinLock lock_;
  Levels rooms_ = {};
  alignas(64) Levels peaks_ = {};
};

}  // namespace tenon
