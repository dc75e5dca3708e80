#include "tenon/memory/plan/plan_allocator.h"

#include "tenon/base/error.h"
#include "tenon/memory/caching/caching_allocator.h"

namespace tenon {
namespace {

PlanConfig checked(const Plan* plan, Backend& backend) {
  if (plan == nullptr)
    throw InvalidArgument(
        "plan: this policy needs a plan; make one from a recording (tenon replay does so from the "
        "trace it replays)");
  return {plan, plan->shared() ? std::make_shared<SharedRange>(backend, *plan) : nullptr};
}

}  // namespace

PlanAllocator::PlanAllocator(Backend& backend, const Plan* plan, std::uint64_t limit_bytes)
    : PerStreamAllocator(
          backend, checked(plan, backend), limit_bytes,
          std::make_unique<CachingAllocator>(backend, CachingSettings{}, limit_bytes)) {}

PlanReport PlanAllocator::report() const {
  PlanReport sum;
  for_each_lane([&](std::uint32_t, const PlanLane& lane) {
    const PlanReport& one = lane.report();
    sum.served += one.served;
    sum.wrong_size += one.wrong_size;
    sum.occupied += one.occupied;
    sum.unplanned += one.unplanned;
    sum.resynchronised += one.resynchronised;
  });
  return sum;
}

std::string PlanAllocator::report_text() const {
  const PlanReport r = report();
  return fmt::format(
      "{} requests as planned; diverged: {} of another size, {} where an older block still lived; "
      "{} not planned for; found again {} times",
      r.served, r.wrong_size, r.occupied, r.unplanned, r.resynchronised);
}

}  // namespace tenon
