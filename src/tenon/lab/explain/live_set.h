// What was live at a moment, and who had asked for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/explain/call_sites.h"
#include "tenon/lab/explain/lifetimes.h"
#include "tenon/lab/verdict/categories.h"

namespace tenon {

struct LiveGroup {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t largest_bytes = 0;
};

// The blocks of one category.
struct CategoryGroup : LiveGroup {
  Category category = Category::kUnknown;
  std::array<std::uint64_t, 3> confidence_bytes = {};  // by Confidence; adds up to `bytes`
  std::vector<LiveGroup> sites;                        // its call sites, most bytes first
};

// The blocks that are live after so many events, grouped five ways. Bytes are of requested size;
// each way adds up to `bytes`.
struct LiveSet {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  std::vector<CategoryGroup> by_category;  // most bytes first
  std::vector<LiveGroup> by_site;   // most bytes first; gradients by the call they belong to
  std::vector<LiveGroup> by_phase;  // the phase in which they were allocated; most bytes first
  std::vector<LiveGroup> by_size;   // smallest first, empty ones left out
  // Youngest first, then what was there from the beginning; by events where there are no times.
  std::vector<LiveGroup> by_age;
};

// The traces' facts that every report needs, worked out once. O(events) time, 50 bytes a block.
struct TraceFacts {
  explicit TraceFacts(const Trace& of);

  const Trace& trace;
  std::vector<Lifetime> lives;
  std::vector<std::int64_t> times_us;
  std::vector<std::uint32_t> phases;  // by event
  CallSites sites;
  Categories categories;
  bool has_times = false;  // PyTorch before 2.2 recorded none
};

// O(blocks).
LiveSet live_set(const TraceFacts& facts, std::size_t events);

}  // namespace tenon
