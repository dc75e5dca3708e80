// Live memory over a recording, by category, as a picture for a report.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/explain/live_set.h"

namespace tenon {

// The recording in equal stretches of time, or of events where it has no times. Of each stretch the
// moment at which most bytes are live counts, so that no peak is lost.
struct MemoryPicture {
  struct Column {
    std::uint64_t bytes = 0;
    std::array<std::uint64_t, kCategories> by_category = {};
  };
  std::vector<Column> columns;
  std::vector<double> failures;  // where an allocation failed, from 0 to 1
  std::uint64_t duration_us = 0;
  std::uint64_t events = 0;
  std::uint64_t peak_bytes = 0;
  double peak_at = 0;  // from 0 to 1
  bool timed = false;

  static constexpr std::size_t kColumns = 300;
};

// O(events).
MemoryPicture memory_picture(const TraceFacts& facts);

// An SVG element with axes, one area for each category (classes c0, c1, ... of the style sheet),
// and a description for screen readers. `capacity_bytes`: drawn as a line; 0: none.
std::string picture_svg(const MemoryPicture& picture, std::uint64_t capacity_bytes);
// The outline alone, small, on a scale that pictures beside it share.
std::string small_picture_svg(const MemoryPicture& picture, std::uint64_t top_bytes);

}  // namespace tenon
