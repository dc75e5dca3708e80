// tenon diff: two recordings side by side.
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "load_file.h"
#include "process.h"
#include "tenon/lab/explain/diff.h"
#include "tenon/trace/load.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
Compares two recordings (snapshots or traces), device by device. Prints both live peaks. For each
category (weights, gradients, ...), call site and phase it prints the live bytes at each recording's
own peak, the sum of allocated bytes and the number of allocations, and what is new or gone. The
rows with the largest change at the peak come first.

Examples:
  tenon diff before.pickle after.pickle
  tenon diff v1.pickle v2.pickle --ignore-lines     the program's text changed in between

Exit status: 0, 2 for bad usage or a file that cannot be read, 1 for a bug.)";

struct DiffArguments {
  std::string before;
  std::string after;
  bool json = false;
  bool ignore_lines = false;
  std::size_t rows = 20;
};

std::vector<Trace> load(const std::string& path) {
  std::vector<Trace> traces;
  {
    const ProgressLine progress;
    progress.show(fmt::format("reading {}", path));
    traces = load_traces(path);
  }
  for (const Trace& trace : traces)
    for (const std::string& warning : trace.warnings)
      tell(fmt::format("warning: {}", warning));
  return traces;
}

int run_diff(const DiffArguments& arguments) {
  const std::vector<Trace> before = load(arguments.before);
  const std::vector<Trace> after = load(arguments.after);
  const std::vector<TraceDiff> diffs = diff_all(before, after, arguments.ignore_lines);
  if (arguments.json) {
    fmt::print("{}", diff_json(diffs));
  } else {
    for (const TraceDiff& one : diffs) fmt::print("{}", diff_text(one, arguments.rows));
  }
  return kSuccess;
}

}  // namespace

Subcommand add_diff(CommandLine& app) {
  const auto arguments = std::make_shared<DiffArguments>();
  CommandLine& command =
      app.add_subcommand("diff", "Compare two recordings: what grew, what is new");
  command.footer(kHelp);
  command.add_option("BEFORE", arguments->before, "A snapshot or trace").required();
  command.add_option("AFTER", arguments->after, "Another one").required();
  command.add_flag("--json", arguments->json, "Print JSON instead of tables");
  command.add_flag("--ignore-lines", arguments->ignore_lines,
                   "Ignore line numbers when comparing call sites");
  command.add_option("--rows", arguments->rows, "Longest list")
      .show_default()
      .between(1, 100000);
  return {&command, [arguments] { return run_diff(*arguments); }};
}

}  // namespace tenon::command
