#include "tenon/memory/stream_ordered/counters.h"

namespace tenon {
namespace {

void add(Stat& total, const Stat& share) {
  total.current += share.current;
  total.peak += share.peak;
  total.allocated += share.allocated;
}

}  // namespace

void PoolCounters::add_to(AllocatorStats& out, StatPool which) const {
  const auto p = static_cast<std::size_t>(which);
  add(out.allocation[p], allocation);
  add(out.allocated_bytes[p], allocated_bytes);
  add(out.requested_bytes[p], requested_bytes);
  add(out.inactive_split[p], inactive_split);
  add(out.inactive_split_bytes[p], inactive_split_bytes);
  add(out.active[p], {allocation.current + pending, active_peak, allocation.allocated});
  add(out.active_bytes[p], {allocated_bytes.current + pending_bytes, active_bytes_peak,
                            allocated_bytes.allocated});
}

PoolCounters Counts::told() const {
  PoolCounters out;
  const Pair now = used.current();
  out.allocation = {now[0], used.peak[0], placed[0]};
  out.allocated_bytes = {now[1], used.peak[1], placed[1]};
  out.requested_bytes = {requested.current(), requested.peak, requested_ever};
  out.inactive_split = split;
  out.inactive_split_bytes = split_bytes;
  out.pending = pending[0];
  out.pending_bytes = pending[1];
  out.active_peak = highest_active()[0];
  out.active_bytes_peak = highest_active()[1];
  return out;
}

void Counts::reset_peaks() {
  used.reset_peak();
  requested.reset_peak();
  split.peak = split.current;
  split_bytes.peak = split_bytes.current;
  active_peak = active();
}

PoolCounters HeapCounters::both() const {
  Counts sum = both_;
  for (const Counts* pool : pools_) {
    sum.placed += pool->placed;
    sum.requested_ever += pool->requested_ever;
    for (Stat Counts::*stat : {&Counts::split, &Counts::split_bytes}) {
      (sum.*stat).current += (pool->*stat).current;
      (sum.*stat).allocated += (pool->*stat).allocated;
    }
  }
  return sum.told();
}

void HeapCounters::reset_peaks() {
  for (Counts* pool : pools_) pool->reset_peaks();
  both_.reset_peaks();
  both_.split.peak = pools_[0]->split.current + pools_[1]->split.current;
  both_.split_bytes.peak = pools_[0]->split_bytes.current + pools_[1]->split_bytes.current;
}

}  // namespace tenon
