// Static planning and advice beside what was promised: bench_planning [--traces-only |
// --plans-only] [FOLDER]. Plans every problem of data/plans at its capacity and every shipped
// trace, checks each with the validator, and asks for advice on each trace.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "tenon/lab/advice/advice.h"
#include "tenon/lab/capacity.h"
#include "tenon/lab/plan_validator.h"
#include "tenon/lab/planner.h"
#include "tenon/lab/planning/fit.h"
#include "tenon/lab/planning/instance.h"
#include "tenon/lab/text_table.h"
#include "tenon/lab/workload.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"

namespace {

using namespace tenon;
namespace fs = std::filesystem;

constexpr std::uint64_t kCapacity = 1'048'576;    // of every problem in data/plans
constexpr double kMostSeconds = 28;               // allowed for all eight
constexpr double kMostAboveLivePeak = 1.005;
constexpr std::size_t kManyEvents = 250'000;
constexpr double kSecondsForManyEvents = 10;
constexpr double kAdviceSecondsPer100k = 60;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<fs::path> files_in(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().string().ends_with(ending)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

bool solve_problems(const fs::path& folder) {
  TextTable table({"problem", "buffers", "solved at its capacity", "validated", "seconds"});
  bool all = true;
  double sum = 0;
  for (const fs::path& file : files_in(folder, ".csv")) {
    const FileBytes bytes(file.string());
    const Instance instance = parse_instance(bytes.view(), file.string());
    const auto start = std::chrono::steady_clock::now();
    const FitResult found = fit_within(requests_of(instance), kCapacity, 20'000'000);
    const double seconds = seconds_since(start);
    sum += seconds;
    std::vector<PlacedBuffer> placed;
    for (std::size_t i = 0; i < found.offsets.size(); ++i) {
      const InstanceBuffer& b = instance.buffers[i];
      placed.push_back({b.lower, b.upper, b.size, found.offsets[i]});
    }
    const bool solved = found.fit == Fit::kFits;
    const bool valid = solved && find_packing_error(placed, kCapacity).empty();
    all &= valid;
    table.add({instance.name, grouped(instance.buffers.size()), solved ? "yes" : "NO",
               valid ? "yes" : "NO", fmt::format("{:.2f}", seconds)});
  }
  fmt::print("{}all: {:.2f} s; at most {:.0f} s are allowed for the eight shipped: {}\n\n",
             table.format(), sum, kMostSeconds, sum <= kMostSeconds ? "kept" : "NOT");
  return all && sum <= kMostSeconds;
}

// A trace again and again until it has that many events that a replay performs.
Trace repeated(const Trace& trace, std::size_t events) {
  Trace out = trace;
  const std::uint64_t each = trace.replayed_events();
  for (std::uint64_t sum = each; each > 0 && sum < events; sum += each) {
    for (TraceEvent event : trace.events) {
      event.block += out.blocks;
      out.events.push_back(event);
    }
    out.blocks += trace.blocks;
  }
  return out;
}

bool plan_traces(const std::vector<fs::path>& files) {
  TextTable table({"trace", "events", "peak/live", "whole/live", "loop", "validated", "seconds"});
  bool all = true;
  for (const fs::path& file : files) {
    const Trace trace = load_traces(file.string()).at(0);
    const Workload workload(trace);
    const auto ratio = [&](const Plan& plan) {
      return static_cast<double>(plan.total_bytes()) /
             static_cast<double>(std::max<std::uint64_t>(1, workload.live_peak_bytes()));
    };
    PlanOptions options;
    options.find_loops = true;
    const auto start = std::chrono::steady_clock::now();
    const PlanResult result = plan_program(workload.ops(), options);
    const double seconds = seconds_since(start);
    const Plan whole = make_plan(workload.ops());
    const bool valid =
        find_plan_error(result.plan, trace).empty() && find_plan_error(whole, trace).empty();
    const double worst = std::max(ratio(result.plan), ratio(whole));
    all &= valid && worst <= kMostAboveLivePeak;
    bool loop = false;
    for (const auto& [id, stream] : result.plan.streams()) loop |= stream.loop_begin != 0;
    table.add({trace.name, grouped(workload.ops().size()),
               fmt::format("{:.4f}", ratio(result.plan)), fmt::format("{:.4f}", ratio(whole)),
               loop ? "yes" : "no", valid ? "yes" : "NO",
               fmt::format("{:.2f}", seconds)});
  }
  fmt::print("{}promised: at most {} x the live peak: {}\n\n", table.format(), kMostAboveLivePeak,
             all ? "kept" : "NOT");
  return all;
}

bool plan_many_events(const std::vector<fs::path>& files) {
  Trace largest;
  for (const fs::path& file : files) {
    Trace trace = load_traces(file.string()).at(0);
    if (trace.events.size() > largest.events.size()) largest = std::move(trace);
  }
  const Trace many = repeated(largest, kManyEvents);
  const Workload workload(many);
  const auto start = std::chrono::steady_clock::now();
  const Plan plan = make_plan(workload.ops());
  const double seconds = seconds_since(start);
  const bool valid = find_plan_error(plan, many).empty();
  const bool kept = valid && seconds <= kSecondsForManyEvents;
  fmt::print("{} repeated to {} events: planned in {:.2f} s, {}; promised: {} s: {}\n\n",
             largest.name, grouped(workload.ops().size()), seconds, valid ? "valid" : "NOT VALID",
             kSecondsForManyEvents, kept ? "kept" : "NOT");
  return kept;
}

bool advise_on(const std::vector<fs::path>& files) {
  TextTable table({"trace", "default", "expandable", "advised", "seconds"});
  bool all = true;
  for (const fs::path& file : files) {
    const Workload workload(load_traces(file.string()).at(0));
    const auto start = std::chrono::steady_clock::now();
    const Advice advice = advise(workload, {});
    const double seconds = seconds_since(start);
    const auto figures = [&](const SettingsFigures& f) {
      const auto live = static_cast<double>(std::max<std::uint64_t>(1, advice.live_peak_bytes));
      return fmt::format("{:.3f} {:.3f}",
                         static_cast<double>(f.programs[0].reserved_peak_bytes) / live,
                         static_cast<double>(f.programs[0].min_capacity_bytes) / live);
    };
    const AdviceFigures& before = advice.recorded.programs[0];
    const AdviceFigures& best = advice.best.programs[0];
    ReplaySetup setup;
    setup.policy = "caching";
    setup.options.conf = advice.best.conf;
    const bool again =
        replay(workload, setup).reserved_peak_bytes == best.reserved_peak_bytes &&
        find_min_capacity(workload, setup, best.reserved_peak_bytes) == best.min_capacity_bytes;
    const double allowed = kAdviceSecondsPer100k *
                           std::max(1.0, static_cast<double>(workload.ops().size()) / 100'000);
    all &= again && best.reserved_peak_bytes <= before.reserved_peak_bytes &&
           best.min_capacity_bytes <= before.min_capacity_bytes && seconds <= allowed;
    table.add({workload.name(), figures(advice.defaults),
               advice.expandable ? figures(*advice.expandable) : "-", figures(advice.best),
               fmt::format("{:.1f}", seconds)});
    fmt::print("  {}: {}\n", workload.name(),
               advice.best.conf.empty() ? "(the defaults)" : advice.best.conf);
  }
  fmt::print("{}reserved and smallest device, as multiples of the live peak; as recorded: the "
             "defaults.\npromised: never worse than recorded in either, the same figures from "
             "replays: {}\n",
             table.format(), all ? "kept" : "NOT");
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const auto asked = [&](const char* flag) {
      return std::find(arguments.begin(), arguments.end(), flag) != arguments.end();
    };
    fs::path data = TENON_SOURCE_DIR "/data";
    if (!arguments.empty() && !arguments.back().starts_with("--")) data = arguments.back();
    bool kept = true;
    if (!asked("--traces-only")) kept &= solve_problems(data / "plans");
    if (!asked("--plans-only")) {
      const std::vector<fs::path> traces = files_in(data / "traces", ".csv.zst");
      kept &= plan_traces(traces);
      kept &= plan_many_events(traces);
      kept &= advise_on(traces);
    }
    return kept ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_planning: {}\n", error.what());
    return 2;
  }
}
