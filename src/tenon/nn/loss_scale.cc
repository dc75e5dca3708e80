#include "tenon/nn/loss_scale.h"

#include <fmt/format.h>

#include <cmath>

#include "tenon/base/error.h"

namespace tenon::nn {

LossScale::LossScale(const State& state) : state_(state) {
  int exponent = 0;
  if (!(state.value >= 1 && state.value <= kMost) || std::frexp(state.value, &exponent) != 0.5)
    throw InvalidArgument(
        fmt::format("a loss scale of {}; it is a power of two from 1 to 2^40", state.value));
}

bool LossScale::update(bool finite) {
  if (!finite) {
    ++state_.skipped;
    state_.good_steps = 0;
    if (state_.value == 1) return false;
    state_.value /= 2;
    return true;
  }
  if (++state_.good_steps == kStepsToGrow) {
    state_.good_steps = 0;
    if (state_.value < kMost) state_.value *= 2;
  }
  return true;
}

}  // namespace tenon::nn
