// tenon vectors: runs operators against recorded results.
#include <fmt/format.h>

#include <memory>

#include "arguments.h"
#include "commands.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/device/device.h"
#include "tenon/tensor/fallback.h"
#include "training_commands.h"
#include "training_memory.h"
#include "vector_case.h"

namespace tenon::command {
namespace {

struct Options {
  std::string directory;
  std::string device = "cpu";
  int threads = 0;
  bool gradients = false;
  bool verbose = false;
};

VectorOutcome run(const VectorCase& test, bool gradients) {
  try {
    if (!gradients) return compare_with_expected(test, run_vector_case(test));
    std::vector<Tensor> results;
    const std::vector<Tensor> found = run_vector_case_backward(test, results);
    VectorOutcome outcome = compare_with_expected(test, results);
    if (!outcome.passed) return outcome;
    return compare_gradients(test, found);
  } catch (const std::exception& error) {
    VectorOutcome outcome;
    outcome.reason = error.what();
    return outcome;
  }
}

// Of all operators, which the host computed for a device.
std::uint64_t fallback_calls() {
  std::uint64_t calls = 0;
  for (const HostFallback& each : fallbacks()) calls += each.calls;
  return calls;
}

std::string host_help(std::uint64_t cases) {
  const std::string calls = to_string(fallbacks());
  return fmt::format("with the host's help: {} of them{}{}\n", cases,
                     calls.empty() ? "" : "; its calls: ", calls);
}

int run_vectors(const Options& options) {
  Device device = read_option("--device", [&] { return parse_device(options.device); });
  if (device.type != DeviceType::kMeta) device = parse_model_device(options.device);
  if (options.threads > 0) set_num_threads(options.threads);
  int passed = 0;
  int failed = 0;
  int differentiated = 0;
  std::uint64_t helped = 0;  // cases
  for (const VectorCase& test : load_vector_cases(options.directory, device)) {
    for (const Tensor& gradient : test.input_gradients)
      if (gradient.defined()) {
        ++differentiated;
        break;
      }
    const std::uint64_t before = fallback_calls();
    const VectorOutcome outcome = run(test, options.gradients);
    helped += fallback_calls() != before ? 1 : 0;
    outcome.passed ? ++passed : ++failed;
    if (!outcome.passed || options.verbose)
      fmt::print("{} case {} {} {}: largest error {:.3g}{}{}\n", outcome.passed ? "pass" : "FAIL",
                 test.id, test.op, test.arguments.dump(), outcome.largest_error,
                 outcome.reason.empty() ? "" : "; ", outcome.reason);
  }
  fmt::print("{} passed, {} failed\n", passed, failed);
  if (options.gradients) fmt::print("{} of them with gradients\n", differentiated);
  if (device.type == DeviceType::kVulkan) fmt::print("{}", host_help(helped));
  return failed == 0 ? kSuccess : kFailure;
}

}  // namespace

Subcommand add_vectors(CommandLine& app) {
  CommandLine& command = app.add_subcommand(kVectors.name, kVectors.about);
  const auto options = std::make_shared<Options>();
  command.add_option("directory", options->directory, "with cases.json and vectors.safetensors")
      .required();
  command.add_option("--device", options->device,
                     "cpu, vulkan:0, or meta (compares only shapes and dtypes)");
  command.add_option("--threads", options->threads,
                     "number of threads; by default one for each core")
      .between(1, 4096);
  command.add_flag("--grad", options->gradients,
                   "also compare the gradients of the inputs, if the case has them");
  command.add_flag("--verbose", options->verbose, "also name the cases that pass");
  return {&command, [options] { return run_vectors(*options); }};
}

}  // namespace tenon::command
