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
  static constexpr std::size_t kPairs = 8;
  // Blocks and bytes in use of all kinds, of small and of large ones; of the active ones of each;
  // requested bytes of all (and 0); of small and of large ones. The bytes of the first pair decide
  // when to publish.
  using Levels = std::array<Pair, kPairs>;

  // The stream joins the others. The caller excludes others that add heaps, each something with
  // `lock` and `counters`.
  template <typename Heap>
  Heap& add_heap(StreamSlots<Heap>& heaps, Stream stream, std::unique_ptr<Heap> made) {
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
};

}  // namespace tenon
