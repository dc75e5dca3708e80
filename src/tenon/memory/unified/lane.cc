#include "tenon/memory/unified/lane.h"

#include <algorithm>

namespace tenon::unified {
namespace {

// What is shared through the board: of all pools, the small and the large ones.
constexpr PoolStats AllocatorStats::*kShared[] = {
    &AllocatorStats::allocation, &AllocatorStats::allocated_bytes, &AllocatorStats::requested_bytes,
    &AllocatorStats::active, &AllocatorStats::active_bytes};
constexpr PoolStats AllocatorStats::*kOwn[] = {&AllocatorStats::inactive_split,
                                               &AllocatorStats::inactive_split_bytes};

void add(PoolStats& totals, const PoolStats& shares) {
  for (std::size_t pool = 0; pool < totals.size(); ++pool) {
    totals[pool].current += shares[pool].current;
    totals[pool].peak += shares[pool].peak;
    totals[pool].allocated += shares[pool].allocated;
  }
}

}  // namespace

void Lane::join(Board* shared) {
  if (board != nullptr) return;
  board = shared;
  publish();
}

void Lane::publish() {
  if (board == nullptr) return;
  const Board::Levels now = levels(&Stat::current);
  allowed_drift = board->publish(published, now);
  published = now;
}

Lane::Board::Levels Lane::levels(std::int64_t Stat::*which) const {
  Board::Levels out = {};
  std::size_t i = 0;
  for (std::size_t pool = 0; pool < 3; ++pool)
    for (PoolStats AllocatorStats::*family : kShared) out[i++] = (stats.*family)[pool].*which;
  return out;
}

void Lane::add_stats(AllocatorStats& out) const {
  for (PoolStats AllocatorStats::*family : kShared) add(out.*family, stats.*family);
  for (PoolStats AllocatorStats::*family : kOwn) add(out.*family, stats.*family);
}

void set_peaks(AllocatorStats& out, const Lane::Board::Levels& peaks) {
  std::size_t i = 0;
  for (std::size_t pool = 0; pool < 3; ++pool)
    for (PoolStats AllocatorStats::*family : kShared) {
      Stat& stat = (out.*family)[pool];
      stat.peak = std::max(peaks[i++], stat.current);
    }
}

}  // namespace tenon::unified
