// How the learning rate goes. Thread-safe: a schedule is a pure function, O(1) for each step. Only
// step_schedule throws, InvalidArgument; calling a schedule throws nothing.
#pragma once

#include <cstdint>
#include <functional>

namespace tenon::nn {

// The factor of the base learning rate at a step, counted from 0. A pure function, so that a
// resumed run goes on exactly where it was. Below, t = min(step / steps, 1), which is 1 for 0
// steps.
using Schedule = std::function<double(std::uint64_t step)>;

// 1: the base rate at each step.
Schedule constant_schedule();
// gamma^floor(step / every). Throws InvalidArgument for every = 0.
Schedule step_schedule(std::uint64_t every, double gamma);
// floor + (1 - floor) (1 + cos(pi t)) / 2 (Loshchilov and Hutter 2017).
Schedule cosine_schedule(std::uint64_t steps, double floor = 0);
// 1 - (1 - floor) t.
Schedule linear_schedule(std::uint64_t steps, double floor = 0);
// (step + 1) / warmup for the first `warmup` steps, then then(step - warmup).
Schedule warmup_schedule(std::uint64_t warmup, Schedule then);
// One cycle (Smith 2018): from a to b by b + (a - b) (1 + cos(pi s)) / 2, where s goes from 0 to 1.
// It rises from 1 / 25 to 1 over the first 30 % of `steps`, then falls to 1e-4 / 25 over the
// others.
Schedule one_cycle_schedule(std::uint64_t steps);

}  // namespace tenon::nn
