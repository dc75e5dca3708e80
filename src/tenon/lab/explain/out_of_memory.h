// Why an allocation failed, and what would have let it pass. Thread-safe: pure functions of their
// arguments. Throws Interrupted where the thread's work is asked to stop, and std::bad_alloc. A
// remedy whose replay fails says so. O(events) for each failure and remedy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tenon/lab/explain/fragmentation.h"
#include "tenon/lab/explain/live_set.h"

namespace tenon {

// Why an allocation failed.
enum class FailureReason : std::uint8_t {
  kLiveTooLarge,   // what is live, and the request, exceed the memory there is
  kFragmented,     // enough is free in all, nowhere in one piece
  kLimited,        // the driver had room: a limit or another process stood before it
  kUnknown,        // the recording does not say what the driver had left
};

// A way out, tried or reckoned.
struct Remedy {
  std::string name;    // "expandable_segments:True"
  bool helps = false;
  std::string detail;  // one line with the numbers
};

// One failed allocation.
struct OutOfMemoryReport {
  std::int64_t time_us = 0;
  std::size_t events = 0;              // that happened before
  std::uint64_t request_bytes = 0;
  std::uint64_t segment_bytes = 0;     // what PyTorch then asks of the driver
  std::uint64_t stream = 0;
  std::uint32_t site = 0;              // in the trace's sites
  std::optional<std::uint64_t> device_free_bytes;
  std::uint64_t live_bytes = 0;        // of requested size
  std::uint64_t reserved_bytes = 0;
  std::uint64_t capacity_bytes = 0;    // reserved, and what the driver had left
  std::uint64_t missing_bytes = 0;     // live + request - capacity, where that is positive
  LiveSet live;                        // what was live then
  std::string call_site;               // of the request; empty where it is not known
  std::vector<std::string> stack;      // of the request, innermost first, machinery left out
  Fragmentation fragmentation;         // seen from the request's stream
  FailureReason reason = FailureReason::kUnknown;
  std::vector<std::string> why;        // sentences
  std::vector<Remedy> remedies;
};

// One for each `oom` mark, at most `limit` (the first ones). `end`: the snapshot's segments,
// `settings`: those that it was recorded under.
// Remedies of another policy come from replays of the events so far and of the failing request on a
// device of that capacity, several policies in turn. Where a limit failed the request, the capacity
// is what PyTorch held: the limit was no less. These are left out with `replay` false, and where
// the live bytes and the request exceed the capacity.
std::vector<OutOfMemoryReport> explain_failures(const TraceFacts& facts,
                                                const std::vector<SnapshotSegment>& end,
                                                const CachingSettings& settings,
                                                bool replay = true, std::size_t limit = 8);

}  // namespace tenon
