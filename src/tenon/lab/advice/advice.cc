#include "tenon/lab/advice/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/advice/conf_choice.h"
#include "tenon/lab/advice/trials.h"

namespace tenon {
namespace {

// Events replayed in all at effort 1, the least and the most replays of all programs that follow.
constexpr double kEventBudget = 60e6;
constexpr double kLeastReplays = 24;
constexpr double kMostReplays = 1200;
// Of the budget: how much the coarse list may take.
constexpr double kCoarseShare = 0.4;
// Settings whose smallest devices are searched at a time.
constexpr std::size_t kFinalists = 6;
// A difference below both is not worth a setting.
constexpr double kWorthShare = 0.01;
constexpr std::uint64_t kWorthBytes = 16 * kMiB;
// What each further setting must save, as a share of the live peak.
constexpr double kPriceOfASetting = 0.01;

std::uint64_t largest(const SettingsFigures& figures, std::uint64_t AdviceFigures::* figure) {
  std::uint64_t most = 0;
  for (const AdviceFigures& program : figures.programs) most = std::max(most, program.*figure);
  return most;
}

bool is_worth_it(std::uint64_t with, std::uint64_t without) {
  if (with >= without) return false;
  if (without == AdviceFigures::kNever) return true;
  const std::uint64_t saved = without - with;
  return saved >= kWorthBytes &&
         static_cast<double>(saved) >= kWorthShare * static_cast<double>(without);
}

class Adviser {
 public:
  Adviser(const std::vector<AdvisedProgram>& programs, const AdviceOptions& options,
          const AdviceProgress& progress)
      : programs_(programs), options_(options), progress_(progress), trials_(programs, options) {
    advice_.torch = options.torch;
    advice_.on_windows = options.on_windows;
    for (const AdvisedProgram& program : programs) {
      const Workload& load = *program.workload;
      advice_.programs.push_back({load.name(), program.file, load.ops().size(),
                                  load.live_peak_bytes(), program.recorded_conf,
                                  program.recorded_known, program.recorded_peak_bytes,
                                  program.failed, program.room, program.contradiction,
                                  program.times_full,
                                  static_cast<std::size_t>(std::count_if(
                                      load.ops().begin(), load.ops().end(),
                                      [](const ReplayOp& op) { return op.gives_back; }))});
      advice_.live_peak_bytes = std::max(advice_.live_peak_bytes, load.live_peak_bytes());
    }
    double events = 1;
    for (const AdvisedProgram& program : programs)
      events += static_cast<double>(program.workload->ops().size());
    budget_ = events * options.effort * std::clamp(kEventBudget / events, kLeastReplays,
                                                   kMostReplays);
  }

  Advice run() {
    advice_.capacity_bytes = options_.capacity_bytes;
    say("the recording's settings, PyTorch's defaults, expandable segments");
    measure_references();
    decide();
    if (advice_.outcome == AdviceOutcome::kNothingNeeded && advice_.failure_of_limit())
      advice_.outcome = AdviceOutcome::kRaiseLimit;
    advice_.settings_tried = trials_.tried();
    return std::move(advice_);
  }

 private:
  void say(std::string_view step) const {
    if (progress_) progress_(step);
  }

  bool has_expandable() const {
    return !options_.on_windows && accepts(options_.torch, kExpandable);
  }

  void measure_references() {
    const std::vector<std::uint64_t> no_limits(programs_.size(), AdviceFigures::kNever - 1);
    std::vector<std::string> confs = {""};
    if (has_expandable()) confs.emplace_back(kExpandable);
    trials_.find_reserved(confs, no_limits);
    trials_.find_devices(confs);
    trials_.find_fits(confs);
    trials_.find_stalls(confs);
    advice_.defaults = trials_.figures("");
    if (has_expandable()) advice_.expandable = trials_.figures(kExpandable);
    const std::string& first = programs_.front().recorded_conf;
    const bool known =
        std::find(confs.begin(), confs.end(), first) != confs.end() &&
        std::all_of(programs_.begin(), programs_.end(),
                    [&](const AdvisedProgram& p) { return p.recorded_conf == first; });
    advice_.recorded = known ? trials_.figures(first) : trials_.measure_recorded();
    for (std::size_t i = 0; i < programs_.size(); ++i) {
      const std::uint64_t replayed = advice_.recorded.programs[i].reserved_peak_bytes;
      // What PyTorch held does not include a request that failed, nor what a full device denied it.
      const std::uint64_t held =
          programs_[i].failed || programs_[i].times_full > 0
              ? AdviceFigures::kNever
              : programs_[i].recorded_peak_bytes.value_or(AdviceFigures::kNever);
      limits_.push_back(std::min({replayed, held, AdviceFigures::kNever - 1}));
      if (failed_in(programs_[i], options_.capacity_bytes)) {
        bool& fits = advice_.recorded.programs[i].fits.emplace(
            advice_.recorded.programs[i].fits.value_or(false));
        advice_.failure_not_replayed |= fits;
        fits = false;
      }
    }
  }

