// A search for a packing that leaves no byte free, for sizes of few units.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/lab/planning/fit.h"
#include "tenon/lab/planning/sections.h"

namespace tenon {

// Depth-first search from the bottom. A valley is a run of sections of equal height between higher
// neighbours, or the ends of time:
//
//   |   |             |   |     Nothing in a full packing lies over a gap. So in a valley some
//   | a |   valley    | b |     request begins with the first section and ends inside, and some
//   |   |_____________|   |     request ends with the last section and begins inside.
//         first    last
//
// The search goes to the corner of a valley for which the fewest requests are left, and tries each
// of them there. Where none is left, it goes back. Few requests share a corner, so most placements
// are forced. A wrong one may show late, so short searches in other orders follow each other (Luby,
// Sinclair, Zuckerman, "Optimal speedup of Las Vegas algorithms", 1993). Where sizes are a few
// units, a wrong placement is often as good as another.
//
// Deterministic; not thread-safe. O(sections + requests at the corners of valleys) for each node.
class CornerSearch {
 public:
  // Requires: is_full(problem), which outlives this.
  explicit CornerSearch(const SectionedProblem& problem);

  // At most `node_budget` nodes, over all orders. Another run goes on with other orders.
  Fit run(std::uint64_t node_budget);

  // After kFits: by request, in units.
  const std::vector<Units>& offsets() const { return placed_at_; }
  std::uint64_t nodes() const { return nodes_; }

 private:
  // One end of a valley.
  struct Corner {
    std::uint32_t first = 0, last = 0;  // sections of the valley
    bool is_left = true;
    Units wall = 0;                     // height of the neighbour; kMostUnits: the end of time
    std::size_t candidates = SIZE_MAX;  // requests that may lie there
  };

  void shuffle(std::uint64_t seed);
  bool solve();
  Corner tightest_corner() const;
  const std::vector<std::uint32_t>& items_at(const Corner& corner) const {
    return corner.is_left ? by_first_[corner.first] : by_last_[corner.last];
  }
  bool may_lie(std::uint32_t item, const Corner& corner) const;
  std::vector<std::uint32_t> candidates_at(const Corner& corner) const;
  void raise(const SectionItem& item, Units by);

  const SectionedProblem& problem_;
  std::vector<std::vector<std::uint32_t>> by_first_, by_last_;  // items, by section, then by shape
  std::vector<std::uint64_t> order_;  // by item: which of a corner's candidates comes first
  std::vector<bool> is_placed_;       // by item
  std::vector<Units> placed_at_;      // by item
  std::vector<Units> heights_;        // by section
  std::size_t unplaced_ = 0;
  std::uint64_t searches_ = 0;
  std::uint64_t nodes_ = 0, node_limit_ = 0;
};

}  // namespace tenon
