// What a program asked of its allocator, and when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

enum class TraceOp : std::uint8_t {
  kAlloc,
  kFreeRequested,  // the program let go
  kFreeCompleted,  // the allocator took it back: other streams are done with it
};

std::string_view trace_op_name(TraceOp op);

struct TraceEvent {
  std::int64_t time_us = 0;  // as recorded; may run backwards (Trace::warnings says so)
  std::uint64_t size_bytes = 0;
  std::uint32_t block = 0;   // 0, 1, 2, ... in order of allocation; every alloc has a new one
  std::uint32_t stream = 0;  // index into Trace::streams
  TraceOp op = TraceOp::kAlloc;

  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

// One device's recording. Readers check what they read, so that in every Trace a block is allocated
// once, freed at most once and afterwards, and sizes and their sums fit (kMaxRequestBytes).
struct Trace {
  std::string name;
  std::vector<TraceEvent> events;
  std::vector<std::uint64_t> streams;  // the recording's own stream values, by order of first use
  std::uint32_t blocks = 0;            // allocations in `events`
  std::vector<std::string> warnings;   // oddities that do not stop a replay, one line each

  // Events that a replay performs: alloc and free_completed.
  std::uint64_t replayed_events() const;
  // Most bytes of requested size live at once, from alloc to free_completed.
  std::uint64_t live_peak_bytes() const;
  // Last time minus first; time that runs backwards counts as standing still.
  std::uint64_t duration_us() const;
};

// "dir/gpt2.csv.zst" is the trace "gpt2".
std::string trace_name(std::string_view path);

}  // namespace tenon
