#include "tenon/trace/recorder.h"

#include <fmt/format.h>

namespace tenon {

Recorder::Recorder(std::string name)
    : name_(std::move(name)), builder_(name_), start_(std::chrono::steady_clock::now()) {}

void Recorder::on_memory_event(const MemoryEventInfo& info) {
  if (info.data == nullptr) return;
  const auto address = reinterpret_cast<std::uintptr_t>(info.data);
  const std::lock_guard lock(mutex_);
  // Under the lock, so that times rise in the order of events.
  const std::int64_t time_us = std::chrono::duration_cast<std::chrono::microseconds>(
                                   std::chrono::steady_clock::now() - start_)
                                   .count();
  switch (info.event) {
    case MemoryEvent::kAllocated:
    case MemoryEvent::kRecycled:
      allocated(address, info, time_us);
      break;
    case MemoryEvent::kFreed:
      freed(address, info, time_us);
      break;
    default:
      break;  // memory moving between allocator and driver is no part of a trace
  }
}

void Recorder::allocated(std::uint64_t address, const MemoryEventInfo& info,
                         std::int64_t time_us) {
  TraceFault fault = builder_.alloc(address, time_us, info.size_bytes, info.stream.id);
  if (fault == TraceFault::kLiveAlready) {
    builder_.free(TraceOp::kFreeCompleted, address, time_us);
    ++late_frees_[address];
    fault = builder_.alloc(address, time_us, info.size_bytes, info.stream.id);
  }
  if (fault != TraceFault::kNone) ++lost_;
}

void Recorder::freed(std::uint64_t address, const MemoryEventInfo& info, std::int64_t time_us) {
  if (const auto late = late_frees_.find(address); late != late_frees_.end()) {
    if (--late->second == 0) late_frees_.erase(late);
    return;
  }
  TraceFault fault = builder_.free(TraceOp::kFreeCompleted, address, time_us);
  if (fault == TraceFault::kUnknown) {
    builder_.live_from_start(address, info.size_bytes, info.stream.id);
    fault = builder_.free(TraceOp::kFreeCompleted, address, time_us);
  }
  if (fault != TraceFault::kNone) ++lost_;
}

Trace Recorder::take() {
  const std::lock_guard lock(mutex_);
  if (lost_ > 0) builder_.warn(fmt::format("{}: {} events were left out", name_, lost_));
  Trace trace = builder_.finish();
  builder_ = TraceBuilder(name_);
  late_frees_.clear();
  lost_ = 0;
  start_ = std::chrono::steady_clock::now();
  return trace;
}

}  // namespace tenon
