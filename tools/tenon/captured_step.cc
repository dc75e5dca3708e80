#include "captured_step.h"

#include "tenon/base/error.h"
#include "tenon/heap/plan.h"
#include "tenon/lab/planner.h"
#include "tenon/lab/step_meter.h"
#include "tenon/memory/registry.h"
#include "tenon/tensor/copy.h"

namespace tenon::command {
namespace {

constexpr std::uint64_t kPlanUnit = 64;

}  // namespace

// A plan of the step's requests.
Plan CapturedStep::rehearsed() {
  Plan plan(kPlanUnit);
  Capture::rehearse(device_, [&](DeviceAllocator& addresses) {
    StepMeter meter(addresses);
    meter.record(true);
    const AllocatorGuard guard(device_, meter);
    try {
      result_ = step_(input_, targets_);
    } catch (...) {
      undo_();
      throw;
    }
    result_ = {};
    undo_();
    plan = make_plan(meter.events(), kPlanUnit);
  });
  return plan;
}

bool CapturedStep::run(const ExampleBatch& batch) {
  const std::vector<std::int64_t> sizes(batch.input.sizes().begin(), batch.input.sizes().end());
  if (!may_capture_ || (capture_ != nullptr && sizes != sizes_)) return false;
  if (capture_ != nullptr) {
    copy_(input_, batch.input);
    copy_(targets_, batch.targets);
    capture_->run();
    return true;
  }
  input_ = to(batch.input, device_);
  targets_ = to(batch.targets, device_);
  try {
    const Plan plan = rehearsed();
    capture_ = std::make_unique<Capture>(
        device_, [&] { result_ = step_(input_, targets_); }, &plan);
    sizes_ = sizes;
  } catch (const InvalidArgument&) {  // a part needs the host
    undo_();
    may_capture_ = false;
    result_ = {};
    input_ = targets_ = Tensor();
  }
  return may_capture_;
}

}  // namespace tenon::command
