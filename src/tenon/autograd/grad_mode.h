// Whether calls are recorded for gradients. Each thread has a mode of its own. Nothing here throws.
// O(1).
#pragma once

#include "tenon/tensor/inference_mode.h"

namespace tenon {
namespace autograd::detail {
inline constinit thread_local bool grad_mode = true;
}

// True where calls on tensors that require a gradient are recorded on this thread: unless a
// NoGradGuard or inference mode says otherwise.
inline bool grad_enabled() { return autograd::detail::grad_mode && !in_inference_mode(); }

// Sets the mode of this thread until the guard ends. Guards nest and must end in reverse order.
class GradModeGuard {
 public:
  explicit GradModeGuard(bool enabled) : previous_(autograd::detail::grad_mode) {
    autograd::detail::grad_mode = enabled;
  }
  ~GradModeGuard() { autograd::detail::grad_mode = previous_; }
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;

 private:
  const bool previous_;
};

// Nothing is recorded: results do not require gradients. In-place changes keep counting versions.
class NoGradGuard : public GradModeGuard {
 public:
  NoGradGuard() : GradModeGuard(false) {}
};

// Recording again, inside a NoGradGuard.
class EnableGradGuard : public GradModeGuard {
 public:
  EnableGradGuard() : GradModeGuard(true) {}
};

}  // namespace tenon
