#include "tenon/memory/stream_ordered/counters.h"

namespace tenon {
namespace {

constexpr Stat PoolCounters::*kStats[] = {
    &PoolCounters::allocation, &PoolCounters::allocated_bytes, &PoolCounters::requested_bytes,
    &PoolCounters::inactive_split, &PoolCounters::inactive_split_bytes};

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
  add(out.active[p], {allocation.current + pending, highest_active(), allocation.allocated});
  add(out.active_bytes[p], {allocated_bytes.current + pending_bytes, highest_active_bytes(),
                            allocated_bytes.allocated});
}

void PoolCounters::reset_peaks() {
  for (Stat PoolCounters::*stat : kStats) (this->*stat).peak = (this->*stat).current;
  active_peak = allocation.current + pending;
  active_bytes_peak = allocated_bytes.current + pending_bytes;
}

PoolCounters HeapCounters::both() const {
  PoolCounters sum = both_;
  for (Stat PoolCounters::*stat : kStats) {
    (sum.*stat).current = (pools_[0].*stat).current + (pools_[1].*stat).current;
    (sum.*stat).allocated = (pools_[0].*stat).allocated + (pools_[1].*stat).allocated;
  }
  sum.pending = pools_[0].pending + pools_[1].pending;
  sum.pending_bytes = pools_[0].pending_bytes + pools_[1].pending_bytes;
  return sum;
}

void HeapCounters::raise_active_peaks(PoolCounters& changed) {
  changed.raise_active_peaks();
  PoolCounters sum = both();
  sum.raise_active_peaks();
  both_.active_peak = sum.active_peak;
  both_.active_bytes_peak = sum.active_bytes_peak;
}

void HeapCounters::reset_peaks() {
  for (PoolCounters& pool : pools_) pool.reset_peaks();
  both_ = both();
  both_.reset_peaks();
}

}  // namespace tenon
