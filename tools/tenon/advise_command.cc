// tenon advise: which allocator settings a recorded program should have run with.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "arguments.h"
#include "commands.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/advice/advice.h"
#include "tenon/lab/text_table.h"
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

using Json = nlohmann::ordered_json;

std::string bytes(std::uint64_t value) { return format_byte_size(value); }

// "1.23 GiB less than", "as much as", "0.5 GiB more than".
std::string compared(std::uint64_t value, std::uint64_t with) {
  if (value == with) return "as much as";
  return value < with ? bytes(with - value) + " less than" : bytes(value - with) + " more than";
}

bool fits(const AdviceFigures& figures) { return figures.fits.value_or(true); }

// What to tell somebody whose program ran out of memory, in a sentence or two.
std::string verdict(const Advice& advice) {
  if (advice.hopeless())
    return fmt::format(
        "nothing helps: the program itself needs {} at once, {} more than the capacity, {}. It "
        "must need less (a smaller batch, checkpointing, offloading), or the device be larger.",
        bytes(advice.live_peak_bytes), bytes(advice.live_peak_bytes - advice.capacity_bytes),
        bytes(advice.capacity_bytes));
  if (advice.capacity_bytes != 0 && !fits(advice.best)) {
    std::string ours;
    for (const AdviceFigures* figures : {&advice.stitched, &advice.plan})
      if (fits(*figures)) ours += (ours.empty() ? "" : " and ") + figures->policy;
    return fmt::format(
        "no PyTorch settings that were tried fit into {}: the best need {}. The program's live "
        "peak is {}, so memory is lost to fragmentation.{}",
        bytes(advice.capacity_bytes), bytes(*advice.smallest_capacity.min_capacity_bytes),
        bytes(advice.live_peak_bytes),
        ours.empty() ? " Tenon's own policies do not fit either."
                     : fmt::format(" Tenon's {} would fit.", ours));
  }
  if (advice.capacity_bytes != 0)
    return fmt::format("it fits into {} with these settings (PyTorch's defaults: {}; "
                       "expandable_segments:True: {}).",
                       bytes(advice.capacity_bytes),
                       fits(advice.default_settings) ? "it fits" : "it does not",
                       fits(advice.expandable) ? "it fits" : "it does not");
  if (advice.best.conf.empty()) return "PyTorch's defaults are the best settings found.";
  return fmt::format(
      "these settings reserve {} PyTorch's defaults do and {} with expandable_segments:True. The "
      "smallest device that they fit on is {}: {} with the defaults, {} with "
      "expandable_segments:True.",
      compared(advice.best.reserved_peak_bytes, advice.default_settings.reserved_peak_bytes),
      compared(advice.best.reserved_peak_bytes, advice.expandable.reserved_peak_bytes),
      bytes(*advice.best.min_capacity_bytes),
      compared(*advice.best.min_capacity_bytes, *advice.default_settings.min_capacity_bytes),
      compared(*advice.best.min_capacity_bytes, *advice.expandable.min_capacity_bytes));
}

std::string line_to_paste(const std::string& conf) {
  return conf.empty() ? "unset PYTORCH_CUDA_ALLOC_CONF"
                      : fmt::format("export PYTORCH_CUDA_ALLOC_CONF={}", conf);
}

Json json_of(const AdviceFigures& figures) {
  Json out = {{"policy", figures.policy},
              {"conf", figures.conf},
              {"reserved_peak_bytes", figures.reserved_peak_bytes},
              {"min_capacity_bytes", nullptr},
              {"driver_stall_us", static_cast<double>(figures.driver_stall_ns) / 1000}};
  if (figures.min_capacity_bytes) out["min_capacity_bytes"] = *figures.min_capacity_bytes;
  if (figures.fits) out["fits"] = *figures.fits;
  return out;
}

