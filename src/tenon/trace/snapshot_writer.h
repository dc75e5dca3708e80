// Writes PyTorch's snapshot format. Thread-safe: pure functions of their arguments. The only error
// is lack of memory (std::bad_alloc). O(events log live blocks) for a trace without addresses, else
// O(events).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tenon/trace/snapshot.h"

namespace tenon {

// A pickle of protocol 4 with the opcodes that PyTorch's viewer knows. It has segments,
// device_traces (each trace at its device's place; where two share an index, at the next free one),
// allocator_settings and external_annotations. What parse_snapshot read comes back the same.
//
// A trace without addresses gets some: best fit in one range for each stream. Where `segments` has
// none for a trace, the ranges that its blocks ever covered become segments, there all the time.
std::string format_snapshot(std::span<const Trace> traces,
                            const std::vector<SnapshotSegment>& segments = {});

}  // namespace tenon
