// Ranks of one program side by side: how even they are, which is odd, what they have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/ranks/rank.h"

namespace tenon {

// A cause on several ranks: a category or a call site.
struct CommonCause {
  std::string name;
  std::size_t ranks = 0;          // of those compared, at whose peak it is live
  std::uint64_t least_bytes = 0;  // over these ranks
  std::uint64_t median_bytes = 0;
  std::uint64_t most_bytes = 0;
};

// A rank that is not like the others, and what makes the difference.
struct OddRank {
  std::size_t rank = 0;
  std::vector<std::string> why;  // sentences
};

struct RankComparison {
  std::vector<std::size_t> compared;  // numbers of ranks that belong together
  std::vector<std::string> apart;     // a sentence for each rank that does not
  std::size_t highest = 0;            // ranks that need most, least and the median
  std::size_t lowest = 0;
  std::size_t median = 0;
  std::vector<std::size_t> failed;    // ranks on which an allocation failed, compared or not
  std::size_t first = 0;              // of these, or else of all, the rank that needs most
  std::vector<OddRank> odd;
  std::vector<CommonCause> categories;    // most first
  std::vector<CommonCause> sites;         // most first
  std::vector<std::string> sentences;     // the comparison in words; which failed is the first

  // By how much the highest peak exceeds the median, as a share of it.
  double imbalance(const std::vector<Rank>& ranks) const;
};

// Ranks belong together when they hold memory for the same call sites (or blocks of the same sizes,
// without stacks): the largest such group is compared. Requires: at least one rank.
// O(ranks^2 call sites).
RankComparison compare_ranks(const std::vector<Rank>& ranks);

}  // namespace tenon
