#include "tenon/memory/plan/shared_range.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "tenon/base/check.h"

namespace tenon {

SharedRange::PerStream& SharedRange::of(Stream stream) {
  if (stream.id >= streams_.size()) streams_.resize(stream.id + 1);
  if (streams_[stream.id] == nullptr)
    streams_[stream.id] = std::make_unique<PerStream>(backend_, stream);
  return *streams_[stream.id];
}

bool SharedRange::claim(std::uint64_t offset, std::uint64_t size, Stream stream,
                        std::uint64_t generation) {
  const std::lock_guard lock(lock_);
  if (closed_ || generation != generation_.load(std::memory_order_relaxed)) return false;
  const std::uint64_t end = offset + size;
  const auto above = in_use_.lower_bound(offset);
  if (above != in_use_.end() && above->first < end) return false;
  if (above != in_use_.begin() && std::prev(above)->second > offset) return false;
  wait_for_others(offset, end, stream);
  forget(offset, end);
  in_use_.emplace(offset, end);
  return true;
}

void SharedRange::wait_for_others(std::uint64_t offset, std::uint64_t end, Stream stream) {
  auto piece = left_.upper_bound(offset);
  if (piece != left_.begin()) --piece;
  for (; piece != left_.end() && piece->first < end; ++piece) {
    const Left& left = piece->second;
    if (left.end <= offset || left.stream == stream.id) continue;
    PerStream& taking = of(stream);
    PerStream& leaving = *streams_[left.stream];
    if (left.stream >= taking.awaited.size()) taking.awaited.resize(left.stream + 1);
    if (taking.awaited[left.stream] >= left.number) continue;
    leaving.clock.let_wait(stream, left.number, leaving.now);
    taking.awaited[left.stream] = left.number;
  }
}

// Cuts the range out of what was left.
void SharedRange::forget(std::uint64_t offset, std::uint64_t end) {
  auto piece = left_.upper_bound(offset);
  if (piece != left_.begin()) --piece;
  while (piece != left_.end() && piece->first < end) {
    const std::uint64_t begin = piece->first;
    const Left left = piece->second;
    if (left.end <= offset) {
      ++piece;
      continue;
    }
    piece = left_.erase(piece);
    if (begin < offset) left_.emplace(begin, Left{offset, left.stream, left.number});
    if (left.end > end) piece = left_.emplace(end, left).first;
  }
}

void SharedRange::give_back(std::uint64_t offset, std::uint64_t size, Stream stream) {
  const std::lock_guard lock(lock_);
  in_use_.erase(offset);
  left_.emplace(offset, Left{offset + size, stream.id, ++of(stream).now});
}

void SharedRange::bring(Chunk* chunk) {
  const std::lock_guard lock(lock_);
  chunk_ = chunk;
  ++generation_;
}

bool SharedRange::close_if_free() {
  const std::lock_guard lock(lock_);
  closed_ = in_use_.empty();
  return closed_;
}

// The driver waits for all work before it takes memory back, so nobody is waited for any more.
void SharedRange::take_away() {
  const std::lock_guard lock(lock_);
  closed_ = false;
  chunk_ = nullptr;
  ++generation_;
  left_.clear();
}

void SharedRange::check_invariants() const {
  const std::lock_guard lock(lock_);
  std::uint64_t highest = 0;
  for (const auto& [begin, end] : in_use_) {
    TENON_CHECK(begin >= highest && begin < end, "blocks overlap at {}", begin);
    highest = end;
  }
}

}  // namespace tenon
