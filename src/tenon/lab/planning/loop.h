// One iteration out of a recording of many.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tenon/lab/planning/iterations.h"
#include "tenon/lab/planning/request.h"

namespace tenon {

// A request that is never freed ends here.
inline constexpr std::uint32_t kNeverFreed = ~std::uint32_t{0};

// What comes before the loop, and the loop once.
struct LoopedRequests {
  std::vector<PlanRequest> requests;
  std::size_t loop_begin = 0;
};

// Folds the iterations of a stream into one. Requires: the i-th request begins at i, and its end
// counts the requests made before it was freed (so i + 1 at least), or is kNeverFreed. Nothing
// where a request of the loop is never freed, or lives longer than an iteration: then a program
// that goes on for ever needs memory without end, or another plan. O(n).
std::optional<LoopedRequests> fold_iterations(const std::vector<PlanRequest>& recorded,
                                              const Iterations& iterations);

}  // namespace tenon
