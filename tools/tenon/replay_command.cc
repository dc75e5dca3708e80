// tenon replay: traces over policies.
#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <optional>

#include "arguments.h"
#include "commands.h"
#include "load_file.h"
#include "process.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/file_writer.h"
#include "tenon/device/devices.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/heap/plan.h"
#include "tenon/lab/advice/recorded_settings.h"
#include "tenon/lab/failed_requests.h"
#include "tenon/lab/hardware/hardware_replay.h"
#include "tenon/lab/planning/plan_file.h"
#include "tenon/lab/replay_answer.h"
#include "tenon/lab/report.h"
#include "tenon/lab/survey.h"
#include "tenon/memory/gpu/pytorch_rules.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
The files: .csv or .csv.zst with the columns time_us,op,id,size,stream (op: alloc, free_requested,
free_completed), a PyTorch snapshot (.pickle, from torch.cuda.memory._dump_snapshot), or a profile
(.json, from torch.profiler with profile_memory=True), whose replay is approximate.

The figures are of one replay on a simulated device, except where noted:
  live peak     the most requested bytes that are live at one time, from alloc to free_completed:
                no allocator needs less
  reserved      reserved peak: the most physical bytes taken from the driver at one time, caches
                included, without a capacity limit; /live is its ratio to the live peak
  capacity      with --find-capacity: the smallest device, by bisection from the live peak to the
                reserved peak until they are within 8 MiB or 1/500 of the live peak
  frag          fragmentation: 1 - live/reserved at the moment of the reserved peak
  calls         driver calls that change memory (allocate, free, create, map, unmap, ...)
  driver stall  time in all driver calls by a cost model measured on an NVIDIA H200, and in waits
                for the device; as time, and as share of the trace's recorded time
  moving stall  the part of it that moves pages between addresses
  ns/event      host time for an alloc or a free: median over repeated replays of the trace on one
                warm instance, no capacity limit, no lag. "null" is the time of the loop itself
  layout        first digits of a hash over every block's address; equal from run to run
Without --policy or --all the rows are the settings that a user of PyTorch can run: those of --conf,
PyTorch's defaults, the recorded settings of a snapshot, and expandable_segments:True.
docs/replay.md says which settings are replayed to the byte.
With --capacity, calls, stalls and layout are of the run within that capacity. The capacity is that
of the device. Policies that follow PyTorch use it as their own limit, like PyTorch's memory
fraction. As in PyTorch, expandable may exceed it by less than one page handle.

With --device cuda the allocator runs on the GPU with its driver calls, without kernels. Times are
measured; "simulated" is the simulation's figure for the same replay without lag.

