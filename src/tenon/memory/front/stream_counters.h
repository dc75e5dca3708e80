// What is counted of the blocks of one stream.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/memory/front/level.h"
#include "tenon/memory/front/peak_board.h"
#include "tenon/memory/stats.h"

namespace tenon {

// What is counted of one kind of blocks, or of all: only what cannot be computed later.
struct Counts {
  Level<Pair> used;              // blocks and their bytes
  Pair placed = {};              // ever
  Level<std::int64_t> requested;
  std::int64_t requested_ever = 0;
  Stat split;                    // free blocks that share their segment with others
  Stat split_bytes;
  Pair pending = {};             // freed, but other streams still use them: blocks and bytes
  Pair active_peak = {};         // of used + pending, while anything is pending

  Pair active() const { return used.current() + pending; }
  Pair highest_active() const { return active_peak > used.peak ? active_peak : used.peak; }
  void raise_active_peak() { active_peak = active() > active_peak ? active() : active_peak; }
  [[gnu::cold]] void reset_peaks();
  [[gnu::cold]] void add_to(AllocatorStats& out, StatPool pool) const;
};

// Counts driver memory, of all pools and of one: bytes more, or fewer; pieces more, or fewer, each
// by one call of the driver.
void count_reserved(AllocatorStats& stats, StatPool pool, std::int64_t bytes);
void count_segment(AllocatorStats& stats, StatPool pool, int change);

// Plain integers under the lock of the stream's heap. A heap with two kinds of blocks (PyTorch's
// small and large pool) counts each kind and both together, so that all peaks are exact. Peaks over
// several streams are joined by a PeakBoard, which a heap publishes its levels to.
class StreamCounters {
 public:
  // `kind` is one of two from now on; it outlives the counters.
  void add_kind(Counts& kind) { kinds_[kinds_[0] == nullptr ? 0 : 1] = &kind; }

  bool has_kinds() const { return kinds_[0] != nullptr; }

  std::int64_t blocks() const { return all_.used.current()[0]; }
  std::int64_t bytes() const { return all_.used.current()[1]; }
  std::int64_t requested_bytes() const { return all_.requested.current(); }
  std::int64_t active_bytes() const { return all_.active()[1]; }
  std::int64_t peak_bytes() const { return all_.used.peak[1]; }

  // --- Of one kind.
  void count_placed(std::uint64_t size, std::uint64_t requested) {
    const auto asked = static_cast<std::int64_t>(requested);
    const Pair block = {1, static_cast<std::int64_t>(size)};
    all_.placed += block;
    all_.requested_ever += asked;
    all_.used.room -= block;
    all_.requested.room -= asked;
    if (any_negative(risen()) || all_.requested.room < 0) [[unlikely]] {
      settle_used();
      all_.requested.settle();
      publish_if_drifted();
    }
  }
  void count_released(std::uint64_t size, std::uint64_t requested) {
    all_.used.room += Pair{1, static_cast<std::int64_t>(size)};
    all_.requested.room += static_cast<std::int64_t>(requested);
    if (any_negative(fallen())) [[unlikely]] publish();
  }

  // --- Of two kinds. The caller publishes at the end of what it does.
  void count_place(Counts& kind, std::int64_t size, std::int64_t requested) {
    const Pair block = {1, size};
    kind.placed += block;
    kind.requested_ever += requested;
    kind.used.room -= block;
    all_.used.room -= block;
    if (any_negative(kind.used.room | risen())) [[unlikely]] {
      kind.used.settle();
      settle_used();
    }
    kind.requested.room -= requested;
    all_.requested.room -= requested;
    if ((kind.requested.room | all_.requested.room) < 0) [[unlikely]] {
      kind.requested.settle();
      all_.requested.settle();
    }
    if (all_.pending[0] != 0) [[unlikely]] raise_active_peaks(kind);
  }
  // The block is no longer in use; it may be pending for a while before its request is forgotten.
  void count_release(Counts& kind, std::int64_t size) {
    const Pair block = {1, size};
    kind.used.room += block;
    all_.used.room += block;
  }
  void forget_requested(Counts& kind, std::int64_t requested) {
    kind.requested.room += requested;
    all_.requested.room += requested;
  }
  void count_pending(Counts& kind, std::int64_t blocks, std::int64_t bytes) {
    const Pair change = {blocks, bytes};
    kind.pending += change;
    all_.pending += change;
  }
  // The split rests are now so many, and no more than before; or perhaps more.
  static void lower_split(Counts& kind, std::int64_t blocks, std::int64_t bytes) {
    kind.split.current = blocks;
    kind.split_bytes.current = bytes;
  }
  void set_split(Counts& kind, std::int64_t blocks, std::int64_t bytes) {
    set_level(kind.split, blocks);
    set_level(kind.split_bytes, bytes);
    raise(all_.split, kinds_[0]->split.current + kinds_[1]->split.current);
    raise(all_.split_bytes, kinds_[0]->split_bytes.current + kinds_[1]->split_bytes.current);
  }

  // --- Over all streams.
  void publish_if_drifted() {
    if (any_negative(risen() | fallen())) [[unlikely]] publish();
  }
  // From now on peaks are shared with other streams.
  void join(PeakBoard* board);
  void publish();
  PeakBoard::Levels peaks() const;
  [[gnu::cold]] void reset_peaks();  // and publishes
  // Adds currents and totals; peaks are this stream's own.
  [[gnu::cold]] void add_to(AllocatorStats& out) const;
  // One of several streams' share, which it publishes.
  void add_share(AllocatorStats& out) {
    publish();
    add_to(out);
  }

 private:
  PeakBoard::Levels levels() const;
  template <typename Of>
  PeakBoard::Levels each(Of&& of) const;
  void raise_active_peaks(Counts& changed) {
    changed.raise_active_peak();
    all_.raise_active_peak();
  }
  // Negative above the peak, or by the allowed drift above or below what is published.
  Pair risen() const { return all_.used.room - least_room_; }
  Pair fallen() const { return most_room_ - all_.used.room; }
  void settle_used() {
    all_.used.settle();
    bound_room();
  }
  // After each change of the peak, of what is published or of the drift that is allowed.
  void bound_room() {
    const std::int64_t published_room = all_.used.peak[1] - share_.level(PeakBoard::kBytes);
    least_room_[1] = std::max<std::int64_t>(0, published_room - allowed_drift_ + 1);
    most_room_[1] = published_room + allowed_drift_ - 1;
  }
  static void raise(Stat& stat, std::int64_t level) {
    if (level > stat.peak) stat.peak = level;
  }
  static void set_level(Stat& stat, std::int64_t level) {
    if (level > stat.current) stat.allocated += level - stat.current;
    stat.current = level;
    raise(stat, level);
  }

  // Of an only stream: more bytes than it ever has.
  static constexpr std::int64_t kAnyDrift = INT64_MAX / 4;

  // Where all_.used.room lies while there is nothing to settle or to publish.
  Pair least_room_ = {0, 0};
  Pair most_room_ = {kAnyDrift, kAnyDrift - 1};
  Counts all_;  // of two kinds together, what is a sum is not kept
  Counts* kinds_[2] = {};
  PeakBoard* board_ = nullptr;  // null while this is the only stream
  std::int64_t allowed_drift_ = kAnyDrift;
  alignas(64) PeakBoard::Share share_;
};

}  // namespace tenon
