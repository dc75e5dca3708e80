// tenon validate: checks plans with code that shares nothing with the planner.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "arguments.h"
#include "commands.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/plan_validator.h"
#include "tenon/lab/planning/instance.h"
#include "tenon/lab/planning/plan_file.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
PLAN is a file that "tenon plan -o" wrote, or a solved problem: a CSV file with the columns
id,lower,upper,size,offset, of any solver. AGAINST is its trace or its problem. A solved problem can
be checked without AGAINST; then validate cannot check that it solves the right problem.

A plan is valid if every allocation of the trace has a slot that is large enough, and no two live
blocks overlap. A packing is valid if all buffers end within --capacity (if given) and no two live
buffers overlap.

Examples:
  tenon validate run.plan run.csv.zst
  tenon validate solution.csv problem.csv --capacity 1048576

Exit status: 0 valid, 1 not valid, 2 for bad usage or a file that cannot be read.)";

constexpr int kNotValid = 1;

struct ValidateArguments {
  std::string plan;
  std::string against;
  std::string capacity;
  std::int64_t device = kAnyDevice;
  bool json = false;
};

struct Verdict {
  std::string error;  // empty: valid
  std::uint64_t bytes = 0;
};

// What differs between a solution and the problem that it claims to solve.
std::string find_difference(const Instance& solution, const Instance& problem) {
  if (solution.buffers.size() != problem.buffers.size())
    return fmt::format("{} buffers where the problem has {}", solution.buffers.size(),
                       problem.buffers.size());
  std::map<std::string_view, const InstanceBuffer*> wanted;
  for (const InstanceBuffer& buffer : problem.buffers) wanted[buffer.id] = &buffer;
  for (const InstanceBuffer& buffer : solution.buffers) {
    const auto found = wanted.find(buffer.id);
    if (found == wanted.end()) return fmt::format("the problem has no buffer \"{}\"", buffer.id);
    const InstanceBuffer& other = *found->second;
    if (buffer.lower != other.lower || buffer.upper != other.upper || buffer.size != other.size)
      return fmt::format("buffer \"{}\" has {} bytes in [{}, {}), in the problem {} in [{}, {})",
                         buffer.id, buffer.size, buffer.lower, buffer.upper, other.size,
                         other.lower, other.upper);
  }
  return {};
}

Verdict check_solution(const ValidateArguments& arguments, const FileBytes& bytes) {
  const Instance solution = parse_instance(bytes.view(), arguments.plan);
  if (!solution.solved)
    throw InvalidArgument(
        fmt::format("{}: a problem without the column offset has nothing to check",
                    arguments.plan));
  Verdict verdict;
  std::vector<PlacedBuffer> placed;
  for (const InstanceBuffer& b : solution.buffers) {
    placed.push_back({b.lower, b.upper, b.size, b.offset});
    verdict.bytes = std::max(verdict.bytes, b.offset + b.size);
  }
  if (!arguments.against.empty()) {
    const FileBytes other(arguments.against);
    verdict.error = find_difference(solution, parse_instance(other.view(), arguments.against));
    if (!verdict.error.empty()) return verdict;
  }
  const std::uint64_t capacity_bytes = arguments.capacity.empty()
                                           ? verdict.bytes
                                           : parse_problem_size("--capacity", arguments.capacity);
  verdict.error = find_packing_error(placed, capacity_bytes);
  return verdict;
}

Verdict check_plan(const ValidateArguments& arguments, const FileBytes& bytes) {
  const Plan plan = parse_plan(bytes.view(), arguments.plan);
  if (arguments.against.empty())
    throw InvalidArgument("a plan is checked against its trace: tenon validate PLAN TRACE");
  const std::vector<Trace> traces = load_traces(arguments.against);
  const Trace& trace = trace_of_device(traces, arguments.device, arguments.against);
  Verdict verdict{find_plan_error(plan, trace), plan.total_bytes()};
  if (verdict.error.empty() && !arguments.capacity.empty())
    if (const std::uint64_t capacity_bytes = parse_size("--capacity", arguments.capacity);
        verdict.bytes > capacity_bytes)
      verdict.error = fmt::format("the plan needs {} bytes, the capacity is {}", verdict.bytes,
                                  capacity_bytes);
  return verdict;
}

int run_validate(const ValidateArguments& arguments) {
  const FileBytes bytes(arguments.plan);
  const Verdict verdict = looks_like_plan(bytes.view()) ? check_plan(arguments, bytes)
                                                        : check_solution(arguments, bytes);
  const bool valid = verdict.error.empty();
  if (arguments.json) {
    const nlohmann::ordered_json out = {
        {"valid", valid}, {"peak_bytes", verdict.bytes}, {"error", verdict.error}};
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (valid) {
    fmt::print("valid: {} ({} bytes)\n", format_byte_size(verdict.bytes), verdict.bytes);
  } else {
    fmt::print("not valid: {}\n", verdict.error);
  }
  return valid ? kSuccess : kNotValid;
}

}  // namespace

Subcommand add_validate(CommandLine& app) {
  const auto arguments = std::make_shared<ValidateArguments>();
  CommandLine& validate =
      app.add_subcommand("validate", "Check a plan against its trace or problem");
  validate.footer(kHelp);
  validate.add_option("PLAN", arguments->plan, "A plan, or a solved problem").required();
  validate.add_option("AGAINST", arguments->against, "The trace or problem of the plan");
  validate.add_option("--capacity", arguments->capacity, "The limit of the packing");
  validate.add_option("--device", arguments->device,
                      "Only this device of a snapshot, by the number that tenon explain prints")
      .not_negative();
  validate.add_flag("--json", arguments->json, "Print JSON");
  return {&validate, [arguments] { return run_validate(*arguments); }};
}

}  // namespace tenon::command
