// Large recordings for benchmarks: a shipped one, again and again.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon::bench {

// The trace `times` times in a row. What is live at the end of a repetition is freed there.
inline Trace repeated(const Trace& once, int times) {
  Trace all = once;
  const std::int64_t period = static_cast<std::int64_t>(once.duration_us()) + 1;
  std::vector<bool> live(once.blocks, false);
  for (const TraceEvent& event : once.events)
    live[event.block] = event.op != TraceOp::kFreeCompleted;
  const std::int64_t last_us = once.events.empty() ? 0 : once.events.front().time_us + period - 1;
  std::vector<TraceEvent> one = once.events;
  for (const TraceEvent& event : once.events)
    if (event.op == TraceOp::kAlloc && live[event.block])
      one.push_back({last_us, event.size_bytes, event.block, event.stream,
                     TraceOp::kFreeCompleted, event.site});
  all.events = one;
  all.events.reserve(one.size() * static_cast<std::size_t>(times));
  const std::vector<std::uint64_t> addresses = all.addresses;
  for (int time = 1; time < times; ++time) {
    for (TraceEvent event : one) {
      event.time_us += time * period;
      event.block += static_cast<std::uint32_t>(time) * once.blocks;
      all.events.push_back(event);
    }
    all.addresses.insert(all.addresses.end(), addresses.begin(), addresses.end());
    all.blocks += once.blocks;
  }
  return all;
}

}  // namespace tenon::bench
