// Peaks of what several streams hold a share of.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/front/level.h"
#include "tenon/memory/front/stream_slots.h"
#include "tenon/memory/stats.h"

namespace tenon {

// Each stream publishes its levels when its bytes have drifted from what it last published by
// kDriftBytes or 1/64 of the peak so far, whichever is more. So a peak over several streams is off
// by at most that for each stream; with one stream nothing is published and peaks are exact.
//
// What a publication writes lies together (Note [room under the peak]), on other cache lines than
// the peaks and than what lies beside the board.
class alignas(64) PeakBoard {
 public:
  static constexpr std::int64_t kDriftBytes = 1 << 20;  // any small value: how exact peaks are
  // Blocks and bytes in use, active ones, requested bytes (and 0); after those of all kinds, those
  // of small and of large ones, where there are two kinds. The bytes of the first pair decide when
  // to publish.
  static constexpr std::size_t kPairsOfAll = 3, kPairs = 9;
  using Levels = std::array<Pair, kPairs>;

  // The stream joins the others. The caller excludes others that add heaps, each something with
  // `lock` and `counters`.
  template <typename Heap>
  Heap& add_heap(StreamSlots<Heap>& heaps, Stream stream, std::unique_ptr<Heap> made) {
    if (streams_ == 0 && made->counters.has_kinds()) pairs_ = kPairs;  // and so have all others
    if (++streams_ == 2)  // the first one was alone until now, and its peaks everything
      heaps.for_each([&](Heap& first) {
        const std::lock_guard lock(first.lock);
        raise_peaks(first.counters.peaks());
        first.counters.join(this);
      });
    if (streams_ > 1) made->counters.join(this);
    return heaps.add(stream, std::move(made));
  }

  // Replaces a stream's earlier levels. Returns the drift that it may allow itself.
  std::int64_t publish(Levels& before, const Levels& now) {
    const std::lock_guard lock(lock_);
    Pair lowest = {};
    const auto replace = [&](std::size_t i) {
      rooms_[i] -= now[i] - before[i];
      before[i] = now[i];
      lowest |= rooms_[i];
    };
    for (std::size_t i = 0; i < kPairsOfAll; ++i) replace(i);
    if (pairs_ == kPairs)
      for (std::size_t i = kPairsOfAll; i < kPairs; ++i) replace(i);
    if (any_negative(lowest)) [[unlikely]]
      for_each([](Level<Pair>& total) { total.settle(); });
    return std::max(kDriftBytes, peaks_[0][1] / 64);
  }
  // After each stream has reset its own.
  void reset_peaks() {
    const std::lock_guard lock(lock_);
    for_each([](Level<Pair>& total) { total.reset_peak(); });
  }
  // Replaces the peaks in the sum of all streams' shares; those of one stream are right already.
  void set_peaks(AllocatorStats& out) const {
    if (streams_ < 2) return;
    const std::lock_guard lock(lock_);
    const auto set = [](Stat& stat, std::int64_t peak) {
      stat.peak = std::max(peak, stat.current);
    };
    for (std::size_t pool = 0; pool < 3; ++pool) {
      const Pair* const of = &peaks_[pairs_ == kPairs ? pool * kPairsOfAll : 0];
      if (pairs_ != kPairs && pool == 1) continue;  // one kind counts as large
      set(out.allocation[pool], of[0][0]);
      set(out.allocated_bytes[pool], of[0][1]);
      set(out.active[pool], of[1][0]);
      set(out.active_bytes[pool], of[1][1]);
      set(out.requested_bytes[pool], of[2][0]);
    }
  }

 private:
  void raise_peaks(const Levels& floor) {
    const std::lock_guard lock(lock_);
    std::size_t i = 0;
    for_each([&](Level<Pair>& total) { total.raise_peak(floor[i++]); });
  }
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
  std::uint32_t streams_ = 0;
  std::size_t pairs_ = kPairsOfAll;  // that are counted
};

}  // namespace tenon
