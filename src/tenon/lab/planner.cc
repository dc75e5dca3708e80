#include "tenon/lab/planner.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/lab/planning/loop.h"
#include "tenon/lab/step_profile.h"
#include "tenon/lab/workload.h"
#include "tenon/trace/trace.h"

namespace tenon {
namespace {

// Streams share where that saves more than 1/kWorthSharing of the live peak.
constexpr std::uint64_t kWorthSharing = 512;
// A loop is planned where it needs at most 1/kLoopShare above the live peak.
constexpr std::uint64_t kLoopShare = 200;
// An exact search follows where the heuristics need over 1/kWorthSearching more than the bound. Of
// a few hundred large blocks it often finds a packing without a free byte in some milliseconds.
constexpr std::uint64_t kWorthSearching = 100;
constexpr double kSearchEffort = 0.1;
// Most iterations that a loop is made of.
constexpr std::size_t kMostFolded = 4;

// The clocks of a request's life.
enum class PlanClock : std::uint8_t {
  kOperation,   // the stream's allocations and frees
  kAllocation,  // the stream's allocations alone; kNeverFreed where the end is not known
  kProgram,     // allocations and frees of all streams
};

// By stream: what it asked for, on one clock.
using Requests = std::vector<std::vector<PlanRequest>>;

Requests requests_by_stream(std::span<const ReplayOp> ops, PlanClock clock) {
  Requests streams;
  std::vector<std::uint32_t> now;  // by stream; with one clock for all in the first
  std::vector<std::pair<std::uint16_t, std::uint32_t>> held;  // by slot: stream and request
  for (const ReplayOp& op : ops) {
    if (op.size_bytes == 0) continue;
    if (op.stream >= streams.size()) {
      streams.resize(op.stream + 1);
      now.resize(op.stream + 1);
    }
    if (op.slot >= held.size()) held.resize(op.slot + 1);
    std::uint32_t& time = now[clock == PlanClock::kProgram ? 0 : op.stream];
    if (op.alloc) {
      std::vector<PlanRequest>& requests = streams[op.stream];
      held[op.slot] = {op.stream, static_cast<std::uint32_t>(requests.size())};
      requests.push_back({op.size_bytes, time++, kNeverFreed});
    } else {
      const auto [stream, request] = held[op.slot];
      streams[stream][request].end = now[clock == PlanClock::kProgram ? 0 : stream];
      if (clock != PlanClock::kAllocation) ++now[clock == PlanClock::kProgram ? 0 : stream];
    }
  }
  if (clock != PlanClock::kAllocation)
    for (std::size_t id = 0; id < streams.size(); ++id)
      for (PlanRequest& r : streams[id])
        r.end = std::min(r.end, now[clock == PlanClock::kProgram ? 0 : id]);
  return streams;
}

// Most requested bytes live at once: on all streams together, or on one.
struct LivePeaks {
  std::uint64_t together = 0;
  std::vector<std::uint64_t> by_stream;

