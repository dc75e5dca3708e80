#include "tenon/memory/watermark.h"

#include <algorithm>
#include <cmath>

#include "tenon/base/error.h"

namespace tenon {
namespace {

void check_ratio(const char* which, double ratio, double highest) {
  if (ratio >= 0 && ratio <= highest) return;  // false for NaN too
  raise<InvalidArgument>(
      "{} watermark ratio {} is not between 0 (off) and {} times the recommended working set",
      which, ratio, highest);
}

}  // namespace

Watermarks::Watermarks(std::uint64_t recommended_bytes) : recommended_bytes_(recommended_bytes) {
  high_limit_ = limit_of(kDefaultHighRatio);
  low_limit_ = limit_of(kDefaultLowRatio);
}

std::uint64_t Watermarks::limit_of(double ratio) const {
  if (ratio == 0 || recommended_bytes_ == 0) return kNoLimit;
  const double bytes = std::floor(ratio * static_cast<double>(recommended_bytes_));
  return bytes >= 9.0e18 ? kNoLimit : static_cast<std::uint64_t>(bytes);
}

void Watermarks::set_high_ratio(double ratio) {
  check_ratio("high", ratio, kMaxRatio);
  const std::lock_guard lock(mutex_);
  if (ratio != 0 && low_ratio() > ratio) {
    low_ratio_ = ratio;
    low_limit_ = limit_of(ratio);
  }
  high_ratio_ = ratio;
  high_limit_ = limit_of(ratio);
}

void Watermarks::set_low_ratio(double ratio) {
  const std::lock_guard lock(mutex_);
  check_ratio("low", ratio, high_ratio() != 0 ? high_ratio() : kMaxRatio);
  low_ratio_ = ratio;
  low_limit_ = limit_of(ratio);
}

std::int64_t Watermarks::headroom(std::uint64_t limit_bytes, std::uint64_t held_bytes) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (limit_bytes >= static_cast<std::uint64_t>(kMost)) return kMost;
  return static_cast<std::int64_t>(limit_bytes) - static_cast<std::int64_t>(held_bytes);
}

PressureCallbacks::Id PressureCallbacks::add(Callback callback) {
  if (!callback) throw InvalidArgument("a pressure callback must not be empty");
  const std::lock_guard lock(mutex_);
  entries_.push_back({next_id_, std::move(callback)});
  count_.store(static_cast<int>(entries_.size()), std::memory_order_relaxed);
  return next_id_++;
}

void PressureCallbacks::remove(Id id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [id](const Entry& entry) { return entry.id == id; });
  count_.store(static_cast<int>(entries_.size()), std::memory_order_relaxed);
}

PressureCallbacks::Relief PressureCallbacks::relieve(std::uint64_t wanted_bytes) {
  Relief relief;
  if (empty()) return relief;
  const std::lock_guard lock(mutex_);
  if (relieving_) return relief;
  relieving_ = true;
  // By id and by copy: a callback may add and remove callbacks, itself included.
  Id last = 0;
  while (relief.freed_bytes < wanted_bytes) {
    const auto next = std::find_if(entries_.begin(), entries_.end(),
                                   [last](const Entry& entry) { return entry.id > last; });
    if (next == entries_.end()) break;
    last = next->id;
    ++relief.called;
    try {
      const Callback callback = next->callback;
      relief.freed_bytes += callback(wanted_bytes - relief.freed_bytes);
    } catch (...) {
      errors_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  relieving_ = false;
  return relief;
}

}  // namespace tenon
