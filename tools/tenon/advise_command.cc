// tenon advise: which allocator settings recorded programs should have run with.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "advise_report.h"
#include "arguments.h"
#include "commands.h"
#include "load_file.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
Replays the recording over PyTorch's allocator settings, by the rules that gave PyTorch's own
figures to the byte, and prints one recommendation beside what the recording ran with (a snapshot
says), or that nothing is needed. It is never worse than what the recording ran with, in what is
reserved and in the smallest device. Figures are of replays; the command that makes them again is
printed. Several recordings (one a rank, or a snapshot of several devices): one setting for all,
and the recording that needs most.

--torch 2.6 leaves out what that version lacks; without it, what PyTorch 2.1 and newer accept is
tried. With --capacity, the card's memory, it says whether the program fits and what would make it
fit. The CUDA context, and NCCL where there are several recordings, are taken off the card's
memory: by --card, or as --reserve-for-context says. docs/advise.md has the tables and sources.

With --json: outcome (nothing needed, set, nothing fits, hopeless), conf (the settings),
reserved_peak_bytes, min_capacity_bytes, live_peak_bytes, verdict, and the figures compared.

Examples:
  tenon advise snapshot.pickle
  tenon advise run.pickle --capacity 24GiB --torch 2.6
  tenon advise rank0.pickle rank1.pickle --json

Exit status: 0 when there is an answer, also where that is that nothing helps; 2 for bad usage or a
file that cannot be read.)";

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

// What is kept of a file: the decoded events, and what the report says of it.
struct Loaded {
  std::vector<AdvisedFile> files;
  std::vector<Workload> workloads;
};

void load(const AdviseArguments& arguments, const std::string& file, const ProgressLine& line,
          Loaded& loaded) {
  const Snapshot snapshot = load_with_progress(file, line);
  line.clear();
  const RecordedSettings recorded = recorded_settings(snapshot);
  if (!recorded.warning.empty())
    fmt::print(stderr, "tenon: warning: {}: {}\n", file, recorded.warning);
  if (arguments.device != kAnyDevice) trace_of_device(snapshot.traces, arguments.device, file);
  for (const Trace& trace : snapshot.traces) {
    if (arguments.device != kAnyDevice && trace.device != arguments.device) continue;
    for (const std::string& warning : trace.warnings)
      fmt::print(stderr, "tenon: warning: {}\n", warning);
    loaded.workloads.emplace_back(trace);
    loaded.files.push_back({trace.name, file, loaded.workloads.back().ops().size(),
                            trace.live_peak_bytes(), recorded,
                            recorded_reserved_peak(snapshot, trace)});
  }
}

void read_options(AdviseArguments& arguments, std::size_t ranks, AdviceReport& report) {
  AdviceOptions& options = arguments.options;
  const Card& card = find_card(arguments.card);
  report.outside = outside_memory(card, ranks);
  if (!arguments.reserve.empty())
    report.outside = {parse_size("--reserve-for-context", arguments.reserve), 0,
                      "--reserve-for-context"};
  if (!arguments.torch.empty()) options.torch = parse_torch_version(arguments.torch);
  report.torch = options.torch;
  options.lag_ns = parse_duration_ns(arguments.lag);
  if (!arguments.capacity.empty())
    report.card_bytes = parse_size("--capacity", arguments.capacity);
  else
    report.card_bytes = card.memory_bytes;
  if (report.card_bytes == 0) return;
  if (report.card_bytes <= report.outside.total())
    throw InvalidArgument(fmt::format(
        "--capacity {}: the card has no more than what is kept beside PyTorch's allocator, {}; "
        "--reserve-for-context says otherwise",
        arguments.capacity, format_byte_size(report.outside.total())));
  options.capacity_bytes = report.card_bytes - report.outside.total();
}

int run_advise(AdviseArguments& arguments) {
  AdviceReport report;
  read_options(arguments, arguments.files.size(), report);
  const ProgressLine line;
  Loaded loaded;
  for (const std::string& file : arguments.files) load(arguments, file, line, loaded);
  report.programs = std::move(loaded.files);
  std::vector<AdvisedProgram> programs;
  for (std::size_t i = 0; i < loaded.workloads.size(); ++i)
    programs.push_back({&loaded.workloads[i], report.programs[i].recorded.conf,
                        report.programs[i].recorded_peak_bytes});
  const auto start = std::chrono::steady_clock::now();
  report.advice = advise(programs, arguments.options, [&](std::string_view step) {
    line.show(fmt::format("trying {}", step));
  });
  line.clear();
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}", arguments.json ? advice_json(report) : advice_text(report));
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
                    "Of a snapshot with several devices: the number that tenon explain prints")
      .not_negative();
  advise.add_option("--lag", arguments->lag,
                    "How long the device's work runs behind the host, like 20ms: for stalls")
      .show_default();
  advise.add_option("--effort", arguments->options.effort, "How many settings to try")
      .show_default()
      .between(0.01, 100.0);
  advise.add_option("--threads", arguments->options.threads, "0: one for each core")
      .show_default()
      .between(0, 256);
  advise.add_flag("--json", arguments->json, "Print JSON");
  return {&advise, [arguments] { return run_advise(*arguments); }};
}

}  // namespace tenon::command
