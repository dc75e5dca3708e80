// tenon_replay: a recording over policies.
#include <fmt/format.h>

#include <string_view>

#include "files.h"
#include "status.h"
#include "structures.h"
#include "tenon/base/error.h"
#include "tenon/lab/failed_requests.h"
#include "tenon/lab/planning/plan_file.h"
#include "tenon/lab/replay_answer.h"
#include "tenon/lab/report.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/file_bytes.h"

namespace tenon::c {
namespace {

constexpr int kMostPasses = 100'000;

// "caching,plan" -> {"caching", "plan"}; "all": every policy.
std::vector<std::string> policy_names(std::string_view list) {
  std::vector<std::string> names;
  if (list == "all") {
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

// None where the rows follow from other options (choose_rows).
std::vector<std::string> chosen_policies(const tenon_replay_options& options) {
  if (options.policies != nullptr) {
    if (options.pytorch_settings != 0)
      throw std::invalid_argument(
          "options.pytorch_settings replays no policies: set options.policies to null");
    return policy_names(options.policies);
  }
  const bool follow =
      options.plan_file != nullptr || options.page_bytes != 0 || options.pytorch_settings != 0;
  return follow ? std::vector<std::string>() : policy_names("all");
}

std::string replay_json(const TracesObject& traces, const tenon_replay_options& options) {
  SurveyOptions survey_options;
  survey_options.policies = chosen_policies(options);
  if (options.conf != nullptr) survey_options.conf = options.conf;
  survey_options.page_bytes = options.page_bytes;
  survey_options.capacity_bytes = options.capacity_bytes;
  survey_options.lag_ns = options.lag_ns;
  survey_options.find_capacity = options.find_capacity != 0;
  survey_options.passes = within("options.passes", options.passes, kMostPasses);
  survey_options.threads = within("options.threads", options.threads, kMostThreads);
  Plan plan;
  if (options.plan_file != nullptr) {
    plan = parse_plan(FileBytes(options.plan_file).view(), options.plan_file);
    survey_options.plan = &plan;
  }
  std::vector<Workload> workloads;
  for (const Trace& trace : traces.snapshot().traces) {
    if (options.serve_failed != 0)
      workloads.emplace_back(with_failed_requests(trace));
    else
      workloads.emplace_back(trace);
  }
  choose_rows(survey_options,
              std::vector(workloads.size(), recorded_settings(traces.snapshot())));
  const std::vector<SurveyResult> results = survey(workloads, survey_options);
  for (const SurveyResult& result : results)
    if (!result.error.empty())
      throw InternalError(fmt::format("{} over {}: {}", result.trace, result.policy, result.error));
  return report_json(results);
}

}  // namespace
}  // namespace tenon::c

using namespace tenon;
using namespace tenon::c;

tenon_status tenon_replay(tenon_traces traces, const tenon_replay_options* options, char** json) {
  return guarded("tenon_replay", [&] {
    require(json, "json");
    tenon_replay_options whole = complete_or_zero(options, "options");
    if (options == nullptr) whole.lag_ns = SurveyOptions().lag_ns;
    *json = copy_text(replay_json(find_traces(traces), whole));
  });
}
