#include "tenon/lab/synthesis/program.h"

#include <algorithm>
#include <new>
#include <vector>

#include "tenon/base/check.h"

namespace tenon::synthesis {
namespace {

// One H200, rounded: what the fastest device does in a nanosecond.
constexpr std::uint64_t kBytesPerNs = 3'000;
constexpr std::uint64_t kOperationsPerNs = 400'000;
constexpr std::uint64_t kLaunchNs = 25'000;
constexpr std::uint64_t kFreeNs = 300;
// How long another stream needs until it is done with what it was lent.
constexpr std::uint64_t kOtherStreamNs = 400'000;

}  // namespace

Storage::~Storage() { program_.drop(key_, used_elsewhere_); }

StoragePtr Program::allocate(std::uint64_t size_bytes) {
  require_memory();
  if (size_bytes == 0) return nullptr;
  complete_due();
  const std::uint64_t key = next_key_++;
  const TraceFault fault = builder_.alloc(key, time_us(), size_bytes, stream_);
  TENON_CHECK(fault == TraceFault::kNone, "a block of {} bytes exceeds a trace", size_bytes);
  sizes_.emplace(key, size_bytes);
  live_bytes_ += size_bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  return std::make_shared<Storage>(*this, key, stream_);
}

void Program::run(std::uint64_t bytes, std::uint64_t operations) {
  const std::uint64_t device_ns =
      slowdown_ * std::max(bytes / kBytesPerNs, operations / kOperationsPerNs);
  now_ns_ += std::max(kLaunchNs, device_ns);
}

void Program::drop(std::uint64_t key, bool used_elsewhere) noexcept try {
  if (finished_ || out_of_memory_) return;
  now_ns_ += kFreeNs;
  builder_.free(TraceOp::kFreeRequested, key, time_us());
  if (used_elsewhere)
    due_.emplace(now_ns_ + slowdown_ * kOtherStreamNs, key);
  else
    complete(key);
} catch (const std::bad_alloc&) {
  out_of_memory_ = true;
}

void Program::end_phase(std::string_view name) noexcept try {
  mark(MarkKind::kPhaseEnd, name);
} catch (const std::bad_alloc&) {
  out_of_memory_ = true;
}

void Program::require_memory() const {
  if (out_of_memory_) throw std::bad_alloc();
}

void Program::complete(std::uint64_t key) {
  builder_.free(TraceOp::kFreeCompleted, key, time_us());
  const auto found = sizes_.find(key);
  live_bytes_ -= found->second;
  sizes_.erase(found);
}

// PyTorch asks at each allocation which blocks other streams are done with.
void Program::complete_due() {
  while (!due_.empty() && due_.begin()->first <= now_ns_) {
    complete(due_.begin()->second);
    due_.erase(due_.begin());
  }
}

void Program::mark(MarkKind kind, std::string_view name) {
  TraceMark mark;
  mark.kind = kind;
  mark.time_us = time_us();
  mark.text = sites_.add_text(name);
  builder_.mark(mark);
}

Trace Program::finish() {
  require_memory();
  finished_ = true;
  return builder_.finish(std::make_shared<const SiteTable>(std::move(sites_)));
}

}  // namespace tenon::synthesis
