#include "tenon/lab/planning/capacity_search.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tenon {
namespace {

constexpr Units kEndless = std::numeric_limits<Units>::max();

}  // namespace

CapacitySearch::CapacitySearch(const SectionedProblem& problem)
    : problem_(problem),
      failures_(problem.sections()),
      tops_(problem.sections()),
      starts_(problem.sections()) {}

CapacitySearch::Outcome CapacitySearch::run(std::span<const std::uint32_t> ranks,
                                            std::uint64_t node_limit) {
  ranks_ = ranks;
  node_limit_ = node_limit;
  nodes_ = 0;
  gave_up_ = false;
  lowest_.assign(problem_.items.size(), 0);
  placed_at_.assign(problem_.items.size(), 0);
  rests_ = problem_.totals;
  candidates_.clear();
  section_changes_.clear();
  offset_changes_.clear();
  pending_.resize(problem_.items.size());
  std::iota(pending_.begin(), pending_.end(), 0);
  std::stable_sort(pending_.begin(), pending_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return problem_.items[a].first < problem_.items[b].first;
  });
  for (const SectionItem& item : problem_.items)
    if (item.size > problem_.capacity) return Outcome::kImpossible;
  if (solve_parts({0, pending_.size()}, {})) return Outcome::kFits;
  return gave_up_ ? Outcome::kGaveUp : Outcome::kImpossible;
}

bool CapacitySearch::is_next(std::uint32_t item, Turn last) const {
  return lowest_[item] > last.offset ||
         (lowest_[item] == last.offset && static_cast<std::int64_t>(ranks_[item]) > last.rank);
}

// Splits what is unplaced where nothing crosses from one section to the next; smaller parts first.
bool CapacitySearch::solve_parts(Part whole, Turn last) {
  std::vector<Part> parts;
  for (std::size_t i = whole.begin; i < whole.end;) {
    const std::size_t begin = i;
    std::uint32_t reach = problem_.items[pending_[i]].last;
    for (++i; i < whole.end && problem_.items[pending_[i]].first <= reach; ++i)
      reach = std::max(reach, problem_.items[pending_[i]].last);
    parts.push_back({begin, i});
  }
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return a.end - a.begin < b.end - b.begin;
  });
  return std::all_of(parts.begin(), parts.end(),
                     [&](const Part& part) { return solve(part, last); });
}

bool CapacitySearch::solve(Part part, Turn last) {
  if (nodes_ >= node_limit_) {
    gave_up_ = true;
    return false;
  }
  ++nodes_;
  if (!can_hold(part, last)) return false;
  const std::size_t first_candidate = candidates_.size();
  find_candidates(part, last);
  const std::size_t end_candidate = candidates_.size();
  const std::size_t pending_mark = pending_.size();
  const std::size_t sections_mark = section_changes_.size();
  const std::size_t offsets_mark = offset_changes_.size();
  for (std::size_t c = first_candidate; c < end_candidate; ++c) {
    const std::uint32_t item = candidates_[c];
    if (place(item)) {
      const Part others = raise_and_list_others(part, item);
      if (solve_parts(others, {placed_at_[item], ranks_[item]})) return true;
      pending_.resize(pending_mark);
      candidates_.resize(end_candidate);  // of parts that were solved before one was not
    }
    undo(sections_mark, offsets_mark);
    if (gave_up_) break;
  }
  candidates_.resize(first_candidate);
  return false;
}

// False where the part can certainly not be completed. Leaves highest_start_ for find_candidates.
bool CapacitySearch::can_hold(Part part, Turn last) {
  const std::uint32_t first = problem_.items[pending_[part.begin]].first;
  std::uint32_t end = first;
  highest_start_ = kEndless;
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const SectionItem& item = problem_.items[pending_[i]];
    highest_start_ = std::min(highest_start_, lowest_[pending_[i]] + item.size);
    end = std::max(end, item.last + 1);
  }
  if (highest_start_ <= last.offset) return false;
  std::fill(tops_.begin() + first, tops_.begin() + end, kEndless);
  std::fill(starts_.begin() + first, starts_.begin() + end, kEndless);
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const SectionItem& item = problem_.items[pending_[i]];
    const Units top = std::max(lowest_[pending_[i]], last.offset) + item.size;
    for (std::uint32_t s = item.first; s <= item.last; ++s) tops_[s] = std::min(tops_[s], top);
  }
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const SectionItem& item = problem_.items[pending_[i]];
    Units start = lowest_[pending_[i]];
    if (!is_next(pending_[i], last)) {
      // Its turn has passed: it will rest on something that is still to come.
      const Units support =
          *std::min_element(tops_.begin() + item.first, tops_.begin() + item.last + 1);
      start = std::max(start, support);
    }
    if (start > problem_.capacity - item.size) {
      ++failures_[item.first];
      return false;
    }
    for (std::uint32_t s = item.first; s <= item.last; ++s)
      starts_[s] = std::min(starts_[s], start);
  }
  for (std::uint32_t s = first; s < end; ++s) {
    if (rests_[s] == 0 || starts_[s] <= problem_.capacity - rests_[s]) continue;
    ++failures_[s];
    return false;
  }
  return true;
}

// Pushes what may come next, lowest first, then by rank.
void CapacitySearch::find_candidates(Part part, Turn last) {
  const auto first = static_cast<std::ptrdiff_t>(candidates_.size());
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const std::uint32_t item = pending_[i];
    if (lowest_[item] < highest_start_ && is_next(item, last)) candidates_.push_back(item);
  }
  std::sort(candidates_.begin() + first, candidates_.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (lowest_[a] != lowest_[b]) return lowest_[a] < lowest_[b];
    return ranks_[a] < ranks_[b];
  });
}

// Puts the item onto the skyline. False where a section cannot hold the rest any more; undo in any
// case.
bool CapacitySearch::place(std::uint32_t item) {
  const SectionItem& placed = problem_.items[item];
  placed_at_[item] = lowest_[item];
  const Units top = lowest_[item] + placed.size;
  for (std::uint32_t s = placed.first; s <= placed.last; ++s) {
    section_changes_.push_back({s, rests_[s]});
    rests_[s] -= placed.size;
    if (rests_[s] <= problem_.capacity - top) continue;
    ++failures_[s];
    return false;
  }
  return true;
}

CapacitySearch::Part CapacitySearch::raise_and_list_others(Part part, std::uint32_t item) {
  const SectionItem& placed = problem_.items[item];
  const Units top = placed_at_[item] + placed.size;
  const std::size_t begin = pending_.size();
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const std::uint32_t other = pending_[i];
    if (other == item) continue;
    pending_.push_back(other);
    if (problem_.items[other].first > placed.last || problem_.items[other].last < placed.first ||
        lowest_[other] >= top)
      continue;
    offset_changes_.push_back({other, lowest_[other]});
    lowest_[other] = top;
  }
  return {begin, pending_.size()};
}

void CapacitySearch::undo(std::size_t sections_mark, std::size_t offsets_mark) {
  for (; section_changes_.size() > sections_mark; section_changes_.pop_back())
    rests_[section_changes_.back().section] = section_changes_.back().rest;
  for (; offset_changes_.size() > offsets_mark; offset_changes_.pop_back())
    lowest_[offset_changes_.back().item] = offset_changes_.back().offset;
}

}  // namespace tenon
