// tenon convert: recordings from one format to another.
#include <fmt/format.h>

#include <memory>

#include "arguments.h"
#include "commands.h"
#include "load_file.h"
#include "process.h"
#include "tenon/trace/write.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
Reads the formats of tenon replay (PyTorch's snapshots and profiles, RMM's logs, traces). The ending
of OUTPUT chooses the format; a further .zst compresses:
  .csv      a trace: columns time_us,op,id,size,stream, and thread, device, tag where known
  .pickle   a snapshot in PyTorch's format, which pytorch.org/memory_viz opens; a recording without
            addresses gets addresses by best fit
  .json     trace events for ui.perfetto.dev and chrome://tracing: live and reserved bytes, phases,
            failures, and the larger blocks with their call sites
All devices are written. CSV has no call stacks, segments or failures.

Examples:
  tenon convert snapshot.pickle trace.csv.zst
  tenon convert rmm_log.csv rmm.pickle
  tenon convert snapshot.pickle timeline.json

Exit status: 0, 2 for bad usage or a file that cannot be read, 1 when OUTPUT cannot be written.)";

struct ConvertArguments {
  std::string input;
  std::string output;
};

int run_convert(const ConvertArguments& arguments) {
  traces_format(arguments.output);  // before any work
  require_other_file(arguments.output, {arguments.input});
  Snapshot snapshot;
  {
    const ProgressLine progress;
    snapshot = load_with_progress(arguments.input, progress);
    progress.show(fmt::format("writing {}", arguments.output));
    write_traces(snapshot.traces, snapshot.segments, arguments.output);
  }
  for (const Trace& trace : snapshot.traces)
    for (const std::string& warning : trace.warnings)
      tell(fmt::format("warning: {}", warning));
  return kSuccess;
}

}  // namespace

Subcommand add_convert(CommandLine& app) {
  const auto arguments = std::make_shared<ConvertArguments>();
  CommandLine& convert =
      app.add_subcommand("convert",
                         "Write a recording in another format, chosen by the file's ending");
  convert.footer(kHelp);
  convert.add_option("INPUT", arguments->input, "A snapshot, log or trace").required();
  convert.add_option("OUTPUT", arguments->output, "The file to write").required();
  return {&convert, [arguments] { return run_convert(*arguments); }};
}

}  // namespace tenon::command
