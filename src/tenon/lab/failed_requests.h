// Requests that ran out of memory while a program was recorded.
#pragma once

#include <cstdint>
#include <optional>

#include "tenon/trace/snapshot.h"

namespace tenon {

// What PyTorch's allocator could have on the card when a request failed.
struct RoomAtFailure {
  std::uint64_t reserved_bytes = 0;  // what it held
  std::uint64_t free_bytes = 0;      // what the driver had left
  std::uint64_t request_bytes = 0;
  // The driver had room for the request's segment: a limit failed it, or another process's memory
  // that has gone since. The room is then at least what was held.
  bool limited = false;

  std::uint64_t bytes() const { return limited ? reserved_bytes : reserved_bytes + free_bytes; }
};

// Of the trace's first failure that says what the driver had left. Nothing where there is none, or
// where the file has no segments. O(marks).
std::optional<RoomAtFailure> room_at_failure(const Snapshot& snapshot, const Trace& trace);

bool has_failed_requests(const Trace& trace);

// The trace with each request that failed served at the event where it failed, and freed at once:
// the least that the program needs to go on. What a Workload takes: of the marks those
// where idle memory went back, and neither sites nor addresses.
Trace with_failed_requests(const Trace& trace);

}  // namespace tenon
