// Training steps on a Vulkan device that are queued again instead of computed anew.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tenon/tensor/capture.h"
#include "train_task.h"

namespace tenon {
class Plan;
}

namespace tenon::command {

// What a step leaves on the device.
struct StepTensors {
  Tensor loss, logits, gradient_norm;
};

// A step whose batch lies in tensors that stay. It is captured with the first batch, on a plan of
// what a rehearsal requests. Not thread-safe. What it holds must go before the memory of the run.
class CapturedStep {
 public:
  using Step = std::function<StepTensors(const Tensor& input, const Tensor& targets)>;
  // `step` reads and writes nothing on the host, and leaves no gradients. `undo` takes back what it
  // changes on the host, and drops the gradients of one that failed.
  CapturedStep(Device device, Step step, std::function<void()> undo)
      : device_(device), step_(std::move(step)), undo_(std::move(undo)) {}

  // Queues the step for the batch. False, and nothing of it has run on the device: the batch has
  // another shape, or the device has no kernel for a part. Throws what the step throws otherwise.
  bool run(const ExampleBatch& batch);
  // Of the last run.
  const StepTensors& result() const { return result_; }
  // Of what runs share; 0 before the first.
  std::uint64_t reserved_bytes() const {
    return capture_ == nullptr ? 0 : capture_->reserved_bytes();
  }

 private:
  Plan rehearsed();

  const Device device_;
  const Step step_;
  const std::function<void()> undo_;
  bool may_capture_ = true;
  std::vector<std::int64_t> sizes_;    // of the input
  Tensor input_, targets_;             // on the device
  std::unique_ptr<Capture> capture_;
  StepTensors result_;
};

}  // namespace tenon::command
