// Plans as files. Thread-safe: pure functions of their arguments. O(slots).
#pragma once

#include <string>
#include <string_view>

#include "tenon/heap/plan.h"

namespace tenon {

// Text, a fact a line; docs/plan.md has the format. The last line is a hash over all that stands
// before it, so that a file that was cut or changed is found out.
std::string format_plan(const Plan& plan);

// Reads that format and nothing else. Throws ParseError with the line and the reason: another
// version, a line that the format does not have, or numbers that are too large. Also for more slots
// than lines, slots that overflow, a wrong hash, and data after the end.
Plan parse_plan(std::string_view bytes, const std::string& path);

// Whether the file begins like a plan of any version.
bool looks_like_plan(std::string_view bytes);

}  // namespace tenon
