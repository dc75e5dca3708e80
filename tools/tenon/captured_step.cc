#include "captured_step.h"

#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"

namespace tenon::command {

bool CapturedStep::run(const ExampleBatch& batch) {
  const std::vector<std::int64_t> sizes(batch.input.sizes().begin(), batch.input.sizes().end());
  if (!may_capture_) return false;
  if (sizes != sizes_) {
    if (capture_ == nullptr) sizes_ = sizes;
    return false;
  }
  if (capture_ != nullptr) {
    copy_(input_, batch.input);
    copy_(targets_, batch.targets);
    capture_->run();
    return true;
  }
  input_ = to(batch.input, device_);
  targets_ = to(batch.targets, device_);
  try {
    capture_ = std::make_unique<Capture>(device_, [&] { result_ = step_(input_, targets_); });
  } catch (const InvalidArgument&) {  // a part needs the host
    may_capture_ = false;
    result_ = {};
    input_ = targets_ = Tensor();
  }
  return may_capture_;
}

}  // namespace tenon::command
