// The factor that keeps gradients of 16-bit training within the range of their dtype.
#pragma once

#include <cstdint>

namespace tenon::nn {

// Dynamic loss scaling (Micikevicius et al. 2018, "Mixed precision training", section 3.2). A step
// multiplies the loss by value(), and divides the gradients by it before it uses them. Where they
// are not finite the step is skipped and the scale halved; after kStepsToGrow steps without that it
// is doubled. Scales are powers of two, so no product rounds. Not thread-safe. O(1).
class LossScale {
 public:
  static constexpr double kFirst = 65536, kMost = 0x1p40;
  static constexpr std::uint64_t kStepsToGrow = 2000;

  // What a saved run has of it.
  struct State {
    double value = kFirst;
    std::uint64_t good_steps = 0;  // since the scale changed
    std::uint64_t skipped = 0;     // steps, in all
  };
  LossScale() = default;
  // Throws InvalidArgument for a value that is no power of two from 1 to kMost.
  explicit LossScale(const State& state);
  // The factor of the next step, and what a saved run keeps.
  double value() const { return state_.value; }
  const State& state() const { return state_; }
  // After each step, with whether its gradients were finite. False where a scale of 1 was too
  // large: smaller ones lose small gradients, so the run has diverged.
  bool update(bool finite);

 private:
  State state_;
};

}  // namespace tenon::nn
