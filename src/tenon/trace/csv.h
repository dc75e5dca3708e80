// Traces as comma-separated values.
#pragma once

#include <string>
#include <string_view>

#include "tenon/trace/trace.h"

namespace tenon {

// The first line names the columns, in any order: time_us, op (alloc, free_requested,
// free_completed), id, size, stream. Further columns are ignored. Sizes and streams of frees are
// those of the block. A size of 0 is a valid request.
//
// Throws ParseError with line and column (in bytes, from 1) for: missing or repeated columns, a
// line with too few or too many fields, an unknown op, numbers that are none, negative or too
// large, an id allocated while it is live, frees of ids that are unknown or free already.
// Times that run backwards are a warning. One pass, O(bytes).
Trace parse_csv(std::string_view bytes, const std::string& path);

// The whole trace in that format; block numbers become the ids.
std::string format_csv(const Trace& trace);

// Writes ".csv" or ".csv.zst". Throws std::runtime_error when the file cannot be written.
void write_csv(const Trace& trace, const std::string& path);

}  // namespace tenon
