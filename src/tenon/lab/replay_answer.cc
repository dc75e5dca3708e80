#include "tenon/lab/replay_answer.h"

#include <fmt/format.h>

#include "tenon/lab/advice/torch_settings.h"
#include "tenon/lab/report.h"

namespace tenon {
namespace {

// What a user of PyTorch can run: the settings given, its defaults, what each recording ran with
// where that differs, and expandable segments.
std::vector<SurveyRow> torch_rows(const std::vector<RecordedSettings>& settings,
                                  const std::string& conf) {
  constexpr const char* kExpandable = "expandable_segments:True";
  std::vector<SurveyRow> rows;
  const auto add = [&](const char* name, const std::string& of_all) {
    rows.push_back({name, "caching", std::vector<std::string>(settings.size(), of_all)});
  };
  if (!conf.empty()) add("--conf", conf);
  add("PyTorch's defaults", "");
  SurveyRow recorded{"as recorded", "caching", {}};
  bool differs = false;
  for (const RecordedSettings& one : settings) {
    recorded.confs.push_back(one.conf);
    differs |= !one.conf.empty() && one.conf != kExpandable;
  }
  if (differs) rows.push_back(recorded);
  add(kExpandable, kExpandable);
  return rows;
}

// A line for each recording that says what it ran with.
std::string recorded_note(std::span<const Workload> workloads,
                          const std::vector<RecordedSettings>& settings) {
  std::string text;
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    if (!settings[i].warning.empty()) text += settings[i].warning + "\n";
    if (settings[i].known)
      text += fmt::format("{} was recorded with {}\n", workloads[i].name(),
                          settings[i].conf.empty() ? "PyTorch's defaults" : settings[i].conf);
  }
  return text;
}

}  // namespace

void choose_rows(SurveyOptions& options, const std::vector<RecordedSettings>& settings) {
  if (!options.policies.empty()) return;
  if (options.plan != nullptr)
    options.policies = {"plan"};
  else if (options.page_bytes != 0)
    options.policies = {"stitched"};
  else
    options.rows = torch_rows(settings, options.conf);
}

std::string replay_text(const std::vector<SurveyResult>& results, const SurveyOptions& options,
                        std::span<const Workload> workloads,
                        const std::vector<RecordedSettings>& settings) {
  return report_table(results) + (options.rows.empty() ? "" : recorded_note(workloads, settings)) +
         fidelity_note(options.conf);
}

}  // namespace tenon
