// tenon explain: what filled the memory, and why it ran out.
#include <fmt/format.h>

#include <memory>

#include "arguments.h"
#include "commands.h"
#include "load_file.h"
#include "tenon/lab/explain/explain.h"
#include "tenon/trace/file_bytes.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
The file: a PyTorch snapshot (.pickle, from torch.cuda.memory._dump_snapshot), or any trace that
tenon replay reads, such as a profile of torch.profiler with profile_memory=True. A snapshot
contains most: call stacks, segments, failures.

What is printed, for each device:
  the verdict   in sentences: whether memory or fragmentation failed, what filled the peak (weights,
                gradients, optimizer state, activations, temporaries, workspaces, KV caches, inputs,
                loss and logits), and the changes that would save most, each measured. Of
                PyTorch's settings it compares expandable_segments:True with the recorded ones;
                tenon advise searches all of them
  live peak     the most requested bytes that were live at one time, and when; what was live
                then, by category, by call site, by phase, by size and by age
  reserved      what PyTorch had from the driver, and the difference to the requested bytes by
                cause, at the live peak, at the reserved peak and at the end (without history:
                at the end only); each byte counts once
  out of memory for each failure: the request and its stack, what was live then, what was free
                and where, why no free piece was used, and what would have let the request pass
                (other allocators, by a replay of the earlier events on a device of the same size)
  leaks         call sites whose live bytes grow from iteration to iteration
--json prints the same as one object. Its top level has the figures of the whole file: segments,
blocks, total_size, allocated_size, trace_entries (by device), actions, traced_peak_bytes (of the
recorded allocations; live_peak_bytes also counts earlier ones), external_annotations,
top_allocating_frames, states.

Examples:
  tenon explain snapshot.pickle
  tenon explain snapshot.pickle --json | jq .devices[0].out_of_memory

Exit status: 0, 2 for bad usage or a file that cannot be read, 1 for a bug.)";

struct ExplainArguments {
  std::string file;
  bool json = false;
  bool no_replay = false;
  std::size_t rows = 10;
  std::int64_t device = kAnyDevice;
  std::string json_file;
};

int run_explain(const ExplainArguments& arguments) {
  if (!arguments.json_file.empty()) require_answer_file(arguments.json_file, {arguments.file});
  Snapshot snapshot;
  Explanation explanation;
  {
    const ProgressLine progress;
    snapshot = load_with_progress(arguments.file, progress);
    if (arguments.device != kAnyDevice) {
      Trace one = trace_of_device(snapshot.traces, arguments.device, arguments.file);
      snapshot.traces = {std::move(one)};
    }
    progress.show(fmt::format("explaining {}", arguments.file));
    explanation = explain(snapshot, arguments.file, {.replay = !arguments.no_replay});
  }
  if (arguments.json) {
    fmt::print("{}", explanation_json(explanation));
  } else {
    fmt::print("{}", explanation_text(explanation, arguments.rows));
  }
  if (!arguments.json_file.empty())
    write_file(arguments.json_file, explanation_json(explanation));
  return kSuccess;
}

}  // namespace

Subcommand add_explain(CommandLine& app) {
  const auto arguments = std::make_shared<ExplainArguments>();
  CommandLine& explain =
      app.add_subcommand("explain", "Say what filled the memory, and why it ran out");
  explain.footer(kHelp);
  explain.add_option("SNAPSHOT", arguments->file, "A snapshot or trace").required();
  explain.add_flag("--json", arguments->json, "Print JSON instead of text");
  explain.add_option("--json-file", arguments->json_file, "Write the JSON to this file too");
  explain.add_option("--rows", arguments->rows, "Longest list")
      .show_default()
      .between(1, 100000);
  explain.add_option("--device", arguments->device, "Only this device, by the printed number")
      .not_negative();
  explain.add_flag("--no-replay", arguments->no_replay,
                   "Do not replay with other settings and allocators");
  return {&explain, [arguments] { return run_explain(*arguments); }};
}

}  // namespace tenon::command
