// How the learning rate goes. Thread-safe: a schedule is a pure function, O(1) for each step.
#pragma once

#include <cstdint>
#include <functional>

namespace tenon::nn {

// The factor of the base learning rate at a step, counted from 0. A pure function, so that a
// resumed run goes on exactly where it was. Of 0 `steps`: where it would end.
using Schedule = std::function<double(std::uint64_t step)>;

// 1 all the time.
Schedule constant_schedule();
// gamma^floor(step / every). Throws InvalidArgument for every = 0.
Schedule step_schedule(std::uint64_t every, double gamma);
// floor + (1 - floor) (1 + cos(pi step / steps)) / 2 up to `steps`, then `floor` (Loshchilov and
// Hutter 2017).
Schedule cosine_schedule(std::uint64_t steps, double floor = 0);
// Falls from 1 to `floor` along a line over `steps`, and stays there.
Schedule linear_schedule(std::uint64_t steps, double floor = 0);
// Up to 1 along a line over `warmup` steps, starting at 1 / warmup; then as `then` has it, counted
// from there.
Schedule warmup_schedule(std::uint64_t warmup, Schedule then);
// One cycle (Smith 2018): up from 1 / 25 along half a cosine over the first 30 % of `steps`, then
// down to 1e-4 / 25 along another.
Schedule one_cycle_schedule(std::uint64_t steps);

}  // namespace tenon::nn
