// What an allocator counts of the blocks of all its streams.
#pragma once

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
    bool alone = true;
    heaps.for_each([&](Heap& other) {
      const std::lock_guard lock(other.lock);
      if (alone) board_.raise_peaks(other.counters.peaks());
      alone = false;
      other.counters.join(&board_);
    });
    if (!alone) made->counters.join(&board_);
    return heaps.add(stream, std::move(made));
  }

  // One heap's share, under its lock.
  static void add_share(AllocatorStats& out, StreamCounters& counters) {
    counters.publish();
    counters.add_to(out);
  }
  // Peaks over all streams, once all shares are added; `out` has those of one stream.
  void set_peaks(AllocatorStats& out) const { board_.set_peaks(out); }
  // After each stream has reset its own.
  void reset_peaks() { board_.reset_peaks(); }

 private:
  PeakBoard board_;
};

}  // namespace tenon
