// Static-planning problems whose perfect packing is known.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/base/random.h"
#include "tenon/lab/planning/request.h"

namespace tenon::rigs {

// Requests, and offsets at which they fill the capacity at every moment.
struct PerfectPacking {
  std::vector<PlanRequest> requests;
  std::vector<std::uint64_t> offsets;
};

// `count` rectangles (or up to three more, or fewer where nothing is left to cut) cut at random out
// of [0, capacity) x [0, duration): a piece into two, or into five around a middle one, which no
// sequence of cuts from edge to edge makes. The larger of two pieces at random is cut, so that
// sizes and lives differ by some orders of magnitude. In random order. O(count).
PerfectPacking cut_rectangle(Random& random, std::uint64_t capacity, std::uint32_t duration,
                             std::size_t count);

}  // namespace tenon::rigs