Examples:
  tenon replay snapshot.pickle
  tenon replay snapshot.pickle --all
  tenon replay data/traces/*.csv.zst --policy caching,stitched --find-capacity
  tenon replay run.csv --capacity 12GiB --conf 'max_split_size_mb:128' --json

Exit status: 0 when every trace was replayed (running out of memory is a result). 1 for a bug. 2 for
bad usage or a file that cannot be read (the others are still replayed).)";

struct ReplayArguments {
  std::vector<std::string> files;
  std::vector<std::string> policies;  // empty: what PyTorch can run
  std::string capacity;
  std::string page;                // empty: the default
  std::string lag = "5ms";
  std::string device = "sim";
  std::string json_file;
  std::string plan_file;
  std::string torch;  // empty: what each recording says
  bool json = false;
  bool all = false;
  bool serve_failed = false;
  SurveyOptions survey;
};

// What was read: workloads, and the settings that each was recorded with.
struct Recordings {
  std::vector<Workload> workloads;
  std::vector<RecordedSettings> settings;
};

// Reads what can be read; says on stderr what cannot, and returns false for that.
bool load_all(const ReplayArguments& arguments, std::optional<std::uint32_t> device,
              Recordings& recordings) {
  bool all_read = true;
  const ProgressLine progress;
  for (const std::string& file : arguments.files) {
    progress.show(fmt::format("reading {}", file));
    try {
      Snapshot snapshot = load_snapshot(file);
      if (!arguments.torch.empty()) replay_as(parse_torch_version(arguments.torch), snapshot);
      const RecordedSettings settings = recorded_settings(snapshot);
      if (device) trace_of_device(snapshot.traces, *device, file);
      for (const Trace& trace : snapshot.traces) {
        if (device && trace.device != *device) continue;
        if (arguments.serve_failed)
          recordings.workloads.emplace_back(with_failed_requests(trace));
        else
          recordings.workloads.emplace_back(trace);
        recordings.settings.push_back(settings);
        progress.clear();
        for (const std::string& warning : trace.warnings)
          tell(fmt::format("warning: {}", warning));
        if (!arguments.serve_failed && has_failed_requests(trace))
          tell(fmt::format("warning: {}: the request that failed is not in these figures; "
                           "--serve-failed counts it",
                           trace.name));
      }
    } catch (const ParseError& error) {
      progress.clear();
      tell(error.what());
      all_read = false;
    }
  }
  return all_read;
}

// The same on a GPU: real driver calls and times, beside the simulation's.
int run_on_hardware(const ReplayArguments& arguments, Device device,
                    const std::vector<Workload>& workloads, int status) {
  const auto results =
      survey_hardware(CudaDriver::standard(), device.index, workloads, arguments.survey);
  for (const HardwareResult& result : results)
    if (!result.error.empty()) {
      tell(fmt::format("{} over {}: {}", result.trace, result.policy, result.error));
      if (status == kSuccess) status = kFailure;
    }
  fmt::print("{}", arguments.json ? report_hardware_json(results)
                                  : report_hardware_table(results));
  if (!arguments.json_file.empty())
    write_file(arguments.json_file, report_hardware_json(results));
  return status;
}

// "sim", "cuda:1", or the number of a recorded device, which is replayed on sim.
std::optional<std::uint32_t> recorded_device(std::string& device) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(device.data(), device.data() + device.size(), number);
  if (error != std::errc() || end != device.data() + device.size()) return std::nullopt;
  device = "sim";
  return number;
}

Device replay_on(const std::string& text) {
  const Device device = read_option("--device", [&] { return parse_device(text); });
  if (device.type != DeviceType::kSim && device.type != DeviceType::kCuda)
    throw InvalidArgument(fmt::format("--device {}: traces are replayed on sim or on cuda", text));
  if (device.type == DeviceType::kCuda && !why_no_cuda().empty())
    throw InvalidArgument(fmt::format("--device {}: {}", text, why_no_cuda()));
  return device;
}

void warn_of_small_capacity(const std::vector<Workload>& workloads, std::uint64_t capacity_bytes) {
  for (const Workload& workload : workloads)
    if (capacity_bytes != 0 && capacity_bytes < workload.live_peak_bytes())
      tell(fmt::format("warning: {}: the capacity, {}, is smaller than the live peak, {}: no "
                       "allocator can fit it",
                       workload.name(), format_byte_size(capacity_bytes),
                       format_byte_size(workload.live_peak_bytes())));
}

int run_simulated(const ReplayArguments& arguments, const Recordings& recordings, int status) {
  std::vector<SurveyResult> results;
  {
    const ProgressLine progress;
    results = survey(recordings.workloads, arguments.survey,
                     [&](std::size_t done, std::size_t all, std::string_view trace,
                         std::string_view policy, std::string_view step) {
                       progress.show(fmt::format("[{}/{}] {} {} over {}", done + 1, all, step,
                                                 trace, policy));
                     });
  }
  for (const SurveyResult& result : results)
    if (!result.error.empty()) {
      tell(fmt::format("{} over {}: {}", result.trace, result.policy, result.error));
      if (status == kSuccess) status = kFailure;
    }
  if (arguments.json) {
    fmt::print("{}", report_json(results));
  } else {
    fmt::print("{}", replay_text(results, arguments.survey, recordings.workloads,
                                 recordings.settings));
  }
  if (!arguments.json_file.empty()) write_file(arguments.json_file, report_json(results));
  return status;
}

std::uint64_t parse_page(const std::string& text) {
  const std::uint64_t page_bytes = parse_size("--page", text);
  const std::uint64_t granularity = SimBackend().limits().page_granularity;
  if (page_bytes % granularity != 0)
    throw InvalidArgument(fmt::format("--page {}: the size of a page must be a multiple of {}",
                                      text, format_byte_size(granularity)));
  return page_bytes;
}

int run_replay(ReplayArguments& arguments) {
  if (!arguments.json_file.empty()) {
    std::vector<std::string> inputs = arguments.files;
    inputs.push_back(arguments.plan_file);
    require_answer_file(arguments.json_file, inputs);
    FileWriter::check(arguments.json_file);
  }
  SurveyOptions& options = arguments.survey;
  if (arguments.all) arguments.policies = {"all"};
  options.policies = parse_policies(arguments.policies);
  read_option("--conf", [&] { return parse_caching_settings(options.conf); });
  if (!arguments.capacity.empty())
    options.capacity_bytes = parse_size("--capacity", arguments.capacity);
  options.lag_ns = parse_duration_ns("--lag", arguments.lag);
  if (!arguments.torch.empty()) parse_torch_version(arguments.torch);
  const std::optional<std::uint32_t> recorded = recorded_device(arguments.device);
  const Device device = replay_on(arguments.device);
  if (!arguments.page.empty()) options.page_bytes = parse_page(arguments.page);

  Plan plan;
  if (!arguments.plan_file.empty()) {
    const FileBytes bytes(arguments.plan_file);
    plan = parse_plan(bytes.view(), arguments.plan_file);
    options.plan = &plan;
  }
  const bool of_one = options.plan != nullptr || options.page_bytes != 0;
  if (device.type == DeviceType::kCuda && options.policies.empty() && !of_one)
    options.policies = parse_policies({"all"});
  Recordings recordings;
  int status = load_all(arguments, recorded, recordings) ? kSuccess : kBadInput;
  if (status != kSuccess && recordings.workloads.empty()) return status;  // an earlier answer stays
  warn_of_small_capacity(recordings.workloads, options.capacity_bytes);
  choose_rows(options, recordings.settings);
  if (device.type == DeviceType::kCuda)
    return run_on_hardware(arguments, device, recordings.workloads, status);
  return run_simulated(arguments, recordings, status);
}

}  // namespace

Subcommand add_replay(CommandLine& app) {
  const auto arguments = std::make_shared<ReplayArguments>();
  CommandLine& replay = app.add_subcommand("replay", "Replay recorded traces over allocators");
  replay.footer(kHelp);
  replay.add_option("TRACE", arguments->files, "Recorded traces").required();
  replay.add_option("--policy", arguments->policies,
                    "Policies, comma-separated, or all (see tenon policies); without it, the "
                    "settings that PyTorch can run")
      .take_one();  // what follows is a trace
  replay.add_flag("--all", arguments->all, "Every policy: the same as --policy all");
  replay.add_option("--device", arguments->device,
                    "sim, or cuda (cuda:1): on the GPU, beside the simulation's figures; a "
                    "number: only this device of a snapshot, as tenon explain prints it")
      .show_default();
  replay.add_option("--capacity,--limit", arguments->capacity,
                    "Also replay on a device of this size, like 12GiB, and say whether it fits");
  replay.add_flag("--serve-failed", arguments->serve_failed,
                  "Serve requests that failed in the recording, and free them immediately");
  replay.add_flag("--find-capacity", arguments->survey.find_capacity,
                  "Search the smallest device for each policy");
  replay.add_option("--conf", arguments->survey.conf,
                    "PyTorch's allocator settings, 'key:value,key:value'")
      .may_be_empty();
  replay.add_option("--torch", arguments->torch,
                    "The version of PyTorch whose rules caching follows, like 2.13; default: that "
                    "of the recording where it says, else 2.11");
  replay.add_option("--page", arguments->page,
                    "Page size of stitched, like 8MiB: smaller pages reserve less memory and "
                    "cost more driver time");
  replay.add_option("--plan", arguments->plan_file,
                    "The plan of the policy plan: a file of tenon plan -o; without it, a plan is "
                    "made from each trace");
  replay.add_option("--lag", arguments->lag,
                    "Delay of the device's work behind the host, like 20ms")
      .show_default();
  replay.add_option("--passes", arguments->survey.passes,
                    "Timed replays for ns/event; 0: do not measure it")
      .show_default()
      .between(0, 100000);
  replay.add_option("--threads", arguments->survey.threads,
                    "Threads for untimed replays; 0: one for each core")
      .show_default()
      .between(0, 256);
  replay.add_flag("--json", arguments->json, "Print JSON instead of the table");
  replay.add_option("--json-file", arguments->json_file, "Write the JSON to this file too");
  return {&replay, [arguments] { return run_replay(*arguments); }};
}

}  // namespace tenon::command
