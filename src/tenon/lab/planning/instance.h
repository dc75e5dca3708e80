// Static-planning problems as files: `id,lower,upper,size`, the format of google/minimalloc.
// Thread-safe: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/lab/planning/request.h"

namespace tenon {

// One line: a buffer that lives in [lower, upper).
struct InstanceBuffer {
  std::string id;
  std::int64_t lower = 0;
  std::int64_t upper = 0;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;  // where Instance::solved
};

// A static-planning problem.
struct Instance {
  std::string name;
  std::vector<InstanceBuffer> buffers;
  bool solved = false;  // the file had the column `offset`
};

// Whether the first line names the columns of an instance rather than those of a trace.
bool looks_like_instance(std::string_view bytes);

// The first line names the columns, in any order: id, lower (or begin), upper (or end), size, and
// for a solution offset. Throws ParseError with line and column for missing, repeated or unknown
// columns (a constraint that is not understood must not be ignored). Also for lines with too few or
// too many fields, and numbers that are malformed or too large. Also for a size of 0, a life that
// ends before it begins, and repeated ids. O(n log n).
Instance parse_instance(std::string_view bytes, const std::string& path);

// With the column `offset`. Requires: an offset for each buffer.
std::string format_instance(const Instance& instance, const std::vector<std::uint64_t>& offsets);

// What the packers take: times become their ranks, so that any range of times serves.
std::vector<PlanRequest> requests_of(const Instance& instance);

}  // namespace tenon
