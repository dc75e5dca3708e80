// What slept in a recording, and what that freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

// One tag's sleep.
struct TagSleep {
  std::string tag;
  std::uint64_t times = 0;          // it fell asleep
  std::uint64_t most_bytes = 0;     // most of it asleep at once: what went back to the driver
  std::uint64_t dropped_bytes = 0;  // of all that fell asleep, without its contents
  std::int64_t asleep_us = 0;       // with anything asleep
  std::uint64_t at_peak_bytes = 0;  // asleep at the live peak
  std::uint64_t at_end_bytes = 0;   // and when the recording ends
};

// By first sleep. `peak_events`: events until the live peak. O(marks log tags).
std::vector<TagSleep> tag_sleeps(const Trace& trace, std::size_t peak_events);

}  // namespace tenon
