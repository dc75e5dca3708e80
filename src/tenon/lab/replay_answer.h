// What `tenon replay` shows, for the command, Python and C: rows by default, and the text.
// Thread-safe: functions of their arguments. The only error is lack of memory (std::bad_alloc).
// O(results and workloads).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tenon/lab/advice/recorded_settings.h"
#include "tenon/lab/survey.h"

namespace tenon {

// Where no policy is named: that of the plan or of the page size, if one is given, else the
// settings that a user of PyTorch can run. `settings` has each workload's own.
void choose_rows(SurveyOptions& options, const std::vector<RecordedSettings>& settings);

// The table, and what it does not show: settings that were recorded, or are replayed inexactly.
std::string replay_text(const std::vector<SurveyResult>& results, const SurveyOptions& options,
                        std::span<const Workload> workloads,
                        const std::vector<RecordedSettings>& settings);

}  // namespace tenon
