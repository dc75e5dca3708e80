// PyTorch's allocator settings as a point that a search can move.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon {

// The settings that change how much memory PyTorch's allocator needs. 0 means: as PyTorch has it.
struct ConfChoice {
  bool expandable_segments = false;
  std::uint32_t large_segment_mb = 0;
  std::uint32_t roundup_divisions = 0;
  std::uint32_t roundup_from_mb = 0;    // smaller sizes are not rounded up; a power of two
  std::uint32_t max_split_mb = 0;       // not with expandable segments
  // garbage_collection_threshold in per cent; not with expandable segments
  std::uint32_t garbage_percent = 0;

  // "expandable_segments:True,roundup_power2_divisions:64"; empty for PyTorch's defaults.
  std::string text() const;
  friend bool operator==(const ConfChoice&, const ConfChoice&) = default;
  friend auto operator<=>(const ConfChoice&, const ConfChoice&) = default;
};

// A fixed list that covers the space coarsely, what helps most often first: PyTorch's defaults,
// then expandable_segments:True alone, then combinations.
std::vector<ConfChoice> coarse_choices();

// What differs from `choice` in one setting by one step.
std::vector<ConfChoice> neighbours_of(const ConfChoice& choice);

}  // namespace tenon
