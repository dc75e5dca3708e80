#include "tenon/lab/workload.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "tenon/device/device.h"
#include "tenon/lab/planner.h"

namespace tenon {

// Not std::call_once: under ThreadSanitizer an exception leaves its flag taken for ever.
struct Workload::LazyPlan {
  std::mutex mutex;
  std::optional<Plan> plan;
};

Workload::Workload(Workload&&) noexcept = default;
Workload::~Workload() = default;

const Plan& Workload::plan() const {
  const std::lock_guard lock(plan_->mutex);
  if (!plan_->plan) plan_->plan = make_plan(ops_);
  return *plan_->plan;
}

Workload::Workload(const Trace& trace)
    : name_(trace.name),
      streams_(std::max<std::uint32_t>(1, static_cast<std::uint32_t>(trace.streams.size()))),
      live_peak_bytes_(trace.live_peak_bytes()),
      duration_us_(trace.duration_us()),
      grows_by_shares_(trace.device_name.starts_with(device_type_name(DeviceType::kVulkan))),
      oldest_segment_first_(trace.oldest_segment_first),
      plan_(std::make_unique<LazyPlan>()) {
  const std::uint64_t count = trace.replayed_events();
  ops_.reserve(count);
  times_ns_.reserve(count);
  events_.reserve(count);
  std::vector<std::uint32_t> slot_of(trace.blocks);
  std::vector<std::uint32_t> free_slots;
  const std::int64_t first_us = trace.events.empty() ? 0 : trace.events.front().time_us;
  std::int64_t now_us = first_us;
  std::size_t mark = 0;
  bool gave_back = false;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    now_us = std::max(now_us, event.time_us);
    for (; mark < trace.marks.size() && trace.marks[mark].event <= i; ++mark)
      gave_back = gave_back || gives_back(trace.marks[mark].kind);
    if (event.op == TraceOp::kFreeRequested) continue;
    const bool alloc = event.op == TraceOp::kAlloc;
    std::uint32_t& slot = slot_of[event.block];
    if (!alloc) {
      free_slots.push_back(slot);
    } else if (free_slots.empty()) {
      slot = slots_++;
    } else {
      slot = free_slots.back();
      free_slots.pop_back();
    }
    ops_.push_back({event.size_bytes, slot, static_cast<std::uint16_t>(event.stream), alloc,
                    std::exchange(gave_back, false)});
    times_ns_.push_back(static_cast<std::uint64_t>(now_us - first_us) * 1000);
    events_.push_back(static_cast<std::uint32_t>(i + 1));
  }
}

}  // namespace tenon
