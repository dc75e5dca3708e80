// tenon plan: offsets for a recorded program, or for a static-planning problem.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>

#include "arguments.h"
#include "commands.h"
#include "process.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/plan_validator.h"
#include "tenon/lab/planner.h"
#include "tenon/lab/planning/fit.h"
#include "tenon/lab/planning/instance.h"
#include "tenon/lab/planning/plan_file.h"
#include "tenon/lab/planning/plan_report.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
The file is a recorded trace, a PyTorch snapshot (as for tenon replay), or a static-planning problem
in google/minimalloc's format. That is a CSV file with the columns id,lower,upper,size (upper is
exclusive).

For a trace, plan computes an offset for each allocation. If the end of the recording repeats
itself, it plans one iteration, which the policy then repeats (--whole plans every recorded
allocation).
-o writes the plan. "tenon replay TRACE --policy plan --plan FILE" runs it, "tenon validate" checks
it. Code that is independent of the planner checks every plan before it is printed.

For a problem, plan searches a packing within --capacity, or without it the smallest packing.
-o writes the problem with a column "offset".

--json prints solved (within the capacity, if one was given), peak_bytes, lower_bound_bytes (the
live peak), seconds (of planning, without reading), and more.

Examples:
  tenon plan run.csv.zst -o run.plan
  tenon plan problem.csv --capacity 1048576 -o solution.csv
  tenon plan run.pickle --json

Exit status: 0 when a plan was made, within the capacity or not. 2 for bad usage or a file that
cannot be read.)";

struct PlanArguments {
  std::string file;
  std::string output;
  std::string capacity;
  std::uint64_t capacity_bytes = 0;
  std::int64_t device = kAnyDevice;
  double effort = 1;
  bool whole = false;
  bool own_memory = false;
  bool json = false;
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void print_report(const PlanArguments& arguments, PlanReport& report) {
  report.capacity_bytes = arguments.capacity_bytes;
  fmt::print("{}", arguments.json ? plan_json(report) : plan_text(report));
}

// ------------------------------------------------------------------------------------------------
// Problems

// Nodes x requests of an exact search at effort 1: about a minute of two cores.
constexpr double kSearchWork = 4e9;

Packing solve_instance(const std::vector<PlanRequest>& requests, const PlanArguments& arguments,
                       bool& impossible) {
  if (arguments.capacity_bytes == 0) return pack_tightly(requests, 1, 4 * arguments.effort);
  Packing packing = pack(requests, 1, arguments.effort);
  if (packing.peak_bytes <= arguments.capacity_bytes) return packing;
  impossible = packing.lower_bound_bytes > arguments.capacity_bytes;
  if (impossible) return packing;
  const auto budget = static_cast<std::uint64_t>(arguments.effort * kSearchWork /
                                                 static_cast<double>(requests.size()));
  FitResult found = fit_within(requests, arguments.capacity_bytes, budget);
  impossible = found.fit == Fit::kImpossible;
  if (found.fit != Fit::kFits) return packing;
  packing.offsets = std::move(found.offsets);
  packing.peak_bytes = 0;
  for (std::size_t i = 0; i < requests.size(); ++i)
    packing.peak_bytes = std::max(packing.peak_bytes, packing.offsets[i] + requests[i].size);
  return packing;
}

void check_packing(const Instance& instance, const Packing& packing) {
  std::vector<PlacedBuffer> placed;
  for (std::size_t i = 0; i < instance.buffers.size(); ++i) {
    const InstanceBuffer& b = instance.buffers[i];
    placed.push_back({b.lower, b.upper, b.size, packing.offsets[i]});
  }
  const std::string error = find_packing_error(placed, packing.peak_bytes);
  if (!error.empty()) throw InternalError("the packing made is not valid: " + error);
}

int run_instance(const PlanArguments& arguments, const FileBytes& bytes) {
  const Instance instance = parse_instance(bytes.view(), arguments.file);
  PlanReport report;
  const Stopwatch watch;
  const Packing packing =
      solve_instance(requests_of(instance), arguments, report.impossible);
  report.seconds = watch.seconds();
  check_packing(instance, packing);
  report.name = instance.name;
  report.requests = instance.buffers.size();
  report.peak_bytes = packing.peak_bytes;
  report.lower_bound_bytes = packing.lower_bound_bytes;
  if (!arguments.output.empty())
    write_file(arguments.output, format_instance(instance, packing.offsets));
  print_report(arguments, report);
  return kSuccess;
}

// ------------------------------------------------------------------------------------------------
// Traces

int run_trace(const PlanArguments& arguments) {
  const std::vector<Trace> traces = load_traces(arguments.file);
  const Trace& trace = trace_of_device(traces, arguments.device, arguments.file);
  for (const std::string& warning : trace.warnings)
    tell(fmt::format("warning: {}", warning));
  if (traces.size() > 1)
    tell(fmt::format("{} has events of {} devices; this plan is of device {} (--device)",
                     arguments.file, traces.size(), trace.device));
  PlanOptions options;
  options.find_loops = !arguments.whole;
  options.share_streams = !arguments.own_memory;
  PlannedTrace planned = plan_trace(trace, options);
  if (!arguments.output.empty()) write_file(arguments.output, format_plan(planned.plan));
  print_report(arguments, planned.report);
  return kSuccess;
}

int run_plan(PlanArguments& arguments) {
  const bool limited = !arguments.capacity.empty();
  if (!arguments.output.empty()) require_other_file(arguments.output, {arguments.file});
  {
    const FileBytes bytes(arguments.file);
    if (looks_like_instance(bytes.view())) {
      if (limited)
        arguments.capacity_bytes = parse_problem_size("--capacity", arguments.capacity);
      return run_instance(arguments, bytes);
    }
  }
  if (limited) arguments.capacity_bytes = parse_size("--capacity", arguments.capacity);
  return run_trace(arguments);
}

}  // namespace

Subcommand add_plan(CommandLine& app) {
  const auto arguments = std::make_shared<PlanArguments>();
  CommandLine& plan =
      app.add_subcommand("plan", "Compute an offset for every allocation in advance");
  plan.footer(kHelp);
  plan.add_option("FILE", arguments->file, "A trace, a snapshot, or id,lower,upper,size")
      .required();
  plan.add_option("-o,--output", arguments->output,
                  "Write the plan (or the solved problem) to this file; .zst compresses");
  plan.add_option("--capacity", arguments->capacity,
                  "The limit, like 24GiB; for a problem, in its own unit");
  plan.add_option("--device", arguments->device,
                  "Only this device of a snapshot, by the number that tenon explain prints")
      .not_negative();
  plan.add_flag("--whole", arguments->whole, "Plan the whole recording instead of one iteration");
  plan.add_flag("--own-memory", arguments->own_memory,
                "Give each stream its own memory, even if sharing needs less");
  plan.add_option("--effort", arguments->effort,
                  "Search effort for hard problems; 1 takes a few minutes at most")
      .show_default()
      .between(0.01, 1000.0);
  plan.add_flag("--json", arguments->json, "Print JSON");
  return {&plan, [arguments] { return run_plan(*arguments); }};
}

}  // namespace tenon::command
