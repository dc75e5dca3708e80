#include "captured_step.h"

#include "tenon/base/error.h"
#include "tenon/heap/plan.h"
#include "tenon/tensor/copy.h"

namespace tenon::command {

bool CapturedStep::run(const ExampleBatch& batch) {
  const std::vector<std::int64_t> sizes(batch.input.sizes().begin(), batch.input.sizes().end());
  const bool is_known = sizes == sizes_;
  if (!may_capture_ || (!is_known && capture_ != nullptr)) return false;
  if (!is_known) {
    sizes_ = sizes;
    input_ = to(batch.input, device_);
    targets_ = to(batch.targets, device_);
    result_ = step_(input_, targets_);
    return true;
  }
  copy_(input_, batch.input);
  copy_(targets_, batch.targets);
  if (capture_ != nullptr) {
    capture_->run();
    return true;
  }
  result_ = {};
  const Plan plan = plan_();
  try {
    capture_ = std::make_unique<Capture>(
        device_, [&] { result_ = step_(input_, targets_); }, &plan);
  } catch (const InvalidArgument&) {  // a part needs the host
    may_capture_ = false;
    result_ = {};
    input_ = targets_ = Tensor();
  }
  return may_capture_;
}

}  // namespace tenon::command
