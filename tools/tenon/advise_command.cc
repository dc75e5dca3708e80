// tenon advise: which allocator settings recorded programs should have run with.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "arguments.h"
#include "commands.h"
#include "load_file.h"
#include "process.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/advice/advice_report.h"
#include "tenon/lab/advice/recorded_programs.h"
#include "tenon/lab/advice/recorded_settings.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
Replays the recording with many of PyTorch's allocator settings. Prints one recommendation beside
the recorded settings (from the snapshot), or says that no change is needed. The recommendation is
never worse than the recorded settings, neither in reserved memory nor in the smallest device,
except with a capacity or a failure: there, what completes comes first. All figures are of replays;
tenon replay prints them again with the command that is shown. For several recordings (one for each
rank, or a snapshot of several devices) there is one setting for all. The answer names the recording
that needs most.

If the recording ran out of memory, the replays serve the failed request. The card's memory is then
known: what PyTorch had reserved and what the driver had left at the failure. If a limit such as
per_process_memory_fraction failed the request, advise prints what the limit was at least.

--torch 2.6 excludes settings that this version lacks. Without it, advise tries the settings of the
oldest PyTorch that writes such a snapshot. With --capacity, the card's memory, advise says whether
the program fits, and with which settings. It subtracts the CUDA context, and NCCL's buffers for
several recordings, from the card's memory. Their size comes from a failure in the recording, from
--card, or from --reserve-for-context. docs/advise.md has the tables and sources.

--json prints outcome (nothing needed, raise the limit, set, nothing fits, hopeless), conf (the
settings), reserved_peak_bytes, min_capacity_bytes, live_peak_bytes, verdict, and the figures
compared. With a failure of a limit it prints limit_at_least_bytes.

Examples:
  tenon advise snapshot.pickle
  tenon advise run.pickle --capacity 24GiB --torch 2.6
  tenon advise rank0.pickle rank1.pickle --json

Exit status: 0 when there is an answer, also if no setting helps. 2 for bad usage or a file that
cannot be read.)";

struct AdviseArguments {
  std::vector<std::string> files;
  std::string capacity;
  std::string reserve;
  std::string card;
  std::string torch;
  std::string lag = "5ms";
  std::int64_t device = kAnyDevice;
  bool json = false;
  AdviceOptions options;
};

RecordedPrograms load(const AdviseArguments& arguments, const ProgressLine& line) {
  RecordedPrograms recorded;
  for (const std::string& file : arguments.files) {
    Snapshot snapshot = load_with_progress(file, line);
    if (!arguments.torch.empty()) replay_as(parse_torch_version(arguments.torch), snapshot);
    std::optional<std::uint32_t> device;
    if (arguments.device != kAnyDevice)
      device = trace_of_device(snapshot.traces, arguments.device, file).device;
    add_programs(snapshot, file, device, recorded);
  }
  line.clear();
  if (recorded.programs.empty() && !recorded.warnings.empty())
    throw InvalidArgument(recorded.warnings.front());
  for (const std::string& warning : recorded.warnings)
    tell(fmt::format("warning: {}", warning));
  return recorded;
}

AdviceOptions options_for(const AdviseArguments& arguments, const RecordedPrograms& recorded) {
  AdviceOptions options = arguments.options;
  if (!arguments.capacity.empty())
    options.capacity_bytes = parse_size("--capacity", arguments.capacity);
  complete_options(options, recorded, recorded.programs.size(), arguments.card);
  if (!arguments.reserve.empty())
    options.outside = {
        arguments.reserve == "0" ? 0 : parse_size("--reserve-for-context", arguments.reserve), 0,
        "as given"};
  if (!arguments.torch.empty()) options.torch = parse_torch_version(arguments.torch);
  options.lag_ns = parse_duration_ns("--lag", arguments.lag);
  return options;
}

int run_advise(const AdviseArguments& arguments) {
  options_for(arguments, {});  // bad values are refused before files are read
  const ProgressLine line;
  const RecordedPrograms recorded = load(arguments, line);
  const AdviceOptions options = options_for(arguments, recorded);
  const auto start = std::chrono::steady_clock::now();
  const Advice advice = advise(recorded.programs, options, [&](std::string_view step) {
    line.show(fmt::format("trying {}", step));
  });
  line.clear();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}", arguments.json ? advice_json(advice, seconds) : advice_text(advice, seconds));
  return kSuccess;
}

}  // namespace

Subcommand add_advise(CommandLine& app) {
  const auto arguments = std::make_shared<AdviseArguments>();
  CommandLine& advise = app.add_subcommand("advise", "Search the allocator settings that fit best");
  advise.footer(kHelp);
  advise.add_option("FILE", arguments->files, "PyTorch snapshots or recorded traces").required();
  advise.add_option("--capacity", arguments->capacity, "The card's memory, like 24GiB");
  advise.add_option("--card", arguments->card,
                    "rtx3090, rtx6000ada or other: its memory and its CUDA context");
  advise.add_option("--reserve-for-context", arguments->reserve,
                    "Memory for the CUDA context, NCCL and other processes, like 600MiB");
  advise.add_option("--torch", arguments->torch, "The version of PyTorch, like 2.6");
  advise.add_option("--device", arguments->device,
                    "Only this device of a snapshot, by the number that tenon explain prints")
      .not_negative();
  advise.add_option("--lag", arguments->lag,
                    "Delay of the device's work behind the host, like 20ms; affects stalls")
      .show_default();
  advise.add_option("--effort", arguments->options.effort,
                    "Search effort: a factor for the number of replays")
      .show_default()
      .between(0.01, 100.0);
  advise.add_option("--threads", arguments->options.threads, "0: one for each core")
      .show_default()
      .between(0, 256);
  advise.add_flag("--json", arguments->json, "Print JSON");
  return {&advise, [arguments] { return run_advise(*arguments); }};
}

}  // namespace tenon::command
