// tenon_advise: the settings that recorded programs should have run with.
#include <fmt/format.h>

#include <chrono>

#include "files.h"
#include "status.h"
#include "structures.h"
#include "tenon/base/error.h"
#include "tenon/lab/advice/advice.h"
#include "tenon/lab/advice/advice_report.h"
#include "tenon/lab/advice/recorded_programs.h"
#include "tenon/lab/advice/recorded_settings.h"

namespace tenon::c {
namespace {

double checked_effort(const char* name, double effort) {
  constexpr double kLeastEffort = 0.01;
  constexpr double kMostEffort = 100;
  if (!(effort >= kLeastEffort && effort <= kMostEffort))
    throw std::invalid_argument(
        fmt::format("{} is {}: it may be {} to {}", name, effort, kLeastEffort, kMostEffort));
  return effort;
}

std::string advise_json(const RecordedPrograms& recorded, AdviceOptions options,
                        const std::optional<TorchVersion>& torch, const char* card,
                        const std::uint64_t* reserve_bytes) {
  if (recorded.programs.empty() && !recorded.warnings.empty())
    throw InvalidArgument(recorded.warnings.front());
  complete_options(options, recorded, recorded.programs.size(), card == nullptr ? "" : card);
  if (reserve_bytes != nullptr) options.outside = {*reserve_bytes, 0, "as given"};
  if (torch) options.torch = *torch;
  const auto start = std::chrono::steady_clock::now();
  const Advice advice = advise(recorded.programs, options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return advice_json(advice, seconds.count());
}

}  // namespace
}  // namespace tenon::c

using namespace tenon;
using namespace tenon::c;

tenon_status tenon_advise(tenon_traces traces, size_t index, uint64_t capacity_bytes,
                          double effort, int threads, char** json) {
  return guarded("tenon_advise", [&] {
    require(json, "json");
    const TracesObject& file = find_traces(traces);
    AdviceOptions options;
    options.capacity_bytes = capacity_bytes;
    options.effort = checked_effort("effort", effort);
    options.threads = within("threads", threads, kMostThreads);
    RecordedPrograms recorded;
    add_programs(file.snapshot(), file.path(), file.trace(index).device, recorded);
    *json = copy_text(advise_json(recorded, options, file.torch(), nullptr, nullptr));
  });
}

tenon_status tenon_advise_files(const tenon_traces* files, size_t count,
                                const tenon_advise_options* options, char** json) {
  return guarded("tenon_advise_files", [&] {
    require(json, "json");
    const tenon_advise_options given = complete_or_zero(options, "options");
    AdviceOptions how;
    how.capacity_bytes = given.capacity_bytes;
    if (options != nullptr) how.lag_ns = given.lag_ns;
    how.effort = given.effort == 0 ? 1 : checked_effort("options.effort", given.effort);
    how.threads = within("options.threads", given.threads, kMostThreads);
    RecordedPrograms recorded;
    std::optional<TorchVersion> torch;
    for (const TracesObject* file : find_files(files, count)) {
      add_programs(file->snapshot(), file->path(), std::nullopt, recorded);
      if (!torch) torch = file->torch();
    }
    *json = copy_text(
        advise_json(recorded, how, torch, given.card, given.reserve_for_context_bytes));
  });
}
