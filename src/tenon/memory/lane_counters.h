// What an allocator counts of the blocks of each stream, and of all together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "tenon/memory/peak_board.h"
#include "tenon/memory/stats.h"
#include "tenon/memory/stream_slots.h"

namespace tenon {

// Of one stream's lane. Under the lane's lock.
class LaneCounters {
 public:
  using Board = PeakBoard<2>;  // blocks and bytes; requested bytes

  // What came and went, each at one store a block.
  struct Count {
    std::int64_t placed = 0;
    std::int64_t released = 0;
    std::int64_t peak = 0;

    std::int64_t current() const { return placed - released; }
    void place(std::int64_t amount) {
      placed += amount;
      if (current() > peak) [[unlikely]] peak = current();
    }
  };
  Count blocks;
  Count bytes;
  Count requested_bytes;

  void count_placed(std::uint64_t size, std::uint64_t requested) {
    blocks.place(1);
    bytes.place(static_cast<std::int64_t>(size));
    requested_bytes.place(static_cast<std::int64_t>(requested));
    if (board_ != nullptr) [[unlikely]] publish_if_drifted();
  }
  void count_released(std::uint64_t size, std::uint64_t requested) {
    blocks.released += 1;
    bytes.released += static_cast<std::int64_t>(size);
    requested_bytes.released += static_cast<std::int64_t>(requested);
    if (board_ != nullptr) [[unlikely]] publish_if_drifted();
  }

  void join(Board* board) {
    if (board_ != nullptr) return;
    board_ = board;
    publish();
  }
  void publish() {
    if (board_ == nullptr) return;
    const Board::Levels now = {Pair{blocks.current(), bytes.current()},
                               Pair{requested_bytes.current(), 0}};
    allowed_drift_ = board_->publish(published_, now);
    published_ = now;
  }
  Board::Levels peaks() const {
    return {Pair{blocks.peak, bytes.peak}, Pair{requested_bytes.peak, 0}};
  }
  void reset_peaks() {
    for (Count* count : {&blocks, &bytes, &requested_bytes}) count->peak = count->current();
  }

 private:
  void publish_if_drifted() {
    const std::int64_t drift = bytes.current() - published_[0][1];
    if (drift >= allowed_drift_ || -drift >= allowed_drift_) publish();
  }

  Board* board_ = nullptr;  // null while this is the only lane
  Board::Levels published_ = {};
  std::int64_t allowed_drift_ = 0;
};

// Of all lanes: something with `lock` and `counters`. Sums are exact; peaks of several streams are
// as exact as PeakBoard keeps them. The caller excludes others who add lanes.
class LaneTotals {
 public:
  template <typename Lane>
  Lane& add_lane(StreamSlots<Lane>& lanes, Stream stream, std::unique_ptr<Lane> made) {
    StreamSlots<Lane>::check(stream);
    bool alone = true;
    lanes.for_each([&](Lane& other) {
      const std::lock_guard lock(other.lock);
      if (alone) board_.raise_peaks(other.counters.peaks());
      alone = false;
      other.counters.join(&board_);
    });
    if (!alone) made->counters.join(&board_);
    return lanes.add(stream, std::move(made));
  }

  // Fills in what is counted of blocks; nothing is ever active and not allocated.
  template <typename Lane>
  void add_to(AllocatorStats& out, const StreamSlots<Lane>& lanes) const {
    int count = 0;
    lanes.for_each([&](Lane& lane) {
      const std::lock_guard lock(lane.lock);
      lane.counters.publish();
      ++count;
      add(out.allocation[0], lane.counters.blocks);
      add(out.allocated_bytes[0], lane.counters.bytes);
      add(out.requested_bytes[0], lane.counters.requested_bytes);
    });
    if (count > 1) {
      const LaneCounters::Board::Levels peaks = board_.peaks();
      const auto set_peak = [](PoolStats& stats, std::int64_t peak) {
        stats[0].peak = std::max(peak, stats[0].current);
      };
      set_peak(out.allocation, peaks[0][0]);
      set_peak(out.allocated_bytes, peaks[0][1]);
      set_peak(out.requested_bytes, peaks[1][0]);
    }
    out.active[0] = out.allocation[0];
    out.active_bytes[0] = out.allocated_bytes[0];
  }

  template <typename Lane>
  void reset_peaks(const StreamSlots<Lane>& lanes) {
    lanes.for_each([](Lane& lane) {
      const std::lock_guard lock(lane.lock);
      lane.counters.reset_peaks();
      lane.counters.publish();
    });
    board_.reset_peaks();
  }

 private:
  static void add(Stat& sum, const LaneCounters::Count& share) {
    sum.current += share.current();
    sum.peak += share.peak;
    sum.allocated += share.placed;
  }

  mutable LaneCounters::Board board_;
};

}  // namespace tenon
