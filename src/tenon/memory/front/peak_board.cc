#include "tenon/memory/front/peak_board.h"

namespace tenon {

void PeakBoard::raise_peaks(const Levels& floor) {
  for (std::size_t i = 0; i < kMost; ++i) {
    const std::int64_t more = floor[i] - get(peaks_[i]);
    if (more <= 0) continue;
    set(peaks_[i], floor[i]);
    set(room_above_[i], get(room_above_[i]) + more);
  }
  set(drift_, std::max(kDriftBytes, get(peaks_[kBytes]) / 64));
}

void PeakBoard::raise_peaks(Share& share) {
  const std::lock_guard lock(lock_);
  for (std::size_t i = 0; i < levels_; ++i) {
    const std::int64_t more = get(share.now_[i]) - get(share.highest_[i]);
    if (more <= 0) continue;
    set(share.highest_[i], get(share.now_[i]));
    set(room_above_[i], get(room_above_[i]) - more);
  }
  raise_peaks(total());
}

PeakBoard::Levels PeakBoard::total() const {
  Levels total = {};
  for (const Share* share = first_.load(std::memory_order_acquire); share != nullptr;
       share = share->next_)
    for (std::size_t i = 0; i < levels_; ++i)
      total[i] += share->now_[i].load(std::memory_order_seq_cst);
  return total;
}

bool PeakBoard::is_peak() const {
  const Levels now = total();
  for (std::size_t i = 0; i < levels_; ++i)
    if (now[i] > get(peaks_[i])) return true;
  return false;
}

void PeakBoard::reset_peaks() {
  const std::lock_guard lock(lock_);
  Levels peaks = {};
  for (Share* share = first_.load(); share != nullptr; share = share->next_)
    for (std::size_t i = 0; i < levels_; ++i) {
      const std::int64_t now = get(share->now_[i]);
      set(share->highest_[i], now);
      peaks[i] += now;
    }
  for (std::size_t i = 0; i < levels_; ++i) {
    set(peaks_[i], peaks[i]);
    set(room_above_[i], 0);
  }
}

void PeakBoard::set_peaks(AllocatorStats& out) const {
  if (streams_.load(std::memory_order_acquire) < 2) return;
  for (std::size_t pool = 0; pool < 3; ++pool) {
    if (levels_ == kOfAll && pool == 1) continue;  // one kind counts as large
    const Number* peak = &peaks_[levels_ == kOfAll ? 0 : pool * kOfAll];
    for (PoolStats AllocatorStats::*stats :
         {&AllocatorStats::allocation, &AllocatorStats::allocated_bytes, &AllocatorStats::active,
          &AllocatorStats::active_bytes, &AllocatorStats::requested_bytes}) {
      Stat& stat = (out.*stats)[pool];
      stat.peak = std::max(get(*peak++), stat.current);
    }
  }
}

}  // namespace tenon
