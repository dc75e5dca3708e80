#include "tenon/memory/unified/lane.h"

#include <algorithm>

namespace tenon::unified {
namespace {

// What is shared through the board.
struct SharedPair {
  PoolStats AllocatorStats::*first;
  PoolStats AllocatorStats::*second;  // null: there is none
};
constexpr SharedPair kShared[] = {
    {&AllocatorStats::allocation, &AllocatorStats::allocated_bytes},
    {&AllocatorStats::active, &AllocatorStats::active_bytes},
    {&AllocatorStats::requested_bytes, nullptr}};
constexpr PoolStats AllocatorStats::*kCounted[] = {
    &AllocatorStats::allocation,     &AllocatorStats::allocated_bytes,
    &AllocatorStats::active,         &AllocatorStats::active_bytes,
    &AllocatorStats::requested_bytes, &AllocatorStats::inactive_split,
    &AllocatorStats::inactive_split_bytes};

void add(PoolStats& totals, const PoolStats& shares) {
  for (std::size_t pool = 0; pool < totals.size(); ++pool) {
    totals[pool].current += shares[pool].current;
    totals[pool].peak += shares[pool].peak;
    totals[pool].allocated += shares[pool].allocated;
  }
}

void set_peak(Stat& stat, std::int64_t peak) { stat.peak = std::max(peak, stat.current); }

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
    for (const SharedPair& pair : kShared)
      out[i++] = Pair{(stats.*pair.first)[pool].*which,
                      pair.second == nullptr ? 0 : (stats.*pair.second)[pool].*which};
  return out;
}

void Lane::add_stats(AllocatorStats& out) const {
  for (PoolStats AllocatorStats::*family : kCounted) add(out.*family, stats.*family);
}

void set_peaks(AllocatorStats& out, const Lane::Board::Levels& peaks) {
  std::size_t i = 0;
  for (std::size_t pool = 0; pool < 3; ++pool)
    for (const SharedPair& pair : kShared) {
      const Pair peak = peaks[i++];
      set_peak((out.*pair.first)[pool], peak[0]);
      if (pair.second != nullptr) set_peak((out.*pair.second)[pool], peak[1]);
    }
}

}  // namespace tenon::unified