void print_json(const Advice& advice, double seconds) {
  Json out;
  out["trace"] = advice.trace;
  out["events"] = advice.events;
  out["live_peak_bytes"] = advice.live_peak_bytes;
  if (advice.capacity_bytes != 0) out["capacity_bytes"] = advice.capacity_bytes;
  out["conf"] = advice.best.conf;
  out["line"] = line_to_paste(advice.best.conf);
  out["reserved_peak_bytes"] = advice.best.reserved_peak_bytes;
  out["min_capacity_bytes"] = *advice.best.min_capacity_bytes;
  out["best_in_both"] = advice.best_in_both;
  out["helps"] = !advice.hopeless() && (advice.capacity_bytes == 0 || fits(advice.best));
  out["missing_bytes"] = advice.hopeless() ? advice.live_peak_bytes - advice.capacity_bytes : 0;
  out["verdict"] = verdict(advice);
  out["best"] = json_of(advice.best);
  out["least_reserved"] = json_of(advice.least_reserved);
  out["smallest_capacity"] = json_of(advice.smallest_capacity);
  out["default"] = json_of(advice.default_settings);
  out["expandable"] = json_of(advice.expandable);
  out["stitched"] = json_of(advice.stitched);
  out["plan"] = json_of(advice.plan);
  out["settings_tried"] = advice.settings_tried;
  out["seconds"] = seconds;
  fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

void add_row(TextTable& table, const Advice& advice, const std::string& name,
             const AdviceFigures& figures) {
  const auto ratio = [&](std::uint64_t value) {
    return fmt::format("{:.3f}", static_cast<double>(value) /
                                     static_cast<double>(std::max<std::uint64_t>(
                                         1, advice.live_peak_bytes)));
  };
  std::vector<std::string> row = {name,
                                  bytes(figures.reserved_peak_bytes),
                                  ratio(figures.reserved_peak_bytes),
                                  bytes(*figures.min_capacity_bytes),
                                  ratio(*figures.min_capacity_bytes),
                                  format_duration_ns(figures.driver_stall_ns)};
  if (advice.capacity_bytes != 0) row.push_back(fits(figures) ? "fits" : "does not fit");
  table.add(row);
}

void print_text(const Advice& advice, double seconds) {
  fmt::print("{}: {} events, live peak {} ({} bytes)\n", advice.trace, grouped(advice.events),
             bytes(advice.live_peak_bytes), grouped(advice.live_peak_bytes));
  std::vector<std::string> head = {"settings", "reserved", "/live",
                                   "smallest device", "/live", "driver stall"};
  if (advice.capacity_bytes != 0) head.push_back("in " + bytes(advice.capacity_bytes));
  TextTable table(head);
  add_row(table, advice, "PyTorch's defaults", advice.default_settings);
  add_row(table, advice, "expandable_segments:True", advice.expandable);
  add_row(table, advice, "best found", advice.best);
  if (!advice.best_in_both) {
    add_row(table, advice, "least reserved", advice.least_reserved);
    add_row(table, advice, "smallest device", advice.smallest_capacity);
  }
  add_row(table, advice, "Tenon, stitched", advice.stitched);
  add_row(table, advice, "Tenon, plan", advice.plan);
  fmt::print("{}\n{}\n", table.format(), verdict(advice));
  if (advice.hopeless()) return;
  fmt::print("\n  {}\n\n", line_to_paste(advice.best.conf));
  if (!advice.best_in_both)
    fmt::print(
        "No settings were found that are best in both figures. Least reserved:\n  {}\nSmallest "
        "device:\n  {}\n\n",
        line_to_paste(advice.least_reserved.conf), line_to_paste(advice.smallest_capacity.conf));
  if (advice.best.conf.find("large_segment_size_mb") != std::string::npos)
    fmt::print("large_segment_size_mb is a recent setting (PyTorch 2.11 has it).\n");
  fmt::print("{} settings tried in {:.1f} s.\n", grouped(advice.settings_tried), seconds);
}

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
  arguments.json ? print_json(advice, seconds) : print_text(advice, seconds);
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
