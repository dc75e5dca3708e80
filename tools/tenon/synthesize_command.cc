// tenon synthesize: a program of a model as a trace, from a seed.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "arguments.h"
#include "commands.h"
#include "progress.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/synthesis/synthesis.h"
#include "tenon/trace/write.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
PROGRAM is a number, the seed of all random choices, or a kind of program with an optional seed
after a colon: experts:7. The kinds: transformer, experts, long-context, lora, convolution,
detection, diffusion, recommender, graph, speech, generate, serve.

The program allocates the tensors of a model's layers, saves them for the backward pass and frees
them there, with gradients, workspaces and optimiser states. docs/synthesize.md describes the
programs and compares them with recorded ones. The same arguments give the same trace on any
machine.

Without -o no trace is written, and one line says what it contains.

Examples:
  tenon synthesize 1000 -o program.csv.zst
  tenon synthesize diffusion --live 8GiB --steps 20 -o diffusion.csv
  tenon synthesize serve:3 --streams 1 -o serve.json

Exit status: 0, 2 for bad usage, 1 when the file cannot be written.)";

struct SynthesizeArguments {
  std::string program;
  std::string output;
  std::string live;
  std::uint32_t steps = 0;
  std::uint32_t streams = 0;
  bool has_steps = false;
  bool has_streams = false;
};

std::uint64_t parse_seed(const std::string& text) {
  const bool digits = !text.empty() && text.size() <= 18 &&
                      std::all_of(text.begin(), text.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  if (!digits)
    throw InvalidArgument(fmt::format("PROGRAM: \"{}\" is no seed; take a number of up to 18 "
                                      "digits", text));
  return std::stoull(text);
}

SynthesisOptions options_of(const SynthesizeArguments& arguments) {
  SynthesisOptions options;
  const std::string& program = arguments.program;
  const std::size_t colon = program.find(':');
  if (!program.empty() && program[0] >= '0' && program[0] <= '9') {
    options.seed = parse_seed(program);
  } else {
    options.kind = program.substr(0, colon);
    if (colon != std::string::npos) options.seed = parse_seed(program.substr(colon + 1));
  }
  if (!arguments.live.empty()) options.live_bytes = parse_size("--live", arguments.live);
  if (arguments.has_steps) options.steps = arguments.steps;
  if (arguments.has_streams) options.streams = arguments.streams;
  return options;
}

int run_synthesize(const SynthesizeArguments& arguments) {
  if (!arguments.output.empty()) traces_format(arguments.output);  // before any work
  ProgressLine progress;
  SynthesisOptions options = options_of(arguments);
  options.on_step = [&](std::uint32_t done, std::uint32_t all) {
    progress.show([&] { return fmt::format("step {}/{} {}", done, all, progress_bar(done, all)); });
  };
  const Trace trace = synthesize(options);
  progress.clear();
  fmt::print("{}: {} events, {} streams, {} live at the peak, {:.2f} s\n", trace.name,
             trace.replayed_events(), trace.streams.size(),
             format_byte_size(trace.live_peak_bytes()),
             static_cast<double>(trace.duration_us()) / 1e6);
  if (arguments.output.empty()) return kSuccess;
  progress.show("writing " + arguments.output);
  write_traces({&trace, 1}, arguments.output);
  return kSuccess;
}

}  // namespace

Subcommand add_synthesize(CommandLine& app) {
  const auto arguments = std::make_shared<SynthesizeArguments>();
  CommandLine& line =
      app.add_subcommand("synthesize", "Write the trace of a model's program, from a seed");
  line.footer(kHelp);
  line.add_option("PROGRAM", arguments->program, "A seed, or a kind of program").required();
  line.add_option("-o,--output", arguments->output,
                  "The file to write; its ending chooses the format, as for tenon convert");
  line.add_option("--live", arguments->live, "Approximate live peak: 64MiB to 128GiB");
  line.add_option("--steps", arguments->steps, "Steps, or tokens").between(1, 100'000);
  line.add_option("--streams", arguments->streams, "Streams").between(1, 8);
  return {&line, [arguments, &line] {
            arguments->has_steps = line.was_given("--steps");
            arguments->has_streams = line.was_given("--streams");
            return run_synthesize(*arguments);
          }};
}

}  // namespace tenon::command
