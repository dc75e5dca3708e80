// A trace from a file of any format that Tenon reads.
#pragma once

#include <string>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

// Reads CSV or a PyTorch snapshot, either of them compressed with zstd or not. The content decides,
// not the name. One trace, or for a snapshot one for each device with events.
// Throws ParseError: name, line, column, reason.
std::vector<Trace> load_traces(const std::string& path);

}  // namespace tenon
