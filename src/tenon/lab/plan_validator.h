// Checks a plan against the recording that it was made for. Shares no code with any planner.
#pragma once

#include <string>

#include "tenon/heap/plan.h"
#include "tenon/trace/trace.h"

namespace tenon {

// What is wrong with the plan, in one line with the stream, the allocation and the numbers; empty
// when nothing is: every allocation of the trace has a slot, large enough and on its unit, no two
// blocks that live at the same time on one stream overlap, and the plan's size holds them all.
// Replays the trace over a map of occupied ranges: O(n log n).
std::string find_plan_error(const Plan& plan, const Trace& trace);

}  // namespace tenon
