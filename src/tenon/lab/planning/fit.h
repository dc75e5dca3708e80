// A packing within a capacity, by many short searches. What does not fit is a result. The only
// error is lack of memory (std::bad_alloc). Thread-safe: each call starts its own threads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tenon/lab/planning/request.h"

namespace tenon {

// More requests than this are not searched exactly (the search is as deep as there are requests).
inline constexpr std::size_t kMostSearched = 4096;

// What a search comes to.
enum class Fit {
  kFits,
  kImpossible,  // proved
  kUnknown,     // the budget was used up, or the problem is too large for an exact search
};

// What a search found.
struct FitResult {
  Fit fit = Fit::kUnknown;
  std::vector<std::uint64_t> offsets;  // by request, where it fits
  std::uint64_t nodes = 0;             // that the decisive searcher visited
};

// Offsets below `capacity_bytes` for all requests. Where the requests fill the capacity at every
// moment, CornerSearch and ExchangeSearch look for them in turns. Otherwise two searchers do, on
// two threads. The time of a depth-first search depends strongly on its order (Gomes, Selman,
// Kautz, "Boosting combinatorial search through randomization", AAAI 1998). So each searcher tries
// one order after another, briefly: by contention, width, area and size. Then the same with noise,
// or with more weight on the sections where earlier searches failed. Deterministic: of searchers
// that find a packing in the same round the first counts. `node_budget` bounds the work of each
// searcher. A node is O(n + the requests' lives in sections of time), some microseconds for
// hundreds of requests. It counts for more where each request lives in more than 160 sections.
// Requires: sizes > 0, begin < end, sizes that need no rounding.
FitResult fit_within(const std::vector<PlanRequest>& requests, std::uint64_t capacity_bytes,
                     std::uint64_t node_budget);

}  // namespace tenon
