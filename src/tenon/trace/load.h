// A trace from a file of any format that Tenon reads. Thread-safe. O(bytes).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/trace/snapshot.h"
#include "tenon/trace/trace.h"

namespace tenon {

// A file that may be sound, but the process cannot get the memory to read it.
class FileTooLarge : public ParseError {
 public:
  // As a ParseError is made.
  using ParseError::ParseError;
};

// Reads CSV, a log of RMM, a PyTorch snapshot (pickled, as JSON, or in a page of
// torch.cuda._memory_viz) or a profile of torch.profiler, each of them compressed with zstd or
// gzip, or not. The content decides, not the name. One trace
// for each device with events. Throws ParseError: name, line, column, reason. FileTooLarge where
// memory is what is missing.
std::vector<Trace> load_traces(const std::string& path);

// The same with everything else that a snapshot holds. Of other formats there are the trace, and
// the figures that can be counted in it. `progress` gets bytes done and in all, now and then.
Snapshot load_snapshot(const std::string& path,
                       const std::function<void(std::size_t, std::size_t)>& progress = {});

}  // namespace tenon
