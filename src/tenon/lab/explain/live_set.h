// What was live at a moment, and who had asked for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/explain/call_sites.h"
#include "tenon/lab/explain/lifetimes.h"

namespace tenon {

struct LiveGroup {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t largest_bytes = 0;
};

// The blocks that are live after so many events, grouped three ways. Bytes are of requested size;
// each way adds up to `bytes`.
struct LiveSet {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  std::vector<LiveGroup> by_site;   // most bytes first
  std::vector<LiveGroup> by_phase;  // the phase in which they were allocated; most bytes first
  std::vector<LiveGroup> by_size;   // smallest first, empty ones left out
  std::vector<LiveGroup> by_age;    // youngest first, then what was there from the beginning
};

// The traces' facts that every report needs, worked out once. O(events) time, 40 bytes a block.
struct TraceFacts {
  explicit TraceFacts(const Trace& of);

  const Trace& trace;
  std::vector<Lifetime> lives;
  std::vector<std::int64_t> times_us;
  std::vector<std::uint32_t> phases;  // by event
  CallSites sites;
};

// O(blocks).
LiveSet live_set(const TraceFacts& facts, std::size_t events);

}  // namespace tenon
