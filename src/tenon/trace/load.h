// A trace from a file of any format that Tenon reads.
#pragma once

#include <string>
#include <vector>

#include "tenon/trace/snapshot.h"
#include "tenon/trace/trace.h"

namespace tenon {

// Reads CSV or a PyTorch snapshot, either of them compressed with zstd or not. The content decides,
// not the name. One trace, or for a snapshot one for each device with events.
// Throws ParseError: name, line, column, reason.
std::vector<Trace> load_traces(const std::string& path);

// The same with everything else that a snapshot holds. Of other formats there are the trace, and the
// figures that can be counted in it.
Snapshot load_snapshot(const std::string& path);

}  // namespace tenon
