#include "tenon/lab/planning/corner_search.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>

#include "tenon/base/random.h"

namespace tenon {
namespace {

constexpr std::uint64_t kShortestSearch = 4;  // nodes for each request

// 1 1 2 1 1 2 4 1 1 2 ..., from i = 1.
std::uint64_t luby(std::uint64_t i) {
  while (!std::has_single_bit(i + 1)) i -= std::bit_floor(i) - 1;
  return (i + 1) / 2;
}

auto shape(const SectionItem& item) { return std::tuple(item.first, item.last, item.size); }

}  // namespace

CornerSearch::CornerSearch(const SectionedProblem& problem)
    : problem_(problem),
      by_first_(problem.sections()),
      by_last_(problem.sections()),
      order_(problem.items.size()) {
  std::vector<std::uint32_t> items(problem.items.size());
  std::iota(items.begin(), items.end(), 0);
  std::sort(items.begin(), items.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tuple(shape(problem.items[a]), a) < std::tuple(shape(problem.items[b]), b);
  });
  for (const std::uint32_t item : items) {
    by_first_[problem.items[item].first].push_back(item);
    by_last_[problem.items[item].last].push_back(item);
  }
}

Fit CornerSearch::run(std::uint64_t node_budget) {
  nodes_ = 0;
  while (nodes_ < node_budget) {
    shuffle(++searches_);
    const std::uint64_t limit = kShortestSearch * problem_.items.size() * luby(searches_);
    node_limit_ = std::min(node_budget, nodes_ + limit);
    if (solve()) return Fit::kFits;
    if (nodes_ < node_limit_) return Fit::kImpossible;
  }
  return Fit::kUnknown;
}

void CornerSearch::shuffle(std::uint64_t seed) {
  Random random(seed);
  for (std::uint64_t& rank : order_) rank = random.next();
  is_placed_.assign(problem_.items.size(), false);
  placed_at_.assign(problem_.items.size(), 0);
  heights_.assign(problem_.sections(), 0);
  unplaced_ = problem_.items.size();
}

// False where there is no packing, or the limit was reached.
bool CornerSearch::solve() {
  if (unplaced_ == 0) return true;
  if (nodes_ >= node_limit_) return false;
  ++nodes_;
  const Corner corner = tightest_corner();
  if (corner.candidates == 0) return false;
  for (const std::uint32_t item : candidates_at(corner)) {
    const SectionItem& placed = problem_.items[item];
    is_placed_[item] = true;
    placed_at_[item] = heights_[placed.first];
    --unplaced_;
    raise(placed, placed.size);
    if (solve()) return true;
    raise(placed, -placed.size);
    ++unplaced_;
    is_placed_[item] = false;
    if (nodes_ >= node_limit_) return false;
  }
  return false;
}

CornerSearch::Corner CornerSearch::tightest_corner() const {
  Corner best;
  const auto sections = static_cast<std::uint32_t>(heights_.size());
  for (std::uint32_t first = 0, end = 0; first < sections; first = end) {
    const Units height = heights_[first];
    for (end = first + 1; end < sections && heights_[end] == height;) ++end;
    const Units left = first == 0 ? kMostUnits : heights_[first - 1];
    const Units right = end == sections ? kMostUnits : heights_[end];
    if (height == problem_.capacity || left < height || right < height) continue;
    for (const bool is_left : {true, false}) {
      Corner corner{first, end - 1, is_left, is_left ? left : right, 0};
      for (const std::uint32_t item : items_at(corner)) {
        corner.candidates += may_lie(item, corner);
        if (corner.candidates >= best.candidates) break;
      }
      if (corner.candidates < best.candidates) best = corner;
      if (best.candidates <= 1) return best;
    }
  }
  return best;
}

bool CornerSearch::may_lie(std::uint32_t item, const Corner& corner) const {
  const SectionItem& it = problem_.items[item];
  return !is_placed_[item] && it.first >= corner.first && it.last <= corner.last &&
         it.size <= problem_.capacity - heights_[corner.first];
}

// One of each shape. Those that become level with the wall come first: by chance that is rare.
std::vector<std::uint32_t> CornerSearch::candidates_at(const Corner& corner) const {
  std::vector<std::uint32_t> candidates;
  for (const std::uint32_t item : items_at(corner))
    if (may_lie(item, corner) &&
        (candidates.empty() ||
         shape(problem_.items[candidates.back()]) != shape(problem_.items[item])))
      candidates.push_back(item);
  const auto key = [&](std::uint32_t item) {
    const Units top = heights_[corner.first] + problem_.items[item].size;
    return std::pair(top != corner.wall, order_[item]);
  };
  std::sort(candidates.begin(), candidates.end(),
            [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
  return candidates;
}

void CornerSearch::raise(const SectionItem& item, Units by) {
  for (std::uint32_t s = item.first; s <= item.last; ++s) heights_[s] += by;
}

}  // namespace tenon
