// Traces to files of any format that others read. Thread-safe while no two threads write one path.
// O(events).
#pragma once

#include <span>
#include <string>

#include "tenon/trace/snapshot.h"
#include "tenon/trace/trace.h"

namespace tenon {

// The formats that traces are written in.
enum class TraceFormat : std::uint8_t {
  kCsv,       // .csv: Tenon's own
  kSnapshot,  // .pickle, .pkl: PyTorch's, which its viewer (pytorch.org/memory_viz) opens
  kPerfetto,  // .json: the trace event format of Perfetto and chrome://tracing
};

// By the ending, with or without ".zst". Throws InvalidArgument, naming the endings, for others.
TraceFormat traces_format(const std::string& path);

// Writes all traces into one file, compressed where its name ends in ".zst". Throws InvalidArgument
// as above, std::runtime_error when the file cannot be written.
void write_traces(std::span<const Trace> traces, const std::string& path);
// The same with the segments of a snapshot, which the snapshot format keeps.
void write_traces(std::span<const Trace> traces, const std::vector<SnapshotSegment>& segments,
                  const std::string& path);

}  // namespace tenon
