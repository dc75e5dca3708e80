#include "tenon/memory/host/accounts.h"

#include <algorithm>
#include <cstdlib>

namespace tenon::host {
namespace {

// A level or a room that the counts begin with; none may be further from where it began.
std::uint32_t at_most(std::int64_t number) {
  constexpr std::int64_t kMost = 1 << 29;
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(number, 0, kMost));
}

Counts counts_with(std::uint64_t bytes, std::uint64_t requested) {
  return LocalAccount::counts_of(static_cast<std::uint32_t>(bytes)) +
         Counts{static_cast<std::uint32_t>(requested)};
}

// The first three counts. Each number is a constant: a loop would store the vectors to index them.
template <typename Visit>
[[gnu::always_inline]] inline void for_each_count(Visit&& visit) {
  visit(std::size_t{0});
  visit(std::size_t{1});
  visit(std::size_t{2});
}

}  // namespace

bool LocalAccount::count_allocated(std::uint64_t bytes, std::uint64_t requested) {
  if (bytes > kLargestBytes) return count_huge(+1, bytes, requested);
  allocated_ += counts_with(bytes, requested);
  for (std::size_t i = 0; i < 3; ++i)
    if (const std::uint32_t beyond = allocated_[i] - bound_[i]; beyond < kFull) {
      peak_[i] += beyond;
      bound_[i] = allocated_[i];
    }
  if (negatives(bound_ - allocated_) == 0 && !is_due(level(1, bound_))) return false;
  return begin_anew();
}

bool LocalAccount::count_freed(std::uint64_t bytes, std::uint64_t requested) {
  if (bytes > kLargestBytes) return count_huge(-1, bytes, requested);
  bound_ += counts_with(bytes, requested);
  return begin_anew();
}

// A block that the counts have no room for is in changes_ at once.
bool LocalAccount::count_huge(std::int64_t sign, std::uint64_t bytes, std::uint64_t requested) {
  const std::uint64_t amounts[] = {requested, bytes, 1};
  settle();
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    const auto amount = static_cast<std::int64_t>(amounts[i]);
    changes_[i].level += sign * amount;
    changes_[i].peak = std::max(changes_[i].peak, changes_[i].level);
    if (sign > 0) changes_[i].allocated += amount;
  }
  restart();
  return is_due(0);
}

bool LocalAccount::is_due(std::int64_t more) const {
  return std::abs(changes_[1].level + more) >= drift_;
}

// An update of the shared accounts restarts the counts itself.
bool LocalAccount::begin_anew() {
  settle();
  if (is_due(0)) return true;
  restart();
  return false;
}

// Afterwards the counts say a level of 0, so to settle again changes nothing.
void LocalAccount::settle() {
  const Counts room = bound_ - allocated_;
  const Counts level = peak_ - room;
  const Counts allocated = allocated_ - settled_;
  for_each_count([&](std::size_t i) {
    Change& change = changes_[i];
    change.level += static_cast<std::int32_t>(level[i]);
    const std::int64_t highest = is_alone_ ? static_cast<std::int32_t>(room[i]) : 0;
    change.peak = std::max(change.peak, change.level + highest);
    change.allocated += allocated[i];
  });
  settled_ = allocated_;
  peak_ = room;
}

// With several threads the peak is that of the moments when the shared accounts are updated: a
// thread that climbs need not come here before.
void LocalAccount::restart() {
  Counts room = {};
  for_each_count([&](std::size_t i) {
    room[i] = at_most((is_alone_ ? changes_[i].peak : drift_) - changes_[i].level);
  });
  peak_ = room;
  may_free_ = static_cast<std::int32_t>(at_most(drift_ + changes_[1].level));
  bound_ = allocated_ + room;
  allocated_[3] = kFull / 2;
  bound_[3] = kFull - static_cast<std::uint32_t>(may_free_);
}

void Accounts::count_freed(std::uint64_t bytes, std::uint64_t requested) {
  const std::lock_guard lock(lock_);
  stats_.allocation[0].decrease(1);
  stats_.allocated_bytes[0].decrease(static_cast<std::int64_t>(bytes));
  stats_.requested_bytes[0].decrease(static_cast<std::int64_t>(requested));
}

void Accounts::flush(LocalAccount& account, void (*also)(AllocatorStats&)) {
  account.settle();
  const std::lock_guard lock(lock_);
  const std::array<Stat*, 3> all = {&stats_.requested_bytes[0], &stats_.allocated_bytes[0],
                                    &stats_.allocation[0]};
  for_each_count([&](std::size_t i) {
    const LocalAccount::Change& mine = account.changes_[i];
    all[i]->peak = std::max(all[i]->peak, all[i]->current + mine.peak);
    all[i]->current += mine.level;
    all[i]->allocated += mine.allocated;
  });
  if (also != nullptr) also(stats_);
  for_each_count([&](std::size_t i) {
    account.changes_[i] = {0, account.is_alone_ ? all[i]->peak - all[i]->current : 0, 0};
  });
  account.drift_ = account.is_alone_
                       ? INT64_MAX / 2
                       : std::max(LocalAccount::kFlushBytes, all[1]->current / 64);
  account.restart();
}

AllocatorStats Accounts::stats() const {
  const std::lock_guard lock(lock_);
  AllocatorStats out = stats_;
  out.active = out.allocation;
  out.active_bytes = out.allocated_bytes;
  return out;
}

}  // namespace tenon::host