  void decide() {
    advice_.best = advice_.recorded;
    const bool limited = options_.capacity_bytes != 0;
    if (limited && advice_.live_peak_bytes > options_.capacity_bytes) {
      advice_.outcome = AdviceOutcome::kHopeless;
      return;
    }
    if (limited && advice_.recorded.fits()) return;
    // Where nothing fits yet, a low peak without a limit is not what counts.
    if (limited) std::fill(limits_.begin(), limits_.end(), AdviceFigures::kNever - 1);
    search();
    choose();
  }

  // Whether the recording ran out of as much memory: what happened outweighs what a replay says.
  static bool failed_in(const AdvisedProgram& program, std::uint64_t capacity) {
    return program.failed && program.room && capacity != 0 && capacity <= program.room->bytes();
  }
  bool has_failed(const std::string& conf) const {
    return std::any_of(programs_.begin(), programs_.end(), [&](const AdvisedProgram& program) {
      return program.recorded_conf == conf && failed_in(program, options_.capacity_bytes);
    });
  }

  // Not worse for any program than what it ran with.
  bool is_admissible(const SettingsFigures& figures) const {
    for (std::size_t i = 0; i < programs_.size(); ++i) {
      const AdviceFigures& now = figures.programs[i];
      const AdviceFigures& before = advice_.recorded.programs[i];
      if (now.reserved_peak_bytes > limits_[i]) return false;
      if (failed_in(programs_[i], options_.capacity_bytes)) continue;  // nothing is worse than that
      if (now.min_capacity_bytes > before.min_capacity_bytes) return false;
    }
    return true;
  }

  // Lower is better: both figures of the program that needs most, in live peaks, and a price for
  // each setting, so that of equals the simplest is chosen.
  double cost(const ConfChoice& choice, bool with_devices) const {
    const SettingsFigures& figures = trials_.figures(choice.text());
    const auto in_live_peaks = [&](std::uint64_t bytes) {
      return static_cast<double>(bytes) /
             static_cast<double>(std::max<std::uint64_t>(1, advice_.live_peak_bytes));
    };
    const double keys = kPriceOfASetting * static_cast<double>(choice.keys());
    const double reserved = in_live_peaks(largest(figures, &AdviceFigures::reserved_peak_bytes));
    if (!with_devices) return reserved + keys;
    return reserved + keys + in_live_peaks(largest(figures, &AdviceFigures::min_capacity_bytes)) +
           (figures.fits() ? 0 : kDoesNotFit);
  }

  void search() {
    say("a coarse list of settings");
    const double start = trials_.events_replayed();
    const auto spent = [&] { return (trials_.events_replayed() - start) / budget_; };
    const std::vector<ConfChoice> list = coarse_choices(options_.torch);
    constexpr std::size_t kBatch = 4;
    for (std::size_t i = 0; i < list.size() && (i == 0 || spent() < kCoarseShare); i += kBatch)
      try_choices({list.begin() + static_cast<std::ptrdiff_t>(i),
                   list.begin() + static_cast<std::ptrdiff_t>(std::min(list.size(), i + kBatch))});
    if (options_.capacity_bytes != 0)  // a small device, whatever they reserve without a limit
      try_choices({{.max_split_mb = 21}, {.max_split_mb = 64}, {.max_split_mb = 128}});
    measure_finalists();
    say("the best of them, step by step");
    std::set<ConfChoice> left_behind;
    while (spent() < 1) {
      const auto from = best(/*with_devices=*/true, 1, left_behind);
      if (from.empty()) return;
      left_behind.insert(from.front());
      try_choices(neighbours_of(from.front(), options_.torch));
      measure_finalists();
    }
  }

  void try_choices(const std::vector<ConfChoice>& choices) {
    std::vector<std::string> confs;
    for (const ConfChoice& choice : choices) {
      if (choice.expandable_segments && !has_expandable()) continue;
      confs.push_back(choice.text());
      choices_.insert(choice);
    }
    trials_.find_reserved(confs, limits_);
  }

  void measure_finalists() {
    std::vector<std::string> confs;
    for (const ConfChoice& choice : best(/*with_devices=*/false, kFinalists, {}))
      confs.push_back(choice.text());
    trials_.find_devices(confs);
    trials_.find_fits(confs);
  }

