#include "tenon/memory/placement/plan_allocator.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/error.h"
#include "tenon/memory/gpu/caching_allocator.h"
#include "tenon/memory/gpu/private_pool.h"

namespace tenon {
namespace {

PlanConfig checked(const Plan* plan, Backend& backend) {
  if (plan == nullptr)
    throw InvalidArgument(
        "plan: this policy needs a plan; make one from a recording (tenon replay does so from the "
        "trace it replays)");
  return {plan, plan->shared() ? std::make_shared<SharedRange>(backend, *plan) : nullptr};
}

using FreeMemory = PlanAllocator::FreeMemory;

std::unique_ptr<DeviceAllocator> make_fallback(Backend& backend, std::uint64_t limit_bytes,
                                               FreeMemory free_memory) {
  if (free_memory == FreeMemory::kGoesBack)
    return std::make_unique<CachingAllocator>(backend, CachingSettings{}, limit_bytes);
  return std::make_unique<PrivatePool>(backend, std::function<void()>(),
                                       PrivatePool::Made::kOfSegments, limit_bytes);
}

}  // namespace

PlanAllocator::PlanAllocator(Backend& backend, const Plan* plan, std::uint64_t limit_bytes,
                             FreeMemory free_memory)
    : PlacementAllocator("plan", backend, checked(plan, backend), limit_bytes,
                         make_fallback(backend, limit_bytes, free_memory)),
      free_memory_(free_memory) {}

std::size_t PlanAllocator::alignment() const {
  return alignment_of_steps(std::min(config().plan->unit_bytes(), kMinBlockSize));
}

PlanAdherence PlanAllocator::report() const {
  PlanAdherence sum;
  for_each_locked_heap<PlanPlacement>([&](const PlanPlacement& heap) {
    const PlanAdherence& one = heap.report();
    sum.served += one.served;
    sum.wrong_size += one.wrong_size;
    sum.occupied += one.occupied;
    sum.unplanned += one.unplanned;
    sum.resynchronised += one.resynchronised;
  });
  return sum;
}

// With the blocks that heaps have placed in chunks of others in the segments of those.
std::vector<SegmentInfo> PlanAllocator::snapshot() const {
  std::vector<SegmentInfo> segments = ChunkedAllocator::snapshot();
  const auto asking = growth_mutex_.ask();
  for_each_locked_heap<PlanPlacement>([&](const PlanPlacement& heap) {
    if (heap.borrowed() == nullptr) return;
    const auto base = reinterpret_cast<std::uintptr_t>(heap.borrowed()->segment.base);
    const auto segment = std::find_if(segments.begin(), segments.end(),
                                      [&](const SegmentInfo& s) { return s.address == base; });
    if (segment == segments.end()) return;
    const std::vector<BlockInfo> blocks = heap.blocks_of(*heap.borrowed());
    segment->blocks.insert(segment->blocks.end(), blocks.begin(), blocks.end());
    std::sort(segment->blocks.begin(), segment->blocks.end(),
              [](const BlockInfo& x, const BlockInfo& y) { return x.address < y.address; });
  });
  return segments;
}

std::string PlanAllocator::report_text() const {
  const PlanAdherence r = report();
  return fmt::format(
      "{} requests as planned; diverged: {} of another size, {} where an older block still lived; "
      "{} not planned for; found again {} times",
      r.served, r.wrong_size, r.occupied, r.unplanned, r.resynchronised);
}

}  // namespace tenon
