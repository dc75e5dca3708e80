#include "tenon/lab/explain/lifetimes.h"

#include <algorithm>

namespace tenon {

std::vector<Lifetime> lifetimes(const Trace& trace) {
  std::vector<Lifetime> lives(trace.blocks);
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    Lifetime& life = lives[event.block];
    const auto number = static_cast<std::uint32_t>(i);
    switch (event.op) {
      case TraceOp::kAlloc:
        life.size_bytes = event.size_bytes;
        life.alloc = number;
        life.site = event.site;
        life.stream = event.stream;
        break;
      case TraceOp::kFreeRequested: life.requested = number; break;
      case TraceOp::kFreeCompleted: life.completed = number; break;
    }
  }
  return lives;
}

std::vector<std::int64_t> steady_times(const Trace& trace) {
  std::vector<std::int64_t> times;
  times.reserve(trace.events.size());
  for (const TraceEvent& event : trace.events)
    times.push_back(times.empty() ? event.time_us : std::max(times.back(), event.time_us));
  return times;
}

Moment live_peak(const Trace& trace) {
  Moment peak;
  std::uint64_t live = 0;
  std::int64_t now_us = trace.events.empty() ? 0 : trace.events.front().time_us;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    now_us = std::max(now_us, event.time_us);
    if (event.op == TraceOp::kAlloc) live += event.size_bytes;
    if (event.op == TraceOp::kFreeCompleted) live -= event.size_bytes;
    if (live > peak.bytes) peak = {i + 1, now_us, live};
  }
  return peak;
}

std::uint64_t ReservedHistory::at(std::size_t events) const {
  const auto after = std::lower_bound(
      steps.begin(), steps.end(), events,
      [](const Step& step, std::size_t number) { return step.events < number; });
  if (steps.empty()) return 0;
  return after == steps.begin() ? steps.front().bytes : std::prev(after)->bytes;
}

const ReservedHistory::Step& ReservedHistory::peak() const {
  return *std::max_element(steps.begin(), steps.end(),
                           [](const Step& a, const Step& b) { return a.bytes < b.bytes; });
}

// Walks backwards from what is known, the end: a recording may begin late.
ReservedHistory reserved_history(const Trace& trace, std::uint64_t end_bytes) {
  ReservedHistory history;
  std::uint64_t bytes = end_bytes;
  if (end_bytes == 0) {  // nothing is known of the end, or all went back: what came counts
    for (const TraceMark& mark : trace.marks) {
      if (memory_came(mark.kind)) bytes += mark.size_bytes;
      if (memory_went(mark.kind)) bytes -= std::min(bytes, mark.size_bytes);
    }
  }
  for (std::size_t i = trace.marks.size(); i-- > 0;) {
    const TraceMark& mark = trace.marks[i];
    if (!memory_came(mark.kind) && !memory_went(mark.kind)) continue;
    history.steps.push_back({mark.event, mark.time_us, bytes});
    if (memory_came(mark.kind)) bytes -= std::min(bytes, mark.size_bytes);
    if (memory_went(mark.kind)) bytes += mark.size_bytes;
  }
  if (history.steps.empty() && end_bytes == 0) return history;
  const std::int64_t first_us = trace.events.empty() ? 0 : trace.events.front().time_us;
  history.steps.push_back({0, first_us, bytes});
  std::reverse(history.steps.begin(), history.steps.end());
  return history;
}

}  // namespace tenon