  // The cheapest, of those whose figures are known as far as is asked.
  std::vector<ConfChoice> best(bool with_devices, std::size_t count,
                               const std::set<ConfChoice>& without) const {
    std::vector<std::pair<double, ConfChoice>> order;
    for (const ConfChoice& choice : choices_) {
      const std::string conf = choice.text();
      if (without.contains(choice) || !trials_.has_reserved(conf)) continue;
      if (with_devices && !trials_.has_devices(conf)) continue;
      order.emplace_back(cost(choice, with_devices), choice);
    }
    std::sort(order.begin(), order.end());
    std::vector<ConfChoice> found;
    for (std::size_t i = 0; i < std::min(count, order.size()); ++i)
      found.push_back(order[i].second);
    return found;
  }

  // Where a replay does not show the failure, it cannot tell which settings are best against it.
  bool choose_expandable() {
    if (!advice_.failure_not_replayed || !advice_.expandable || has_failed(kExpandable) ||
        !advice_.expandable->fits())
      return false;
    advice_.best = *advice_.expandable;
    advice_.outcome = AdviceOutcome::kSet;
    return true;
  }

  void choose() {
    if (choose_expandable()) return;
    const bool limited = options_.capacity_bytes != 0;
    for (const ConfChoice& choice : best(/*with_devices=*/true, choices_.size(), {})) {
      const SettingsFigures& figures = trials_.figures(choice.text());
      if (!is_admissible(figures) || has_failed(figures.conf)) continue;
      if (!limited && !saves(figures)) return;
      trials_.find_stalls({choice.text()});
      advice_.best = figures;
      advice_.outcome = !limited || figures.fits() ? AdviceOutcome::kSet
                                                   : AdviceOutcome::kNothingFits;
      return;
    }
    if (limited) advice_.outcome = AdviceOutcome::kNothingFits;
  }

  bool saves(const SettingsFigures& figures) const {
    for (const auto figure :
         {&AdviceFigures::reserved_peak_bytes, &AdviceFigures::min_capacity_bytes})
      if (is_worth_it(largest(figures, figure), largest(advice_.recorded, figure))) return true;
    return false;
  }

  static constexpr const char* kExpandable = "expandable_segments:True";
  static constexpr double kDoesNotFit = 1e6;

  const std::vector<AdvisedProgram>& programs_;
  const AdviceOptions& options_;
  const AdviceProgress& progress_;
  Trials trials_;
  Advice advice_;
  double budget_ = 0;
  std::vector<std::uint64_t> limits_;  // by program: reserved peaks above are not wanted
  std::set<ConfChoice> choices_;       // tried
};

// The least that PyTorch's allocator could have where a program failed on a full card; 0 where none
// says.
std::uint64_t room_of_failures(const std::vector<AdvisedProgram>& programs) {
  std::uint64_t least = AdviceFigures::kNever;
  for (const AdvisedProgram& program : programs)
    if (program.room && !program.room->limited) least = std::min(least, program.room->bytes());
  return least == AdviceFigures::kNever ? 0 : least;
}

}  // namespace

std::optional<RoomAtFailure> Advice::failure_of_limit() const {
  std::optional<RoomAtFailure> most;
  for (const ProgramFacts& program : programs)
    if (program.room && program.room->limited &&
        (!most || program.room->reserved_bytes > most->reserved_bytes))
      most = program.room;
  return most;
}

bool SettingsFigures::fits() const {
  return std::all_of(programs.begin(), programs.end(),
                     [](const AdviceFigures& figures) { return figures.fits.value_or(true); });
}

std::size_t SettingsFigures::worst() const {
  const auto at = std::max_element(programs.begin(), programs.end(),
                                   [](const AdviceFigures& a, const AdviceFigures& b) {
                                     return a.min_capacity_bytes < b.min_capacity_bytes;
                                   });
  return static_cast<std::size_t>(at - programs.begin());
}

Advice advise(const std::vector<AdvisedProgram>& programs, const AdviceOptions& options,
              const AdviceProgress& progress) {
  const OutsideMemory outside =
      options.outside.value_or(outside_memory(find_card(""), programs.size()));
  AdviceOptions inside = options;  // capacity_bytes: of PyTorch's allocator
  if (options.capacity_bytes == 0) {
    inside.capacity_bytes = room_of_failures(programs);
  } else {
    if (options.capacity_bytes <= outside.total())
      throw InvalidArgument(fmt::format(
          "a card of {} has no more than what is kept beside PyTorch's allocator, {}: give a "
          "larger capacity, or less to reserve for the context",
          format_byte_size(options.capacity_bytes), format_byte_size(outside.total())));
    inside.capacity_bytes -= outside.total();
  }
  Advice advice = Adviser(programs, inside, progress).run();
  advice.outside = outside;
  advice.card_bytes = options.capacity_bytes;
  return advice;
}

Advice advise(const Workload& workload, const AdviceOptions& options,
              const AdviceProgress& progress) {
  AdvisedProgram program;
  program.workload = &workload;
  return advise(std::vector<AdvisedProgram>{program}, options, progress);
}

}  // namespace tenon
