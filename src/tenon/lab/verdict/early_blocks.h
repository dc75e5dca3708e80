// Categories of what was live before the recording began.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "tenon/lab/verdict/categories.h"
#include "tenon/lab/verdict/stack_hint.h"

namespace tenon {

struct EarlyBlocksInput {
  const Trace& trace;
  std::span<const Lifetime> lives;
  const CallSites& sites;
  std::span<const StackHint> hints;  // by stack
  // Sizes of weights' gradients that the recording shows, with the most that one pass leaves.
  const std::unordered_map<std::uint64_t, std::uint64_t>& gradient_sizes;
};

// Whether the recording holds nothing but what was live when it was taken (and one event at most).
bool has_no_history(const Trace& trace);

// Fills the first `early_blocks` of `out.blocks`. A snapshot has stacks for blocks that were still
// in use when it was taken; of others, the size and the moment when they were freed must do, and
// without history nothing tells (kUnknown). O(early blocks log early blocks).
void categorize_early_blocks(const EarlyBlocksInput& input, Categories& out);

}  // namespace tenon
