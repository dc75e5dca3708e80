// Which of many values are far from the rest.
#pragma once

#include <vector>

namespace tenon {

// A value is odd when it differs from the median by more than kShare of the median and by more than
// kDeviations times the median absolute deviation.
struct OddRule {
  static constexpr double kShare = 0.05;
  static constexpr double kDeviations = 5;

  // O(n). Requires: at least one value.
  explicit OddRule(const std::vector<double>& values);

  bool is_odd(double value) const;

  double median = 0;
  double least_difference = 0;  // what an odd value's difference exceeds
};

}  // namespace tenon
