// What an allocator counts of the blocks of all its streams.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "tenon/memory/front/stream_counters.h"
#include "tenon/memory/stats.h"
#include "tenon/memory/front/stream_slots.h"

namespace tenon {

// Of all heaps, each something with `lock` and `counters`. Sums are exact; peaks of several streams
// are as exact as PeakBoard keeps them. The caller excludes others that add heaps.
class StreamTotals {
 public:
  template <typename Heap>
  Heap& add_heap(StreamSlots<Heap>& heaps, Stream stream, std::unique_ptr<Heap> made) {
    if (++heaps_ == 2)  // the first one was alone until now, and its peaks everything
      heaps.for_each([&](Heap& first) {
        const std::lock_guard lock(first.lock);
        board_.raise_peaks(first.counters.peaks());
        first.counters.join(&board_);
      });
    if (heaps_ > 1) made->counters.join(&board_);
    return heaps.add(stream, std::move(made));
  }

  // One heap's share, under its lock.
  static void add_share(AllocatorStats& out, StreamCounters& counters) {
    counters.publish();
    counters.add_to(out);
  }
  // Peaks over all streams, once all shares are added. Those of one stream are right as they are.
  void set_peaks(AllocatorStats& out) const {
    if (heaps_ > 1) board_.set_peaks(out);
  }
  // After each stream has reset its own.
  void reset_peaks() { board_.reset_peaks(); }

 private:
  PeakBoard board_;
  std::uint32_t heaps_ = 0;
};

}  // namespace tenon
