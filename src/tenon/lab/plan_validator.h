// Checks a plan against the recording that it was made for, and a packing against its problem.
// Shares no code with any planner.
//
// Thread-safe: pure functions of their arguments. What is wrong with a plan is the result; the only
// error is lack of memory (std::bad_alloc).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/heap/plan.h"
#include "tenon/trace/trace.h"

namespace tenon {

// What is wrong with the plan, in one line with the stream, the allocation and the numbers. Empty
// if the plan is valid: every allocation of the trace has a slot, large enough and on its unit. No
// two blocks that live at the same time on one stream overlap (on any stream, where streams share).
// The plan's size holds them all. A plan with a loop is followed around it. Replays the trace over
// a map of occupied ranges: O(n log n).
std::string find_plan_error(const Plan& plan, const Trace& trace);

// A buffer that lives in [lower, upper), and where it was put.
struct PlacedBuffer {
  std::int64_t lower = 0;
  std::int64_t upper = 0;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;
};

// What is wrong with a packing, in one line with the buffers' numbers (from 0) and places. Empty if
// it is valid: all end within the capacity, and no two that live at the same time overlap. Sweeps
// through time over a map of occupied ranges: O(n log n).
std::string find_packing_error(const std::vector<PlacedBuffer>& buffers,
                               std::uint64_t capacity_bytes);

}  // namespace tenon
