#include "tenon/lab/planning/sections.h"

#include <algorithm>
#include <numeric>

namespace tenon {
namespace {

// Where the kept sections begin: at the last beginning before an end.
std::vector<std::uint32_t> section_starts(const std::vector<PlanRequest>& requests) {
  std::vector<std::uint32_t> begins, ends;
  for (const PlanRequest& r : requests) {
    begins.push_back(r.begin);
    ends.push_back(r.end);
  }
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  std::vector<std::uint32_t> starts;
  std::size_t next = 0;  // beginning
  for (const std::uint32_t end : ends) {
    const std::size_t before = next;
    while (next < begins.size() && begins[next] < end) ++next;
    if (next > before) starts.push_back(begins[next - 1]);
  }
  return starts;
}

}  // namespace

bool is_full(const SectionedProblem& problem) {
  return std::all_of(problem.totals.begin(), problem.totals.end(),
                     [&](Units total) { return total == problem.capacity; });
}

std::optional<SectionedProblem> make_sections(const std::vector<PlanRequest>& requests,
                                              std::uint64_t capacity_bytes) {
  std::uint64_t unit = 0;
  for (const PlanRequest& r : requests) unit = std::gcd(unit, r.size);
  unit = std::max<std::uint64_t>(unit, 1);
  if (capacity_bytes / unit > static_cast<std::uint64_t>(kMostUnits)) return std::nullopt;
  SectionedProblem problem;
  problem.unit_bytes = unit;
  problem.capacity = static_cast<Units>(capacity_bytes / unit);

  const std::vector<std::uint32_t> starts = section_starts(requests);
  std::vector<std::uint64_t> totals(starts.size() + 1);
  // What exceeds every capacity keeps doing so.
  const auto in_units = [&](std::uint64_t bytes) {
    return static_cast<Units>(std::min<std::uint64_t>(bytes / unit, kMostUnits + 1));
  };
  for (const PlanRequest& r : requests) {
    const auto first = std::lower_bound(starts.begin(), starts.end(), r.begin) - starts.begin();
    const auto end = std::lower_bound(starts.begin(), starts.end(), r.end) - starts.begin();
    problem.items.push_back({in_units(r.size), static_cast<std::uint32_t>(first),
                             static_cast<std::uint32_t>(end - 1)});
    totals[static_cast<std::size_t>(first)] += r.size;
    totals[static_cast<std::size_t>(end)] -= r.size;  // wraps and comes back in the sum
  }
  std::uint64_t live = 0;
  for (std::size_t s = 0; s < starts.size(); ++s) {
    live += totals[s];
    problem.totals.push_back(in_units(live));
  }
  return problem;
}

}  // namespace tenon
