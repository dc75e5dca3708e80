#include "view_input.h"

#include <fmt/format.h>

#include <algorithm>

#include "arguments.h"
#include "process.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/failed_requests.h"
#include "tenon/lab/view/answer.h"
#include "tenon/memory/gpu/pytorch_rules.h"
#include "tenon/trace/load.h"

namespace tenon::command {
namespace {

// The device asked for, or the one that needed most.
Trace& choose_trace(std::vector<Trace>& traces, const ViewInput& input) {
  if (traces.empty())
    throw InvalidArgument(fmt::format(
        "{} holds no recorded events: call torch.cuda.memory._record_memory_history() before the "
        "part of the program that matters, then dump the snapshot",
        input.file));
  if (input.device >= 0) {
    for (Trace& trace : traces)
      if (trace.device == static_cast<std::uint32_t>(input.device)) return trace;
    throw InvalidArgument(
        fmt::format("{} has no events of device {}: it has {} device{} with events", input.file,
                    input.device, traces.size(), traces.size() == 1 ? "" : "s"));
  }
  Trace& trace = *std::max_element(traces.begin(), traces.end(),
                                         [](const Trace& a, const Trace& b) {
                                           return a.live_peak_bytes() < b.live_peak_bytes();
                                         });
  if (traces.size() > 1)
    tell(fmt::format("{} has {} devices with events: this is device {}, with the highest live "
                     "peak; --device takes another",
                     input.file, traces.size(), trace.device));
  return trace;
}

}  // namespace

void add_view_input(CommandLine& app, ViewInput& input) {
  app.add_option("TRACE", input.file, "A recorded trace or a PyTorch snapshot").required();
  app.add_option("--policy", input.policies,
                 "Policies to compare, comma-separated, all or none (see tenon policies)")
      .take_one()  // what follows is a trace
      .show_default();
  app.add_option("--capacity", input.capacity, "Replay on a device of this size, like 24GiB");
  app.add_option("--conf", input.conf,
                 "PyTorch's settings for caching, expandable and stitched, key:value,key:value")
      .may_be_empty();
  app.add_option("--lag", input.lag, "A stream's work ends this long after it was queued")
      .show_default();
  app.add_option("--device", input.device, "Of a snapshot with several devices").not_negative();
}

ViewData read_view(const ViewInput& input, ColumnsAt columns_at) {
  ViewOptions options;
  if (input.policies != std::vector<std::string>{"none"})
    options.policies = parse_policies(input.policies);
  options.conf = input.conf;
  read_option("--conf", [&] { return parse_caching_settings(input.conf); });
  options.lag_ns = parse_duration_ns("--lag", input.lag);
  options.file = input.file;
  if (!input.capacity.empty()) {
    options.capacity_bytes = parse_size("--capacity", input.capacity);
  }
  Snapshot recording = load_snapshot(input.file);
  Trace trace = std::move(choose_trace(recording.traces, input));
  for (const std::string& warning : trace.warnings)
    tell(fmt::format("warning: {}", warning));
  {
    const TraceFacts facts(trace);
    // Settings are tried by replay where a request failed: whether one serves it is the answer.
    options.answer = view_answer(
        facts, explain_device(facts, recording, {.replay = has_failed_requests(trace)}));
  }
  recording.traces.clear();
  options.segments = std::move(recording.segments);
  return make_view(std::move(trace), options, columns_at);
}

}  // namespace tenon::command
