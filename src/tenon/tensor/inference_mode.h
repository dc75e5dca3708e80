// Work that will never need a gradient. Nothing here throws. O(1).
#pragma once

namespace tenon {

// True while an InferenceMode guard is alive on this thread. Tensors made meanwhile are inference
// tensors: they have no version and can never require a gradient. Views take after their base.
bool in_inference_mode();

// Switches inference mode on (or off again, inside) for this thread until the guard ends. Nests.
class InferenceMode {
 public:
  explicit InferenceMode(bool enabled = true);
  ~InferenceMode();
  InferenceMode(const InferenceMode&) = delete;
  InferenceMode& operator=(const InferenceMode&) = delete;

 private:
  const bool previous_;
};

namespace detail {
inline constinit thread_local bool inference_mode = false;
}

inline bool in_inference_mode() { return detail::inference_mode; }
inline InferenceMode::InferenceMode(bool enabled) : previous_(detail::inference_mode) {
  detail::inference_mode = enabled;
}
inline InferenceMode::~InferenceMode() { detail::inference_mode = previous_; }

}  // namespace tenon
