// PyTorch's allocator settings as a point that a search can move.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/advice/torch_settings.h"

namespace tenon {

// The settings that change how much memory PyTorch's allocator needs. 0 means: as PyTorch has it.
// garbage_collection_threshold is not among them: it works only under a memory fraction, and its
// replay is approximate.
struct ConfChoice {
  bool expandable_segments = false;
  std::uint32_t large_segment_mb = 0;
  std::uint32_t roundup_divisions = 0;
  std::uint32_t roundup_from_mb = 0;    // smaller sizes are not rounded up; a power of two
  // Not with expandable segments, and not below large_segment_mb, which PyTorch refuses.
  std::uint32_t max_split_mb = 0;

  // "expandable_segments:True,roundup_power2_divisions:64"; empty for PyTorch's defaults. Means
  // the same to every version: before 2.9 the ">" of a list also replaced the entry before it.
  std::string text() const;
  // Settings in use.
  std::size_t keys() const;
  friend bool operator==(const ConfChoice&, const ConfChoice&) = default;
  friend auto operator<=>(const ConfChoice&, const ConfChoice&) = default;
};

// A fixed list that covers the space coarsely, what helps most often first: PyTorch's defaults,
// then expandable_segments:True alone, then combinations. Only what that PyTorch accepts.
std::vector<ConfChoice> coarse_choices(TorchVersion version);

// What differs from `choice` in one setting by one step, of what that PyTorch accepts.
std::vector<ConfChoice> neighbours_of(const ConfChoice& choice, TorchVersion version);

}  // namespace tenon
