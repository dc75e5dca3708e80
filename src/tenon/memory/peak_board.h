// Peaks of quantities that several streams hold a share of.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/level.h"

namespace tenon {

// Each stream publishes its levels now and then, not at every call: when its bytes have drifted
// from what it last published by kDriftBytes or 1/64 of the total, whichever is more. So a peak
// over several streams is off by at most that for each stream; with one stream nothing is published
// and peaks are exact. The first pair is of blocks and bytes; these bytes decide.
template <std::size_t kPairs>
class PeakBoard {
 public:
  static constexpr std::int64_t kDriftBytes = 1 << 20;
  using Levels = std::array<Pair, kPairs>;

  // Replaces a stream's earlier levels. Returns the drift that it may allow itself.
  std::int64_t publish(const Levels& before, const Levels& now) {
    const std::lock_guard lock(lock_);
    Pair lowest = {};
    for (std::size_t i = 0; i < kPairs; ++i) {
      totals_[i].room -= now[i] - before[i];
      lowest |= totals_[i].room;
    }
    if (any_negative(lowest))
      for (Level<Pair>& total : totals_) total.settle();
    return std::max(kDriftBytes, totals_[0].current()[1] / 64);
  }
  Levels peaks() const {
    const std::lock_guard lock(lock_);
    Levels out;
    for (std::size_t i = 0; i < kPairs; ++i) out[i] = totals_[i].peak;
    return out;
  }
  void raise_peaks(const Levels& floor) {
    const std::lock_guard lock(lock_);
    for (std::size_t i = 0; i < kPairs; ++i) totals_[i].raise_peak(floor[i]);
  }
  void reset_peaks() {
    const std::lock_guard lock(lock_);
    for (Level<Pair>& total : totals_) total.reset_peak();
  }

 private:
  mutable SpinLock lock_;
  std::array<Level<Pair>, kPairs> totals_ = {};
};

}  // namespace tenon
