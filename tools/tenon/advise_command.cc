// tenon advise: which allocator settings a recorded program should have run with.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include "arguments.h"
#include "commands.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/advice/advice_report.h"
#include "tenon/trace/load.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
Replays the recording over PyTorch's allocator settings by the rules that gave PyTorch's own figures
to the byte, and prints the best as a line to paste: settings at least as good as the better of
PyTorch's defaults and expandable_segments:True, both in what they reserve (without a limit) and in
the smallest device that they fit on. Where no settings are best in both, the best for
each are named. With --capacity it says whether the program fits, and what would have made it fit.
It also says what Tenon's own policies would need: stitched, and plan (offsets worked out from this
recording).

Every figure can be made again: tenon replay FILE --policy caching --conf SETTINGS --find-capacity.

With --json: conf (the settings), reserved_peak_bytes, min_capacity_bytes, live_peak_bytes, verdict,
and the figures of everything compared.

Examples:
  tenon advise snapshot.pickle
  tenon advise run.csv.zst --capacity 24GiB --json

Exit status: 0 when there is an answer, also where that is that nothing helps; 2 for bad usage or a
file that cannot be read.)";

struct AdviseArguments {
  std::string file;
  std::string capacity;
  std::string lag = "5ms";
  std::size_t device = 0;
  bool json = false;
  AdviceOptions options;
};

int run_advise(AdviseArguments& arguments) {
  AdviceOptions& options = arguments.options;
  if (!arguments.capacity.empty()) {
    options.capacity_bytes = parse_byte_size(arguments.capacity);
    if (options.capacity_bytes == 0)
      throw InvalidArgument("--capacity 0: give the device's memory, like 24GiB");
  }
  options.lag_ns = parse_duration_ns(arguments.lag);
  const std::vector<Trace> traces = load_traces(arguments.file);
  if (arguments.device >= traces.size())
    throw InvalidArgument(fmt::format("--device {}: {} has recordings of {} devices",
                                      arguments.device, arguments.file, traces.size()));
  const Trace& trace = traces[arguments.device];
  for (const std::string& warning : trace.warnings)
    fmt::print(stderr, "tenon: warning: {}\n", warning);
  if (traces.size() > 1)
    fmt::print(stderr, "tenon: {} has {} devices; this is about number {} (--device)\n",
               arguments.file, traces.size(), arguments.device);
  const bool shown = ::isatty(STDERR_FILENO) == 1;
  const auto start = std::chrono::steady_clock::now();
  const Advice advice = advise(Workload(trace), options, [&](std::string_view step) {
    if (shown) fmt::print(stderr, "\r\033[Ktrying {}", step);
  });
  if (shown) fmt::print(stderr, "\r\033[K");
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
  advise.add_option("FILE", arguments->file, "A recorded trace or a PyTorch snapshot").required();
  advise.add_option("--capacity", arguments->capacity, "The device's memory, like 24GiB");
  advise.add_option("--device", arguments->device, "Which device of a snapshot").show_default();
  advise.add_option("--lag", arguments->lag,
                    "How long the device's work runs behind the host, like 20ms")
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
