// Makes traces out of the events of a profile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tenon/trace/site_table.h"
#include "tenon/trace/snapshot.h"

namespace tenon {

// Memory that a device's allocator handed out (bytes above 0) or took back, or could not find.
struct ProfileMemory {
  double time_us = 0;
  std::int64_t bytes = 0;
  std::uint64_t address = 0;
  std::optional<std::uint64_t> allocated;  // what the allocator counts as allocated, afterwards
  std::optional<std::uint64_t> reserved;
  std::uint32_t thread = 0;
  std::int64_t device_type = 0;  // 0: the host
  std::int64_t device_id = 0;    // -1: the only one
  bool failed = false;
};

// Something that a thread did from a moment to another: an operator, a function of Python, or what
// the program named by record_function.
struct ProfileSpan {
  double begin_us = 0;
  double end_us = 0;
  std::uint32_t thread = 0;
  std::uint32_t what = 0;  // a frame, or a phase's name, in `sites`
  bool phase = false;
};

struct ProfileEvents {
  std::vector<ProfileMemory> memory;
  std::vector<ProfileSpan> spans;
  SiteTable sites;
};

// Throws ParseError for numbers that no program has. Requires: an event of memory that did not
// fail. O(events log events).
Snapshot build_profile(ProfileEvents events, const std::string& path);

}  // namespace tenon
