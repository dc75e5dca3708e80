// A search for a packing that leaves no byte free, for sizes that differ.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tenon/lab/planning/fit.h"
#include "tenon/lab/planning/pq_tree.h"
#include "tenon/lab/planning/sections.h"

namespace tenon {

// Section after section. From one to the next some requests end and others begin. Those that end
// leave holes, and those that begin fill each hole to the byte:
//
//   |   d   |   d   |      Between the two sections b and c end, e and f begin. Either b and c lie
//   |-------|-------|      together and leave one hole for e and f, or each leaves a hole that one
//   | b | c |   e   |      of the two fills.
//   |-------|   f   |
//   |   a   |-------|
//
// So a packing is a choice of exchanges: some requests that end, which must lie together, for some
// of the same size that begin. A PQ-tree has all orders that the exchanges so far allow, and
// refuses an exchange that no order allows. Different sets of requests seldom have the same size,
// so there are few choices. A wrong one may show only many sections later. So the search keeps the
// likeliest partial packings side by side (a beam), one at first, then 4, 16 and so on, forward and
// backward in time.
//
// Deterministic; not thread-safe. A node is an exchange: O(live requests x depth of the tree).
class ExchangeSearch {
 public:
  // Requires: is_full(problem), which outlives this.
  explicit ExchangeSearch(const SectionedProblem& problem);

  // About `node_budget` nodes at most. kUnknown also where the widest beam finds nothing. Another
  // run begins with the width that the last one did not finish.
  Fit run(std::uint64_t node_budget);

  // After kFits: by request, in units.
  const std::vector<Units>& offsets() const { return placed_at_; }
  std::uint64_t nodes() const { return nodes_; }

 private:
  using Items = PqTree::Items;
  using Subset = std::uint64_t;  // members of a list, as bits
  using Sums = std::vector<std::pair<Units, Subset>>;

  // Requests by the section that they begin and end in, where time goes one way or the other.
  struct Direction {
    std::vector<Items> first, last;
  };
  struct Step {
    std::shared_ptr<const Step> before;
    PqTree::Exchange exchange;
  };
  // A packing up to a section, and what ends and begins after it and is in no exchange yet.
  struct State {
    PqTree tree;
    Items ended, begun;
    std::shared_ptr<const Step> last_step;
    double doubt;
  };
  struct Choice {
    Items ended, begun;
    double doubt;  // minus the logarithm to base 2 of its probability among its alternatives
  };

  bool search(const Direction& direction, std::size_t width);
  std::vector<State> cross(std::vector<State> states, std::size_t width);
  std::vector<State> after_exchanges(const State& state);
  std::vector<Items> ended_groups(const State& state);
  std::vector<Choice> choices(const State& state);
  std::vector<Choice> partial_choices(const State& state, const std::vector<Items>& groups);
  const Sums& sums_of(const Items& items);
  bool has_no_equal_before(const Items& items, Subset subset) const;
  Units size_of(const Items& items) const;
  void place(const State& state);

  const SectionedProblem& problem_;
  Direction forward_, backward_;
  PqTree::Marks marks_;           // none are set between two calls
  std::map<Items, Sums> sums_;    // of requests that begin after this section; sorted
  std::vector<Units> placed_at_;  // by item
  std::size_t width_ = 1;
  bool is_complete_ = true;       // no choice was left out
  std::uint64_t nodes_ = 0, node_limit_ = 0;
};

}  // namespace tenon
