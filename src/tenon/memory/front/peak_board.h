// Peaks of what several streams hold a share of.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/front/stream_slots.h"
#include "tenon/memory/stats.h"

namespace tenon {

// Each stream publishes its levels when its bytes have drifted from what it last published by
// kDriftBytes or 1/64 of the peak so far, whichever is more. So a peak over several streams is off
// by at most that for each stream; with one stream nothing is published and peaks are exact.
//
// A stream writes its levels to cache lines of its own. It reads those of others only where a new
// peak is possible: where its bytes have risen, and one of its levels together with the highest
// levels of the others is above the peak. It takes the lock only to raise a peak or its own highest
// level. What tells it that changes seldom.
class PeakBoard {
 public:
  static constexpr std::int64_t kDriftBytes = 1 << 20;  // any small value: how exact peaks are
  // Blocks and bytes in use, active ones, requested bytes; after those of all kinds, those of small
  // and of large ones, where there are two kinds. The bytes in use decide when to publish.
  static constexpr std::size_t kOfAll = 5, kMost = 3 * kOfAll, kBytes = 1;
  using Levels = std::array<std::int64_t, kMost>;

  // What one stream has published. It lives as long as the board.
  class Share {
   public:
    std::int64_t level(std::size_t i) const { return get(now_[i]); }

   private:
    friend class PeakBoard;
    using Published = std::array<std::atomic<std::int64_t>, kMost>;
    Published now_ = {};
    Published highest_ = {};  // since the peaks were reset
    Share* next_ = nullptr;
  };

  // The stream joins the others. The caller excludes others that add heaps, each something with
  // `lock` and `counters`.
  template <typename Heap>
  Heap& add_heap(StreamSlots<Heap>& heaps, Stream stream, std::unique_ptr<Heap> made) {
    if (streams_.load() == 0 && made->counters.has_kinds()) levels_ = kMost;  // as have all others
    add(made->counters, [&](auto&& join) {
      heaps.for_each([&](Heap& first) {
        const std::lock_guard lock(first.lock);
        join(first.counters);
      });
    });
    return heaps.add(stream, std::move(made));
  }
  // The same of counters. `with_first` gives the first stream's, under their lock.
  template <typename Counters, typename WithFirst>
  void add(Counters& made, WithFirst&& with_first) {
    const std::uint32_t streams = streams_.load(std::memory_order_relaxed) + 1;
    if (streams == 2)  // the first one was alone until now, and its peaks everything
      with_first([&](Counters& first) {
        {
          const std::lock_guard lock(lock_);
          raise_peaks(first.peaks());
        }
        first.join(this);
      });
    if (streams > 1) made.join(this);
    streams_.store(streams, std::memory_order_release);
  }
  void add(Share& share) {
    const std::lock_guard lock(lock_);
    share.next_ = first_.load(std::memory_order_relaxed);
    first_.store(&share, std::memory_order_release);
  }

  // Replaces a stream's earlier levels. Returns the drift that it may allow itself.
  std::int64_t publish(Share& share, const Levels& now) {
    std::int64_t to_highest = 0, to_peak = 0;  // negative: some level is above
    if (now[kBytes] > share.level(kBytes))
      for (std::size_t i = 0; i < levels_; ++i) {
        const std::int64_t room = get(share.highest_[i]) - now[i];
        to_highest |= room;
        to_peak |= room + get(room_above_[i]);
      }
    for (std::size_t i = 0; i < levels_; ++i) set(share.now_[i], now[i]);
    // Before the levels of others are read: of two streams that publish at once, one sees both.
    share.now_[kBytes].store(now[kBytes], std::memory_order_seq_cst);
    if (to_highest < 0 || (to_peak < 0 && is_peak())) [[unlikely]] raise_peaks(share);
    return get(drift_);
  }
  // After each stream has reset its own.
  void reset_peaks();
  // Replaces the peaks in the sum of all streams' shares; those of one stream are right already.
  void set_peaks(AllocatorStats& out) const;

  // Around fork(2).
  void before_fork() { lock_.lock(); }
  void after_fork() { lock_.unlock(); }

 private:
  using Number = std::atomic<std::int64_t>;
  static std::int64_t get(const Number& number) { return number.load(std::memory_order_relaxed); }
  static void set(Number& number, std::int64_t to) { number.store(to, std::memory_order_relaxed); }

  void raise_peaks(const Levels& floor);  // under the lock
  void raise_peaks(Share& share);
  Levels total() const;  // of all streams now
  bool is_peak() const;  // of any level

  // Read at each publication, seldom written.
  alignas(64) std::array<Number, kMost> peaks_ = {};
  std::array<Number, kMost> room_above_ = {};  // what the peak is above the sum of all `highest_`
  Number drift_{kDriftBytes};
  std::size_t levels_ = kOfAll;  // that are counted
  std::atomic<Share*> first_{nullptr};
  std::atomic<std::uint32_t> streams_{0};

  alignas(64) mutable SpinLock lock_;  // of all changes but to a share's `now_`
};

}  // namespace tenon