  std::uint64_t sum() const {
    return std::accumulate(by_stream.begin(), by_stream.end(), std::uint64_t{0});
  }
};

LivePeaks live_peaks(std::span<const ReplayOp> ops, std::size_t streams) {
  LivePeaks peaks;
  peaks.by_stream.resize(streams);
  std::vector<std::uint64_t> live(streams);
  std::uint64_t all = 0;
  for (const ReplayOp& op : ops) {
    if (op.size_bytes == 0) continue;
    live[op.stream] += op.alloc ? op.size_bytes : 0 - op.size_bytes;
    all += op.alloc ? op.size_bytes : 0 - op.size_bytes;
    peaks.together = std::max(peaks.together, all);
    peaks.by_stream[op.stream] = std::max(peaks.by_stream[op.stream], live[op.stream]);
  }
  return peaks;
}

Packing pack_as(const PlanOptions& options, const std::vector<PlanRequest>& requests) {
  if (options.quick) return pack_quickly(requests, options.unit_bytes);
  Packing packing = pack(requests, options.unit_bytes);
  const std::uint64_t bound = packing.lower_bound_bytes;
  if (packing.peak_bytes - bound <= bound / kWorthSearching) return packing;
  return search_below(std::move(packing), requests, options.unit_bytes, kSearchEffort);
}

std::vector<PlanSlot> slots_of(const std::vector<PlanRequest>& requests,
                               std::span<const std::uint64_t> offsets, std::uint64_t unit_bytes) {
  std::vector<PlanSlot> slots(requests.size());
  for (std::size_t i = 0; i < slots.size(); ++i)
    slots[i] = {offsets[i], align_up(requests[i].size, unit_bytes)};
  return slots;
}

// `streams`: by the program's clock.
Plan plan_shared(const Requests& streams, const PlanOptions& options) {
  std::vector<PlanRequest> all;
  for (const std::vector<PlanRequest>& requests : streams)
    all.insert(all.end(), requests.begin(), requests.end());
  const Packing packing = pack_as(options, all);
  Plan plan(options.unit_bytes);
  plan.set_shared(true);
  std::span<const std::uint64_t> offsets = packing.offsets;
  for (std::uint32_t id = 0; id < streams.size(); ++id) {
    const std::vector<PlanRequest>& requests = streams[id];
    if (!requests.empty()) plan.set_stream(id, slots_of(requests, offsets, options.unit_bytes));
    offsets = offsets.subspan(requests.size());
  }
  return plan;
}

// One stream's memory of its own: a loop where one was found and is good enough.
// `by_allocation`: needed with iterations only.
void plan_stream(const std::vector<PlanRequest>& by_operation,
                 const std::vector<PlanRequest>& by_allocation, std::uint64_t live_peak_bytes,
                 const std::optional<Iterations>& iterations, const PlanOptions& options,
                 std::uint32_t id, Plan& plan) {
  const std::uint64_t unit = options.unit_bytes;
  std::optional<LoopedRequests> loop;
  Packing of_loop;
  // A batch that lives until the next one is there outlives its iteration: then two make the loop.
  Iterations several = iterations.value_or(Iterations{});
  for (std::size_t n = 1; n <= kMostFolded && iterations && !loop; ++n) {
    if (2 * static_cast<double>(n) > iterations->count) break;
    several.period = n * iterations->period;
    loop = fold_iterations(by_allocation, several);
  }
  if (loop) of_loop = pack_as(options, loop->requests);
  const auto take_loop = [&] {
    plan.set_stream(id, slots_of(loop->requests, of_loop.offsets, unit), loop->loop_begin);
  };
  if (loop && of_loop.peak_bytes <= live_peak_bytes + live_peak_bytes / kLoopShare)
    return take_loop();
  const Packing whole = pack_as(options, by_operation);
  if (loop && of_loop.peak_bytes <= whole.peak_bytes) return take_loop();
  plan.set_stream(id, slots_of(by_operation, whole.offsets, unit));
}

std::optional<Iterations> iterations_of(const std::vector<PlanRequest>& requests) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(requests.size());
  for (const PlanRequest& r : requests) sizes.push_back(r.size);
  return find_iterations(sizes);
}

}  // namespace

PlanResult plan_program(std::span<const ReplayOp> ops, const PlanOptions& options) {
  // Each clock's requests are made when they are needed: a recording may have many millions.
  Requests by_operation = requests_by_stream(ops, PlanClock::kOperation);
  const std::size_t streams = by_operation.size();
  const LivePeaks peaks = live_peaks(ops, streams);
  PlanResult result;
  result.plan = Plan(options.unit_bytes);
  result.live_peak_bytes = peaks.together;
  std::vector<std::optional<Iterations>> iterations(streams);
  Requests by_allocation(streams);
  if (options.find_loops) by_allocation = requests_by_stream(ops, PlanClock::kAllocation);
  std::size_t most = 0;
  for (std::size_t id = 0; options.find_loops && id < streams; ++id) {
    iterations[id] = iterations_of(by_allocation[id]);
    if (by_allocation[id].size() <= most) continue;
    most = by_allocation[id].size();
    result.iterations = iterations[id];
  }
  if (options.share_streams && peaks.sum() > peaks.together + peaks.together / kWorthSharing) {
    by_operation.clear();
    result.plan = plan_shared(requests_by_stream(ops, PlanClock::kProgram), options);
    return result;
  }
  for (std::uint32_t id = 0; id < streams; ++id)
    if (!by_operation[id].empty())
      plan_stream(by_operation[id], by_allocation[id], peaks.by_stream[id], iterations[id],
                  options, id, result.plan);
  return result;
}

Plan make_plan(std::span<const ReplayOp> ops, std::uint64_t unit_bytes) {
  PlanOptions options;
  options.unit_bytes = unit_bytes;
  return plan_program(ops, options).plan;
}

Plan make_plan(const Trace& trace, std::uint64_t unit_bytes) {
  return make_plan(Workload(trace).ops(), unit_bytes);
}

Plan make_plan(std::span<const StepEvent> step, std::uint64_t unit_bytes) {
  std::unordered_set<std::uint32_t> made;
  std::vector<StepEvent> of_step;
  for (const StepEvent& event : step) {
    if (event.kind == StepEvent::Kind::kAlloc) made.insert(event.block);
    if (made.contains(event.block) &&
        (event.kind == StepEvent::Kind::kAlloc || event.kind == StepEvent::Kind::kFree))
      of_step.push_back(event);
  }
  return make_plan(trace_of(of_step, "step"), unit_bytes);
}

}  // namespace tenon
