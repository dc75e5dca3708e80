#include "tenon/memory/host/accounts.h"

#include <algorithm>

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

// Without pools, blocks count as large ones.
constexpr std::size_t kPools[] = {static_cast<std::size_t>(StatPool::kAll),
                                  static_cast<std::size_t>(StatPool::kLarge)};

// The first three counts. Each number is a constant: a loop would store the vectors to index them.
template <typename Visit>
[[gnu::always_inline]] inline void for_each_count(Visit&& visit) {
  visit(std::size_t{0});
  visit(std::size_t{1});
  visit(std::size_t{2});
}

}  // namespace

void LocalAccount::count_allocated_slowly(std::uint64_t bytes, std::uint64_t requested) {
  if (bytes > kLargestBytes) return count_huge(+1, bytes, requested);
  allocated_ += counts_with(bytes, requested);
  for (std::size_t i = 0; i < 3; ++i)
    if (const std::uint32_t beyond = allocated_[i] - bound_[i]; beyond < kFull) {
      peak_[i] += beyond;
      bound_[i] = allocated_[i];
    }
  if (negatives(bound_ - allocated_) != 0 || has_drifted(level(1, bound_))) begin_anew();
}

void LocalAccount::count_freed_slowly(std::uint64_t bytes, std::uint64_t requested) {
  if (bytes > kLargestBytes) return count_huge(-1, bytes, requested);
  bound_ += counts_with(bytes, requested);
  begin_anew();
}

// A block that the counts have no room for is in sums_ at once.
void LocalAccount::count_huge(std::int64_t sign, std::uint64_t bytes, std::uint64_t requested) {
  const std::uint64_t amounts[] = {requested, bytes, 1};
  settle();
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const auto amount = static_cast<std::int64_t>(amounts[i]);
    if (sign > 0)
      sums_[i].increase(amount);
    else
      sums_[i].decrease(amount);
  }
  go_on();
}

void LocalAccount::begin_anew() {
  settle();
  go_on();
}

void LocalAccount::go_on() {
  if (has_drifted(0)) allowed_drift_ = board_->publish(share_, levels(&Stat::current));
  restart();
}

void LocalAccount::settle() {
  const Counts room = bound_ - allocated_;
  const Counts level = peak_ - room;
  const Counts allocated = allocated_ - settled_;
  for_each_count([&](std::size_t i) {
    Stat& sum = sums_[i];
    sum.current += static_cast<std::int32_t>(level[i]);
    if (board_ == nullptr)
      sum.peak = std::max(sum.peak, sum.current + static_cast<std::int32_t>(room[i]));
    sum.allocated += allocated[i];
  });
  settled_ = allocated_;
}

// With several threads, room is what the bytes may drift.
void LocalAccount::restart() {
  Counts room = {};
  for_each_count([&](std::size_t i) {
    room[i] = at_most(board_ == nullptr ? sums_[i].peak - sums_[i].current
                                        : allowed_drift_ - drift(0));
  });
  peak_ = room;
  may_free_ = static_cast<std::int32_t>(at_most(allowed_drift_ + drift(0)));
  bound_ = allocated_ + room;
  allocated_[3] = kFull / 2;
  bound_[3] = kFull - static_cast<std::uint32_t>(may_free_);
}

void LocalAccount::join(PeakBoard* board) {
  if (board_ != nullptr) return;
  board_ = board;
  board_->add(share_);
  publish();
}

void LocalAccount::publish() {
  allowed_drift_ = board_ == nullptr ? kAnyDrift : 0;
  begin_anew();
}

PeakBoard::Levels LocalAccount::levels(std::int64_t Stat::*which) const {
  const auto [requested, bytes, blocks] = sums_;
  return {blocks.*which, bytes.*which, blocks.*which, bytes.*which, requested.*which};
}

PeakBoard::Levels LocalAccount::peaks() {
  settle();
  restart();
  return levels(&Stat::peak);
}

void LocalAccount::reset_peaks() {
  settle();
  for (Stat& sum : sums_) sum.peak = sum.current;
  restart();
  publish();
}

void LocalAccount::add_share(AllocatorStats& out) {
  publish();
  for (const std::size_t pool : kPools) {
    out.requested_bytes[pool] += sums_[0];
    out.allocated_bytes[pool] += sums_[1];
    out.allocation[pool] += sums_[2];
  }
}

void Accounts::count_freed(std::uint64_t bytes, std::uint64_t requested) {
  const std::lock_guard lock(lock_);
  for (const std::size_t pool : kPools) {
    stats_.allocation[pool].decrease(1);
    stats_.allocated_bytes[pool].decrease(static_cast<std::int64_t>(bytes));
    stats_.requested_bytes[pool].decrease(static_cast<std::int64_t>(requested));
  }
  const std::int64_t blocks = stats_.allocation[0].current;
  const std::int64_t held = stats_.allocated_bytes[0].current;
  board_.publish(without_account_, {blocks, held, blocks, held, stats_.requested_bytes[0].current});
}

}  // namespace tenon::host
