#include "tenon/lab/planning/iterations.h"

#include <algorithm>

namespace tenon {
namespace {

// By distance from the end: how far back the sequence, shifted by so many requests, is the same.
std::vector<std::size_t> repeats_by_shift(std::span<const std::uint64_t> requests) {
  const std::size_t count = requests.size();
  const auto at = [&](std::size_t back) { return requests[count - 1 - back]; };
  std::vector<std::size_t> same(count, 0);
  std::size_t left = 0, right = 0;  // the match that reaches furthest: [left, right)
  for (std::size_t shift = 1; shift < count; ++shift) {
    std::size_t& length = same[shift];
    if (shift < right) length = std::min(right - shift, same[shift - left]);
    while (shift + length < count && at(length) == at(shift + length)) ++length;
    if (shift + length > right) {
      left = shift;
      right = shift + length;
    }
  }
  return same;
}

}  // namespace

std::optional<Iterations> find_iterations(std::span<const std::uint64_t> requests) {
  const std::vector<std::size_t> same = repeats_by_shift(requests);
  std::size_t longest = 0;
  for (std::size_t period = 1; period < same.size(); ++period)
    if (same[period] >= period) longest = std::max(longest, same[period] + period);
  if (longest == 0 || longest < requests.size() / 4) return std::nullopt;
  for (std::size_t period = 1; period < same.size(); ++period)
    if (same[period] >= period && same[period] + period == longest)
      return Iterations{requests.size() - longest, period,
                        static_cast<double>(longest) / static_cast<double>(period)};
  return std::nullopt;
}

}  // namespace tenon
