// Peaks of quantities that several streams hold a share of.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

#include "tenon/base/spin_lock.h"

namespace tenon {

// Each stream publishes its levels now and then, not at every call: when its bytes have drifted
// from what it last published by kDriftBytes or 1/64 of the total, whichever is more. So a peak
// over several streams is off by at most that for each stream; with one stream nothing is published
// and peaks are exact. The second of the levels is the one in bytes that decides.
template <std::size_t kLevels>
class PeakBoard {
 public:
  static constexpr std::int64_t kDriftBytes = 1 << 20;
  using Levels = std::array<std::int64_t, kLevels>;

  // Replaces a stream's earlier levels. Returns the drift that it may allow itself.
  std::int64_t publish(const Levels& before, const Levels& now) {
    const std::lock_guard lock(lock_);
    for (std::size_t i = 0; i < kLevels; ++i) {
      totals_[i] += now[i] - before[i];
      peaks_[i] = std::max(peaks_[i], totals_[i]);
    }
    return std::max(kDriftBytes, totals_[1] / 64);
  }
  Levels peaks() const {
    const std::lock_guard lock(lock_);
    return peaks_;
  }
  void raise_peaks(const Levels& floor) {
    const std::lock_guard lock(lock_);
    for (std::size_t i = 0; i < kLevels; ++i) peaks_[i] = std::max(peaks_[i], floor[i]);
  }
  void reset_peaks() {
    const std::lock_guard lock(lock_);
    peaks_ = totals_;
  }

 private:
  mutable SpinLock lock_;
  Levels totals_ = {};
  Levels peaks_ = {};
};

}  // namespace tenon
