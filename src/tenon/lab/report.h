// Survey results as JSON for programs and as a table for people. Thread-safe: pure functions of
// their arguments. O(results).
#pragma once

#include <string>
#include <vector>

#include "tenon/lab/survey.h"

namespace tenon {

// An array of objects, one for each result without an error. The keys are trace, policy, events,
// live_peak_bytes, reserved_peak_bytes, min_capacity_bytes (null when not asked for), driver_calls,
// driver_stall_us, moving_stall_us, trace_duration_us, ns_per_event (null when not measured),
// out_of_memory, layout_hash (16 hexadecimal digits), fragmentation and floor_ns_per_event. With a
// capacity there is also capacity_bytes, and where memory ran out, out_of_memory_event and
// out_of_memory_message.
std::string report_json(const std::vector<SurveyResult>& results);

// One block for each trace, a row for each policy; at the end, for more than one trace, each
// policy's geometric means and worst cases. Requires: the results of one survey, in its order.
std::string report_table(const std::vector<SurveyResult>& results);

}  // namespace tenon
