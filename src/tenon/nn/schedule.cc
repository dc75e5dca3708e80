#include "tenon/nn/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "tenon/base/error.h"

namespace tenon::nn {
namespace {

// How much of a way is done, 0 to 1.
double share(double step, double steps) {
  return steps <= 0 ? 1 : std::clamp(step / steps, 0., 1.);
}

double cosine(double from, double to, double done) {
  return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace

Schedule constant_schedule() {
  return [](std::uint64_t) { return 1.0; };
}

Schedule step_schedule(std::uint64_t every, double gamma) {
  if (every == 0) throw InvalidArgument("step_schedule: it must change every 1 or more steps");
  return [=](std::uint64_t step) { return std::pow(gamma, static_cast<double>(step / every)); };
}

Schedule cosine_schedule(std::uint64_t steps, double floor) {
  return [=](std::uint64_t step) {
    return cosine(1, floor, share(static_cast<double>(step), static_cast<double>(steps)));
  };
}

Schedule linear_schedule(std::uint64_t steps, double floor) {
  return [=](std::uint64_t step) {
    return 1 + (floor - 1) * share(static_cast<double>(step), static_cast<double>(steps));
  };
}

Schedule warmup_schedule(std::uint64_t warmup, Schedule then) {
  return [warmup, then = std::move(then)](std::uint64_t step) {
    if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
    return then(step - warmup);
  };
}

Schedule one_cycle_schedule(std::uint64_t steps) {
  const auto all = static_cast<double>(steps);
  const double rise = 0.3 * all;
  return [=](std::uint64_t step) {
    const auto at = static_cast<double>(step);
    if (at < rise) return cosine(1.0 / 25, 1, share(at, rise));
    return cosine(1, 1e-4 / 25, share(at - rise, all - rise));
  };
}

}  // namespace tenon::nn
