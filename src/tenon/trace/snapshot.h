// PyTorch's memory snapshots: what torch.cuda.memory._dump_snapshot writes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

// What a snapshot holds, besides the events that make a Trace.
struct SnapshotFigures {
  std::uint64_t segments = 0;
  std::uint64_t blocks = 0;
  std::uint64_t total_bytes = 0;      // of all segments
  std::uint64_t allocated_bytes = 0;
  std::map<std::string, std::uint64_t, std::less<>> states;   // blocks by state
  std::map<std::string, std::uint64_t, std::less<>> actions;  // trace entries by action
  std::vector<std::uint64_t> trace_entries;                   // by device
  std::uint64_t external_annotations = 0;
};

struct Snapshot {
  std::vector<Trace> traces;  // one for each device that has events
  SnapshotFigures figures;
};

// Builds traces from `device_traces`. Addresses become blocks. alloc, free_requested and
// free_completed are taken; segment_* and others are not; `oom` entries become warnings. A block
// that was live before the recording began (its free has no alloc, or `segments` shows it in use
// and no event names it) is allocated at the beginning. Where entries contradict each other (a ring
// buffer that lost some), the trace goes on and a warning says how often.
//
// The trace is named after the file; with events on several devices, "name:0", "name:1".
// Throws ParseError for what is not such a snapshot, or has no events (it says how to record them).
Snapshot parse_snapshot(std::string_view bytes, const std::string& path);

}  // namespace tenon
