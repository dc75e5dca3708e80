// When each block of a trace came and went. Thread-safe: pure functions of their arguments. The
// only error is lack of memory (std::bad_alloc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

// A block's life, by numbers of events.
struct Lifetime {
  static constexpr std::uint32_t kNever = ~std::uint32_t{0};

  std::uint64_t size_bytes = 0;
  std::uint32_t alloc = 0;
  std::uint32_t requested = kNever;  // the program freed it
  std::uint32_t completed = kNever;  // the allocator took it back
  std::uint32_t site = 0;
  std::uint32_t stream = 0;          // index into Trace::streams

  // Whether the block is live when `events` events have happened.
  bool live_after(std::size_t events) const { return alloc < events && completed >= events; }
};

// By block. O(events).
std::vector<Lifetime> lifetimes(const Trace& trace);

// Time of each event as a clock that never runs backwards: the latest time so far.
std::vector<std::int64_t> steady_times(const Trace& trace);

// A moment of a trace: after so many events.
struct Moment {
  std::size_t events = 0;
  std::int64_t time_us = 0;
  std::uint64_t bytes = 0;  // live or reserved, whatever is at its peak
};

// The first moment at which most requested bytes are live.
Moment live_peak(const Trace& trace);

// Bytes held from the driver over time, from the marks and what was held at the end.
struct ReservedHistory {
  // A change of what is held.
  struct Step {
    std::size_t events = 0;  // that happened before
    std::int64_t time_us = 0;
    std::uint64_t bytes = 0;  // from here on
  };
  std::vector<Step> steps;  // the first one is the beginning

  // Empty marks and nothing held: no history.
  bool known() const { return !steps.empty(); }
  // Held when so many events have happened.
  std::uint64_t at(std::size_t events) const;
  // The first step at which most is held. Requires: known().
  const Step& peak() const;
};

// `end_bytes`: held when the recording ended.
ReservedHistory reserved_history(const Trace& trace, std::uint64_t end_bytes);

}  // namespace tenon
