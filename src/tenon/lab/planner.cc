#include "tenon/lab/planner.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/lab/planning/loop.h"
#include "tenon/lab/workload.h"
#include "tenon/trace/trace.h"

namespace tenon {
namespace {

// Streams share where that saves more than 1/kWorthSharing of the live peak.
constexpr std::uint64_t kWorthSharing = 512;
// A loop is planned where it needs at most 1/kLoopShare above the live peak.
constexpr std::uint64_t kLoopShare = 200;
// Most iterations that a loop is made of.
constexpr std::size_t kMostFolded = 4;

// What one stream asked for, on three clocks.
struct StreamRequests {
  std::vector<PlanRequest> by_operation;   // the stream's allocations and frees
  std::vector<PlanRequest> by_allocation;  // the stream's allocations alone; kNeverFreed
  std::vector<PlanRequest> by_program;     // allocations and frees of all streams
  std::uint32_t operations = 0;
};

std::vector<StreamRequests> requests_by_stream(std::span<const ReplayOp> ops) {
  std::vector<StreamRequests> streams;
  std::vector<std::pair<std::uint16_t, std::uint32_t>> held;  // by slot: stream and request
  std::uint32_t now = 0;
  for (const ReplayOp& op : ops) {
    if (op.size_bytes == 0) continue;
    if (op.stream >= streams.size()) streams.resize(op.stream + 1);
    if (op.slot >= held.size()) held.resize(op.slot + 1);
    if (op.alloc) {
      StreamRequests& stream = streams[op.stream];
      const auto number = static_cast<std::uint32_t>(stream.by_allocation.size());
      held[op.slot] = {op.stream, number};
      stream.by_operation.push_back({op.size_bytes, stream.operations++, kNeverFreed});
      stream.by_allocation.push_back({op.size_bytes, number, kNeverFreed});
      stream.by_program.push_back({op.size_bytes, now++, kNeverFreed});
    } else {
      const auto [id, request] = held[op.slot];
      StreamRequests& stream = streams[id];
      stream.by_operation[request].end = stream.operations++;
      stream.by_allocation[request].end = static_cast<std::uint32_t>(stream.by_allocation.size());
      stream.by_program[request].end = now++;
    }
  }
  for (StreamRequests& stream : streams) {
    for (PlanRequest& r : stream.by_operation) r.end = std::min(r.end, stream.operations);
    for (PlanRequest& r : stream.by_program) r.end = std::min(r.end, now);
  }
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
  return (options.quick ? pack_quickly : pack)(requests, options.unit_bytes);
}

std::vector<PlanSlot> slots_of(const std::vector<PlanRequest>& requests,
                               std::span<const std::uint64_t> offsets, std::uint64_t unit_bytes) {
  std::vector<PlanSlot> slots(requests.size());
  for (std::size_t i = 0; i < slots.size(); ++i)
    slots[i] = {offsets[i], align_up(requests[i].size, unit_bytes)};
  return slots;
}

Plan plan_shared(const std::vector<StreamRequests>& streams, const PlanOptions& options) {
  std::vector<PlanRequest> all;
  for (const StreamRequests& stream : streams)
    all.insert(all.end(), stream.by_program.begin(), stream.by_program.end());
  const Packing packing = pack_as(options, all);
  Plan plan(options.unit_bytes);
  plan.set_shared(true);
  std::span<const std::uint64_t> offsets = packing.offsets;
  for (std::uint32_t id = 0; id < streams.size(); ++id) {
    const std::vector<PlanRequest>& requests = streams[id].by_program;
    if (!requests.empty()) plan.set_stream(id, slots_of(requests, offsets, options.unit_bytes));
    offsets = offsets.subspan(requests.size());
  }
  return plan;
}

// One stream's memory of its own: a loop where one was found and is good enough.
void plan_stream(const StreamRequests& stream, std::uint64_t live_peak_bytes,
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
    loop = fold_iterations(stream.by_allocation, several);
  }
  if (loop) of_loop = pack_as(options, loop->requests);
  const auto take_loop = [&] {
    plan.set_stream(id, slots_of(loop->requests, of_loop.offsets, unit), loop->loop_begin);
  };
  if (loop && of_loop.peak_bytes <= live_peak_bytes + live_peak_bytes / kLoopShare)
    return take_loop();
  const Packing whole = pack_as(options, stream.by_operation);
  if (loop && of_loop.peak_bytes <= whole.peak_bytes) return take_loop();
  plan.set_stream(id, slots_of(stream.by_operation, whole.offsets, unit));
}

std::optional<Iterations> iterations_of(const StreamRequests& stream) {
  std::vector<std::uint64_t> sizes;
  for (const PlanRequest& r : stream.by_allocation) sizes.push_back(r.size);
  return find_iterations(sizes);
}

}  // namespace

PlanResult plan_program(std::span<const ReplayOp> ops, const PlanOptions& options) {
  const std::vector<StreamRequests> streams = requests_by_stream(ops);
  const LivePeaks peaks = live_peaks(ops, streams.size());
  PlanResult result;
  result.plan = Plan(options.unit_bytes);
  result.live_peak_bytes = peaks.together;
  std::vector<std::optional<Iterations>> iterations(streams.size());
  std::size_t most = 0;
  for (std::size_t id = 0; options.find_loops && id < streams.size(); ++id) {
    iterations[id] = iterations_of(streams[id]);
    if (streams[id].by_allocation.size() <= most) continue;
    most = streams[id].by_allocation.size();
    result.iterations = iterations[id];
  }
  if (options.share_streams && peaks.sum() > peaks.together + peaks.together / kWorthSharing) {
    result.plan = plan_shared(streams, options);
    return result;
  }
  for (std::uint32_t id = 0; id < streams.size(); ++id)
    if (!streams[id].by_operation.empty())
      plan_stream(streams[id], peaks.by_stream[id], iterations[id], options, id, result.plan);
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

}  // namespace tenon
