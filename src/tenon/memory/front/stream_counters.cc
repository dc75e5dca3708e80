#include "tenon/memory/front/stream_counters.h"

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

void put(Pair used, Pair active, std::int64_t requested, std::int64_t* out) {
  out[0] = used[0];
  out[1] = used[1];
  out[2] = active[0];
  out[3] = active[1];
  out[4] = requested;
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

// `of`: what a kind has, as PeakBoard::kOfAll numbers.
template <typename Of>
PeakBoard::Levels StreamCounters::each(Of&& of) const {
  PeakBoard::Levels out = {};
  of(all_, out.data());
  if (has_kinds())
    for (const std::size_t kind : {0, 1}) of(*kinds_[kind], &out[(kind + 1) * PeakBoard::kOfAll]);
  return out;
}

PeakBoard::Levels StreamCounters::levels() const {
  return each([](const Counts& c, std::int64_t* out) {
    put(c.used.current(), c.active(), c.requested.current(), out);
  });
}

PeakBoard::Levels StreamCounters::peaks() const {
  return each([](const Counts& c, std::int64_t* out) {
    put(c.used.peak, c.highest_active(), c.requested.peak, out);
  });
}

void StreamCounters::join(PeakBoard* board) {
  if (board_ != nullptr) return;
  board_ = board;
  board_->add(share_);
  publish();
}

void StreamCounters::publish() {
  if (board_ == nullptr) return;
  allowed_drift_ = board_->publish(share_, levels());
  bound_room();
}

}  // namespace tenon
