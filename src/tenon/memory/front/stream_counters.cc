#include "tenon/memory/front/stream_counters.h"

#include <tuple>

namespace tenon {
namespace {

void change(PoolStats& stats, StatPool pool, std::int64_t amount) {
  for (const StatPool p : {StatPool::kAll, pool}) {
    Stat& stat = stats[static_cast<std::size_t>(p)];
    if (amount > 0)
      stat.increase(amount);
    else
      stat.decrease(-amount);
  }
}

}  // namespace

void count_reserved(AllocatorStats& stats, StatPool pool, std::int64_t bytes) {
  change(stats.reserved_bytes, pool, bytes);
}

void count_segment(AllocatorStats& stats, StatPool pool, int pieces) {
  change(stats.segment, pool, pieces);
  (pieces > 0 ? stats.num_device_alloc : stats.num_device_free) += 1;
}

void Counts::add_to(AllocatorStats& out, StatPool pool) const {
  const auto p = static_cast<std::size_t>(pool);
  const Pair now = used.current();
  const Pair active_now = active();
  const Pair active_most = highest_active();
  out.allocation[p] += {now[0], used.peak[0], placed[0]};
  out.allocated_bytes[p] += {now[1], used.peak[1], placed[1]};
  out.requested_bytes[p] += {requested.current(), requested.peak, requested_ever};
  out.inactive_split[p] += split;
  out.inactive_split_bytes[p] += split_bytes;
  out.active[p] += {active_now[0], active_most[0], placed[0]};
  out.active_bytes[p] += {active_now[1], active_most[1], placed[1]};
}

void Counts::reset_peaks() {
  used.reset_peak();
  requested.reset_peak();
  split.peak = split.current;
  split_bytes.peak = split_bytes.current;
  active_peak = active();
}

void StreamCounters::add_to(AllocatorStats& out) const {
  if (!has_kinds()) {
    all_.add_to(out, StatPool::kAll);
    all_.add_to(out, StatPool::kLarge);
    return;
  }
  Counts sum = all_;
  for (const Counts* kind : kinds_) {
    sum.placed += kind->placed;
    sum.requested_ever += kind->requested_ever;
    for (Stat Counts::*stat : {&Counts::split, &Counts::split_bytes}) {
      (sum.*stat).current += (kind->*stat).current;
      (sum.*stat).allocated += (kind->*stat).allocated;
    }
  }
  sum.add_to(out, StatPool::kAll);
  kinds_[0]->add_to(out, StatPool::kSmall);
  kinds_[1]->add_to(out, StatPool::kLarge);
}

void StreamCounters::reset_peaks() {
  all_.reset_peaks();
  if (has_kinds()) {
    for (Counts* kind : kinds_) kind->reset_peaks();
    all_.split.peak = kinds_[0]->split.current + kinds_[1]->split.current;
    all_.split_bytes.peak = kinds_[0]->split_bytes.current + kinds_[1]->split_bytes.current;
  }
  bound_room();
  publish();
}

// `of`: what a kind has, blocks and bytes in use, the active ones, and requested bytes.
template <typename Of>
PeakBoard::Levels StreamCounters::each(Of&& of) const {
  static constexpr Counts kNone;
  const auto [used, active, requested] = of(all_);
  const auto [small_used, small_active, small_requested] = of(has_kinds() ? *kinds_[0] : kNone);
  const auto [large_used, large_active, large_requested] = of(has_kinds() ? *kinds_[1] : all_);
  return {used,   small_used,   large_used,         active,
          small_active, large_active, Pair{requested, 0}, Pair{small_requested, large_requested}};
}

PeakBoard::Levels StreamCounters::levels() const {
  return each([](const Counts& c) {
    return std::tuple(c.used.current(), c.active(), c.requested.current());
  });
}

PeakBoard::Levels StreamCounters::peaks() const {
  return each([](const Counts& c) {
    return std::tuple(c.used.peak, c.highest_active(), c.requested.peak);
  });
}

void StreamCounters::join(PeakBoard* board) {
  if (board_ != nullptr) return;
  board_ = board;
  publish();
}

void StreamCounters::publish() {
  if (board_ == nullptr) return;
  const PeakBoard::Levels now = levels();
  allowed_drift_ = board_->publish(published_, now);
  published_ = now;
  bound_room();
}

}  // namespace tenon
