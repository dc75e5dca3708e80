#include "tenon/lab/fleet/file_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <tuple>

#include "tenon/base/error.h"
#include "tenon/base/printable.h"
#include "tenon/base/version.h"
#include "tenon/lab/advice/conf_choice.h"
#include "tenon/lab/advice/recorded_programs.h"
#include "tenon/lab/advice/recorded_settings.h"
#include "tenon/lab/advice/trials.h"
#include "tenon/lab/explain/explain.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"

namespace tenon {
namespace {

constexpr std::size_t kMostSites = 12;
// Raised when the answer to the same question changes.
constexpr int kAnswerFormat = 4;

const DeviceExplanation& fullest(const Explanation& explanation) {
  return *std::max_element(explanation.devices.begin(), explanation.devices.end(),
                           [](const DeviceExplanation& a, const DeviceExplanation& b) {
                             return std::tie(a.has_history, a.live_peak.bytes) <
                                    std::tie(b.has_history, b.live_peak.bytes);
                           });
}

std::map<std::string, std::uint64_t> losses_of(const DeviceExplanation& device) {
  if (device.memory.empty()) return {};
  const auto at_peak =
      std::find_if(device.memory.begin(), device.memory.end(),
                   [](const MemoryAt& memory) { return memory.moment == "reserved peak"; });
  const Fragmentation& found =
      (at_peak != device.memory.end() ? *at_peak : device.memory.back()).fragmentation;
  std::map<std::string, std::uint64_t> losses = {
      {"rounding up of requests", found.rounding_bytes},
      {"rests too small to split off", found.unsplit_bytes},
      {"holes left by splits", found.hole_bytes},
      {"segments held by one block", found.held_bytes},
      {"segments wholly free (cached)", found.cached_bytes},
      {"stranded on other streams", found.stranded_bytes},
      {"in other pools", found.other_pools_bytes}};
  std::erase_if(losses, [](const auto& loss) { return loss.second == 0; });
  return losses;
}

void find_cause(const DeviceExplanation& device, FileAnswer& answer) {
  if (device.verdict.state == Verdict::State::kFragmented) {
    answer.cause = "fragmentation";
    for (const auto& [name, bytes] : answer.losses) answer.cause_bytes += bytes;
  } else if (device.verdict.state == Verdict::State::kLimited) {
    answer.cause = "a limit on memory";
  } else if (matters(device.growth, device.live_peak.bytes)) {
    answer.cause = "memory that grows with every iteration";
    for (const GrowingSite& site : device.growth.suspects)
      answer.cause_bytes += site.grown_bytes();
  } else if (!device.at_peak.by_category.empty()) {
    answer.cause = one_line(device.at_peak.by_category.front().name);
    answer.cause_bytes = device.at_peak.by_category.front().bytes;
  }
}

void explain_into(const Snapshot& snapshot, const std::string& path, FileAnswer& answer) {
  const Explanation explanation = explain(snapshot, path);
  if (explanation.devices.empty()) throw InvalidArgument(path + ": it holds no recorded events");
  const DeviceExplanation& device = fullest(explanation);
  answer.devices = explanation.devices.size();
  for (const DeviceExplanation& each : explanation.devices) answer.events += each.events;
  answer.live_peak_bytes = device.live_peak.bytes;
  if (device.reserved_known) answer.reserved_peak_bytes = device.reserved_peak_bytes;
  answer.state = verdict_state_name(device.verdict.state);
  if (!device.verdict.sentences.empty())
    answer.verdict = one_line(device.verdict.sentences.front());
  answer.contradiction = device.verdict.contradiction;
  for (const CategoryGroup& group : device.at_peak.by_category)
    answer.categories[one_line(group.name)] += group.bytes;
  const auto& sites = device.at_peak.by_site;
  for (std::size_t i = 0; i < std::min(sites.size(), kMostSites); ++i)
    answer.sites[one_line(sites[i].name)] += sites[i].bytes;
  answer.losses = losses_of(device);
  find_cause(device, answer);
  if (!device.verdict.changes.empty()) {
    answer.change = one_line(device.verdict.changes.front().what);
    answer.change_saves_bytes = device.verdict.changes.front().saves_bytes;
  }
}

// Nothing where a request is refused.
std::optional<std::uint64_t> reserved_sum(const SettingsFigures& figures) {
  std::uint64_t sum = 0;
  for (const AdviceFigures& program : figures.programs) {
    if (program.reserved_peak_bytes == AdviceFigures::kNever) return std::nullopt;
    sum += program.reserved_peak_bytes;
  }
  return sum;
}

void compare_settings(const RecordedPrograms& recorded, const AdviceOptions& options,
                      const FileQuestion& question, FileAnswer& answer) {
  const std::vector<std::string> settings = question.settings();
  std::vector<std::string> tried;
  for (const std::string& conf : settings)
    if (!options.on_windows || conf.find("expandable") == conf.npos) tried.push_back(conf);
  Trials trials(recorded.programs, options);
  trials.find_reserved(
      tried, std::vector<std::uint64_t>(recorded.programs.size(), AdviceFigures::kNever - 1));
  for (const std::string& conf : settings)
    answer.reserved_bytes.push_back(
        std::find(tried.begin(), tried.end(), conf) == tried.end()
            ? std::nullopt
            : reserved_sum(trials.figures(conf)));
}

void advise_into(Snapshot& snapshot, const std::string& path, const FileQuestion& question,
                 FileAnswer& answer) {
  RecordedPrograms recorded;
  if (question.torch) replay_as(*question.torch, snapshot);
  add_programs(snapshot, path, std::nullopt, recorded);
  if (recorded.programs.empty()) return;
  AdviceOptions options;
  options.threads = 1;
  options.effort = question.effort;
  complete_options(options, recorded, recorded.programs.size());
  if (question.torch) options.torch = *question.torch;
  const Advice advice = advise(recorded.programs, options);
  const auto before = reserved_sum(advice.recorded), best = reserved_sum(advice.best);
  if (!before || !best) return;
  answer.replayed = true;
  answer.recorded_conf = one_line(advice.recorded.conf);
  answer.recorded_reserved_bytes = *before;
  answer.best_conf = one_line(advice.best.conf);
  answer.best_reserved_bytes = *best;
  answer.best_differs = advice.outcome == AdviceOutcome::kSet;
  compare_settings(recorded, options, question, answer);
}

}  // namespace

bool FileAnswer::has_history() const {
  return state != verdict_state_name(Verdict::State::kNoHistory);
}

std::vector<std::string> FileQuestion::settings() const {
  std::vector<std::string> confs;
  for (const ConfChoice& choice : coarse_choices(torch.value_or(kAssumedTorch)))
    confs.push_back(choice.text());
  return confs;
}

std::string FileQuestion::text() const {
  return fmt::format("tenon {}, answer {}, effort {}, torch {}", TENON_VERSION, kAnswerFormat,
                     effort, torch ? torch->text() : "as recorded");
}

FileAnswer answer_file(const std::string& path, const FileQuestion& question) {
  FileAnswer answer;
  try {
    Snapshot snapshot = load_snapshot(path);
    explain_into(snapshot, path, answer);
    try {
      advise_into(snapshot, path, question, answer);
    } catch (const InvalidArgument&) {
      // A recording that no policy can follow has no advice; the rest stands.
    }
  } catch (const FileTooLarge&) {
    throw std::bad_alloc();
  } catch (const FileUnreadable&) {
    throw;
  } catch (const ParseError& error) {
    return no_answer(one_line(error.what()));
  } catch (const InvalidArgument& error) {
    return no_answer(one_line(error.what()));
  }
  return answer;
}

}  // namespace tenon
