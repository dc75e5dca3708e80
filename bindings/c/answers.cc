// Recordings in, answers out: the same text as the command's --json.
#include <fmt/format.h>

#include <chrono>
#include <string_view>

#include "objects.h"
#include "status.h"
#include "tenon/lab/advice/advice.h"
#include "tenon/lab/advice/advice_report.h"
#include "tenon/lab/advice/recorded_programs.h"
#include "tenon/lab/advice/recorded_settings.h"
#include "tenon/lab/explain/explain.h"
#include "tenon/lab/planning/plan_file.h"
#include "tenon/lab/planning/plan_report.h"
#include "tenon/lab/report.h"
#include "tenon/lab/survey.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"

namespace tenon::c {

TracesObject::TracesObject(const char* path)
    : Object(kKind), path_(path), snapshot_(load_snapshot(path_)) {}

const Trace& TracesObject::trace(std::size_t index) const {
  if (index >= snapshot_.traces.size())
    throw std::invalid_argument(fmt::format("index is {}: {} has recordings of {} devices", index,
                                            path_, snapshot_.traces.size()));
  return snapshot_.traces[index];
}

void TracesObject::follow(TorchVersion version) {
  replay_as(version, snapshot_);
  torch_ = version;
}

namespace {

const TracesObject& find_traces(tenon_traces traces) { return Handles::find<TracesObject>(traces); }

// "caching,plan" -> {"caching", "plan"}; null and "all": every policy.
std::vector<std::string> policy_names(const char* list) {
  std::vector<std::string> names;
  if (list == nullptr || std::string_view(list) == "all") {
    for (const Policy& policy : policies()) names.push_back(policy.name);
    return names;
  }
  std::string_view rest = list;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    names.push_back(find_policy(rest.substr(0, comma)).name);
    if (more) rest.remove_prefix(comma + 1);
  }
  return names;
}

// A number of an option, from 0 on.
int within(const char* name, int value, int most) {
  if (value < 0 || value > most)
    throw std::invalid_argument(fmt::format("{} is {}: it may be 0 to {}", name, value, most));
  return value;
}
constexpr int kMostPasses = 100'000;
constexpr int kMostThreads = 256;

std::string replay_json(const TracesObject& traces, const tenon_replay_options* options) {
  SurveyOptions survey_options;
  survey_options.passes = 0;
  survey_options.policies = policy_names(options == nullptr ? nullptr : options->policies);
  if (options != nullptr) {
    if (options->conf != nullptr) survey_options.conf = options->conf;
    survey_options.capacity_bytes = options->capacity_bytes;
    survey_options.lag_ns = options->lag_ns;
    survey_options.find_capacity = options->find_capacity != 0;
    survey_options.passes = within("options.passes", options->passes, kMostPasses);
    survey_options.threads = within("options.threads", options->threads, kMostThreads);
  }
  std::vector<Workload> workloads;
  for (const Trace& trace : traces.snapshot().traces) workloads.emplace_back(trace);
  const std::vector<SurveyResult> results = survey(workloads, survey_options);
  for (const SurveyResult& result : results)
    if (!result.error.empty())
      throw InternalError(fmt::format("{} over {}: {}", result.trace, result.policy, result.error));
  return report_json(results);
}

std::string advise_json(const TracesObject& traces, std::size_t index,
                        std::uint64_t capacity_bytes, double effort, int threads) {
  const Trace& trace = traces.trace(index);
  constexpr double kLeastEffort = 0.01;
  constexpr double kMostEffort = 100;
  if (!(effort >= kLeastEffort && effort <= kMostEffort))
    throw std::invalid_argument(
        fmt::format("effort is {}: it may be {} to {}", effort, kLeastEffort, kMostEffort));
  AdviceOptions options;
  options.capacity_bytes = capacity_bytes;
  options.effort = effort;
  options.threads = within("threads", threads, kMostThreads);
  RecordedPrograms recorded;
  add_programs(traces.snapshot(), traces.path(), trace.device, recorded);
  if (recorded.programs.empty() && !recorded.warnings.empty())
    throw InvalidArgument(recorded.warnings.front());
  complete_options(options, recorded, recorded.programs.size());
  if (traces.torch()) options.torch = *traces.torch();
  const auto start = std::chrono::steady_clock::now();
  const Advice advice = advise(recorded.programs, options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return advice_json(advice, seconds.count());
}

}  // namespace
}  // namespace tenon::c

using namespace tenon;
using namespace tenon::c;

tenon_status tenon_recording_start(const char* path, tenon_recording* out) {
  return guarded("tenon_recording_start", [&] {
    require(out, "out");
    *out = Handles::add(std::make_unique<RecordingObject>(&require(path, "path")));
  });
}

tenon_status tenon_recording_finish(tenon_recording recording) {
  return guarded("tenon_recording_finish",
                 [&] { Handles::take<RecordingObject>(recording)->finish(); });
}

tenon_status tenon_traces_load(const char* path, tenon_traces* out) {
  return guarded("tenon_traces_load", [&] {
    require(out, "out");
    *out = Handles::add(std::make_unique<TracesObject>(&require(path, "path")));
  });
}

tenon_status tenon_traces_destroy(tenon_traces traces) {
  return guarded("tenon_traces_destroy", [&] { Handles::take<TracesObject>(traces); });
}

tenon_status tenon_traces_count(tenon_traces traces, size_t* out) {
  return guarded("tenon_traces_count",
                 [&] { require(out, "out") = find_traces(traces).snapshot().traces.size(); });
}

tenon_status tenon_traces_follow_torch(tenon_traces traces, const char* version) {
  return guarded("tenon_traces_follow_torch", [&] {
    const TorchVersion parsed = parse_torch_version(&require(version, "version"));
    Handles::find<TracesObject>(traces).follow(parsed);
  });
}

tenon_status tenon_trace_summarize(tenon_traces traces, size_t index, tenon_trace_summary* out) {
  return guarded("tenon_trace_summarize", [&] {
    check_struct_bytes(require(out, "out").struct_bytes, sizeof(*out), "out");
    const Workload workload(find_traces(traces).trace(index));
    out->events = workload.ops().size();
    out->live_peak_bytes = workload.live_peak_bytes();
    out->duration_us = workload.duration_us();
  });
}

tenon_status tenon_explain(tenon_traces traces, char** json) {
  return guarded("tenon_explain", [&] {
    require(json, "json");
    const TracesObject& object = find_traces(traces);
    *json = copy_text(explanation_json(explain(object.snapshot(), object.path())));
  });
}

tenon_status tenon_replay(tenon_traces traces, const tenon_replay_options* options, char** json) {
  return guarded("tenon_replay", [&] {
    require(json, "json");
    if (options != nullptr)
      check_struct_bytes(options->struct_bytes, sizeof(*options), "options");
    *json = copy_text(replay_json(find_traces(traces), options));
  });
}

tenon_status tenon_advise(tenon_traces traces, size_t index, uint64_t capacity_bytes,
                          double effort, int threads, char** json) {
  return guarded("tenon_advise", [&] {
    require(json, "json");
    *json = copy_text(
        advise_json(find_traces(traces), index, capacity_bytes, effort, threads));
  });
}

tenon_status tenon_plan(tenon_traces traces, size_t index, const char* plan_file, char** json) {
  return guarded("tenon_plan", [&] {
    require(json, "json");
    const PlannedTrace planned = plan_trace(find_traces(traces).trace(index), {});
    if (plan_file != nullptr) write_file(plan_file, format_plan(planned.plan));
    *json = copy_text(plan_json(planned.report));
  });
}
