#include "tenon/lab/odd_values.h"

#include <algorithm>
#include <cmath>

namespace tenon {
namespace {

double middle_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

OddRule::OddRule(const std::vector<double>& values) : median(middle_of(values)) {
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - median));
  least_difference =
      std::max(kShare * std::abs(median), kDeviations * middle_of(std::move(deviations)));
}

bool OddRule::is_odd(double value) const { return std::abs(value - median) > least_difference; }

}  // namespace tenon
