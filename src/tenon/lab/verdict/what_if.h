// The live peak of a trace whose blocks had other sizes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/trace/trace.h"

namespace tenon {

// The most bytes live at once in the first `events` events, and then with `request_bytes` more, if
// each block had the size that `size_of(block, size_bytes)` gives. O(events).
template <typename SizeOf>
std::uint64_t live_peak_if(const Trace& trace, std::size_t events, std::uint64_t request_bytes,
                           SizeOf&& size_of) {
  std::uint64_t live = 0;
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < events; ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.op == TraceOp::kFreeRequested) continue;
    const std::uint64_t bytes = size_of(event.block, event.size_bytes);
    if (event.op == TraceOp::kAlloc) {
      live += bytes;
      most = std::max(most, live);
    } else {
      live -= bytes;
    }
  }
  return std::max(most, live + request_bytes);
}

}  // namespace tenon
