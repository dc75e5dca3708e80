#include "tenon/lab/planning/plan_report.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/plan_validator.h"
#include "tenon/lab/text_table.h"
#include "tenon/lab/workload.h"

namespace tenon {
namespace {

std::string program_text(const PlannedProgram& program) {
  std::string text;
  if (program.streams_share)
    text += fmt::format(
        "  streams      {} share one range: each waits for the others where it takes over what "
        "they left\n",
        program.streams);
  if (program.iterations)
    text += fmt::format(
        "  iterations   {:.1f} found, of {} allocations each, after the first {}{}\n",
        program.iterations->count, grouped(program.iterations->period),
        grouped(program.iterations->begin),
        program.loop ? ": one is planned and served again and again" : "");
  return text;
}

}  // namespace

PlannedTrace plan_trace(const Trace& trace, const PlanOptions& options) {
  const Workload workload(trace);
  const auto start = std::chrono::steady_clock::now();
  PlanResult result = plan_program(workload.ops(), options);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const std::string error = find_plan_error(result.plan, trace);
  if (!error.empty()) throw InternalError("the plan made is not valid: " + error);

  PlannedTrace planned;
  PlanReport& report = planned.report;
  report.name = trace.name;
  report.peak_bytes = result.plan.total_bytes();
  report.lower_bound_bytes = result.live_peak_bytes;
  report.seconds = elapsed.count();
  PlannedProgram& program = report.program.emplace();
  program.events = workload.ops().size();
  program.streams = result.plan.streams().size();
  program.streams_share = result.plan.shared();
  program.iterations = result.iterations;
  for (const auto& [id, stream] : result.plan.streams()) {
    report.requests += stream.slots.size();
    program.loop = program.loop || stream.loop_begin != 0;
  }
  planned.plan = std::move(result.plan);
  return planned;
}

std::string plan_json(const PlanReport& report) {
  nlohmann::ordered_json out;
  out["name"] = report.name;
  out["solved"] = report.solved();
  out["peak_bytes"] = report.peak_bytes;
  out["lower_bound_bytes"] = report.lower_bound_bytes;
  out["seconds"] = report.seconds;
  out["requests"] = report.requests;
  if (report.capacity_bytes != 0) {
    out["capacity_bytes"] = report.capacity_bytes;
    out["proved_impossible"] =
        report.impossible || report.capacity_bytes < report.lower_bound_bytes;
  }
  if (report.program) {
    out["events"] = report.program->events;
    out["streams"] = report.program->streams;
    out["streams_share"] = report.program->streams_share;
    out["loop"] = report.program->loop;
    out["iterations"] = nullptr;
    if (const std::optional<Iterations>& found = report.program->iterations)
      out["iterations"] = {{"count", found->count},
                           {"allocations_each", found->period},
                           {"first_allocation", found->begin}};
  }
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string plan_text(const PlanReport& report) {
  const double ratio = report.lower_bound_bytes == 0
                           ? 1
                           : static_cast<double>(report.peak_bytes) /
                                 static_cast<double>(report.lower_bound_bytes);
  std::string text = fmt::format("{}: {} allocations planned in {:.2f} s\n", report.name,
                                 grouped(report.requests), report.seconds);
  text += fmt::format("  peak         {} ({} bytes)\n", format_byte_size(report.peak_bytes),
                      grouped(report.peak_bytes));
  text += fmt::format("  lower bound  {} ({} bytes): the plan needs {:.4f} x\n",
                      format_byte_size(report.lower_bound_bytes),
                      grouped(report.lower_bound_bytes), ratio);
  const bool impossible = report.impossible || report.capacity_bytes < report.lower_bound_bytes;
  if (report.capacity_bytes != 0)
    text += fmt::format("  capacity     {}: {}\n", format_byte_size(report.capacity_bytes),
                        report.solved() ? "it fits"
                        : impossible    ? "nothing fits, that is proved"
                                        : "no packing was found within it");
  if (report.program) text += program_text(*report.program);
  return text;
}

}  // namespace tenon
