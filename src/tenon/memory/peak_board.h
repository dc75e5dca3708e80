// Peaks of quantities that several streams hold a share of.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

#include "tenon/base/spin_lock.h"

namespace tenon {

// Each stream publishes its levels now and then, not at every call: when its bytes have drifted
// from what it last published by kDriftBytes or 1/64 of the peak so far, whichever is more. So a
// peak over several streams is off by at most that for each stream; with one stream nothing is
// published and peaks are exact. The second of the levels is the one in bytes that decides.
// What every publication writes fills one or two cache lines; the peaks, which seldom change, and
// whatever lies beside the board, which is read at every allocation, are on others.
template <std::size_t kLevels>
class alignas(64) PeakBoard {
 public:
  static constexpr std::int64_t kDriftBytes = 1 << 20;
  using Levels = std::array<std::int64_t, kLevels>;

  // Replaces a stream's earlier levels. Returns the drift that it may allow itself.
  std::int64_t publish(const Levels& before, const Levels& now) {
    const std::lock_guard lock(lock_);
    for (std::size_t i = 0; i < kLevels; ++i) {
      totals_[i] += now[i] - before[i];
      if (totals_[i] > peaks_[i]) [[unlikely]] peaks_[i] = totals_[i];
    }
    return std::max(kDriftBytes, peaks_[1] / 64);
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
  alignas(64) Levels peaks_ = {};
};

}  // namespace tenon
