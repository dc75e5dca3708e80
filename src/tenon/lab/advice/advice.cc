#include "tenon/lab/advice/advice.h"

#include <algorithm>
#include <map>
#include <set>

#include "tenon/lab/capacity.h"
#include "tenon/lab/jobs.h"
#include "tenon/lab/replayer.h"

namespace tenon {
namespace {

// Events replayed in all at effort 1, and the most replays for short traces. A search for the
// smallest capacity counts as kReplaysPerSearch.
constexpr double kEventBudget = 200e6;
constexpr double kMostReplays = 3000;
constexpr double kReplaysPerSearch = 9;
// Of the budget: how much the coarse list may take, and how many of it are measured fully.
constexpr double kCoarseShare = 0.2;
constexpr std::size_t kMostFinalists = 32;

using Evaluated = std::map<ConfChoice, AdviceFigures>;

class Adviser {
 public:
  Adviser(const Workload& workload, const AdviceOptions& options, const AdviceProgress& progress)
      : workload_(workload),
        options_(options),
        progress_(progress),
        replays_left_(options.effort *
                      std::min(kMostReplays,
                               kEventBudget / (1 + static_cast<double>(workload.ops().size())))) {}

  Advice run() {
    Advice advice;
    advice.trace = workload_.name();
    advice.events = workload_.ops().size();
    advice.live_peak_bytes = workload_.live_peak_bytes();
    advice.capacity_bytes = options_.capacity_bytes;
    say("PyTorch as it is, expandable segments, Tenon's policies");
    measure_references(advice);
    if (!advice.hopeless()) {
      say("a coarse list of settings");
      search_coarsely();
      say("the best of them, step by step");
      search_finely();
    }
    choose(advice);
    return advice;
  }

 private:
  void say(std::string_view step) const {
    if (progress_) progress_(step);
  }

  ReplaySetup setup(const std::string& policy, const std::string& conf) const {
    ReplaySetup made;
    made.policy = policy;
    made.options.conf = conf;
    made.lag_ns = options_.lag_ns;
    return made;
  }

  void measure_reserved(AdviceFigures& figures) const {
    const ReplayFigures found = replay(workload_, setup(figures.policy, figures.conf));
    figures.reserved_peak_bytes = found.reserved_peak_bytes;
    figures.driver_stall_ns = found.ledger.stall_ns;
  }

  void measure_capacity(AdviceFigures& figures) const {
    ReplaySetup limited = setup(figures.policy, figures.conf);
    figures.min_capacity_bytes =
        find_min_capacity(workload_, limited, figures.reserved_peak_bytes);
    if (options_.capacity_bytes == 0) return;
    limited.capacity_bytes = options_.capacity_bytes;
    const ReplayFigures found = replay(workload_, limited);
    figures.fits = !found.out_of_memory.has_value();
    figures.driver_stall_ns = found.ledger.stall_ns;
  }

  template <typename Work>
  void in_parallel(std::size_t count, Work&& work) const {
    run_jobs(count, options_.threads, work);
  }

  void measure_references(Advice& advice) {
    const ConfChoice expandable{.expandable_segments = true};
    std::vector<AdviceFigures> found(4);
    for (std::size_t i = 0; i < found.size(); ++i)
      found[i].policy = std::vector<std::string>{"caching", "caching", "stitched", "plan"}[i];
    found[1].conf = expandable.text();
    in_parallel(found.size(), [&](std::size_t i) {
      measure_reserved(found[i]);
      measure_capacity(found[i]);
    });
    evaluated_[{}] = advice.default_settings = found[0];
    evaluated_[expandable] = advice.expandable = found[1];
    advice.stitched = found[2];
    advice.plan = found[3];
    reserved_to_beat_ = std::min(found[0].reserved_peak_bytes, found[1].reserved_peak_bytes);
    capacity_to_beat_ = std::min(*found[0].min_capacity_bytes, *found[1].min_capacity_bytes);
  }

  // Reserved peaks of what has not been tried, in one batch.
  void try_reserved(std::vector<ConfChoice> choices) {
    std::erase_if(choices, [&](const ConfChoice& choice) { return evaluated_.contains(choice); });
    std::vector<AdviceFigures> found(choices.size());
    in_parallel(choices.size(), [&](std::size_t i) {
      found[i].policy = "caching";
      found[i].conf = choices[i].text();
      measure_reserved(found[i]);
    });
    replays_left_ -= static_cast<double>(choices.size());
    for (std::size_t i = 0; i < choices.size(); ++i) evaluated_[choices[i]] = found[i];
  }

  void try_capacities(std::vector<ConfChoice> choices) {
    std::erase_if(choices, [&](const ConfChoice& choice) {
      return evaluated_.at(choice).min_capacity_bytes.has_value();
    });
    in_parallel(choices.size(),
                [&](std::size_t i) { measure_capacity(evaluated_.at(choices[i])); });
    replays_left_ -= kReplaysPerSearch * static_cast<double>(choices.size());
  }

  // Reserved and smallest capacity beside what must be beaten: 1 is as good.
  double reserved_ratio(const AdviceFigures& figures) const {
    return static_cast<double>(figures.reserved_peak_bytes) /
           static_cast<double>(std::max<std::uint64_t>(1, reserved_to_beat_));
  }
  double capacity_ratio(const AdviceFigures& figures) const {
    return static_cast<double>(figures.min_capacity_bytes.value_or(UINT64_MAX)) /
           static_cast<double>(std::max<std::uint64_t>(1, capacity_to_beat_));
  }
  // Lower is better. Whatever is as good in both comes before whatever is not.
  double score(const AdviceFigures& figures) const {
    const double reserved = reserved_ratio(figures);
    const double capacity = capacity_ratio(figures);
    if (reserved <= 1 && capacity <= 1) return reserved + capacity - 2;
    return std::max(reserved, capacity);
  }

  template <typename Key>
  std::vector<ConfChoice> best_by(Key&& key, std::size_t count, bool measured_only) const {
    std::vector<std::pair<double, ConfChoice>> order;
    for (const auto& [choice, figures] : evaluated_)
      if (!measured_only || figures.min_capacity_bytes) order.push_back({key(figures), choice});
    std::sort(order.begin(), order.end());
    order.resize(std::min(order.size(), count));
    std::vector<ConfChoice> out;
    for (const auto& [value, choice] : order) out.push_back(choice);
    return out;
  }

  void search_coarsely() {
    std::vector<ConfChoice> list = coarse_choices();
    list.resize(std::min(list.size(),
                         static_cast<std::size_t>(std::max(16.0, kCoarseShare * replays_left_))));
    try_reserved(list);
    const auto finalists = static_cast<std::size_t>(
        std::clamp(replays_left_ / kReplaysPerSearch / 3, 4.0, double{kMostFinalists}));
    std::vector<ConfChoice> full =
        best_by([&](const AdviceFigures& f) { return reserved_ratio(f); }, finalists, false);
    // A low reserved peak without a limit need not mean a small capacity: these often have one.
    for (const std::uint32_t split : {21u, 64u, 128u})
      for (const std::uint32_t garbage : {0u, 80u})
        full.push_back({.max_split_mb = split, .garbage_percent = garbage});
    for (const std::uint32_t divisions : {64u, 32u, 16u})
      full.push_back({.expandable_segments = true, .roundup_divisions = divisions});
    for (const std::uint32_t segment : {24u, 32u, 40u})
      full.push_back({.expandable_segments = true, .large_segment_mb = segment});
    try_reserved(full);
    std::sort(full.begin(), full.end());
    full.erase(std::unique(full.begin(), full.end()), full.end());
    try_capacities(full);
  }

  // From the best in both, then in each figure alone, as long as a step improves it.
  void search_finely() {
    climb([&](const AdviceFigures& f) { return score(f); }, 0.5);
    climb([&](const AdviceFigures& f) { return capacity_ratio(f); }, 0.75);
    climb([&](const AdviceFigures& f) { return reserved_ratio(f); }, 1);
  }

  template <typename Key>
  void climb(Key&& key, double share_of_rest) {
    constexpr std::size_t kPromising = 6;
    constexpr std::size_t kBreadth = 30;
    const double stop_at = replays_left_ * (1 - share_of_rest);
    std::set<ConfChoice> left_behind;
    while (replays_left_ > stop_at) {
      // The best whose neighbours have not been looked at: so that one dead end is not the end.
      const std::vector<ConfChoice> order = best_by(key, kBreadth, true);
      const auto from = std::find_if(order.begin(), order.end(), [&](const ConfChoice& choice) {
        return !left_behind.contains(choice);
      });
      if (from == order.end()) return;
      left_behind.insert(*from);
      std::vector<ConfChoice> around = neighbours_of(*from);
      try_reserved(around);
      std::stable_sort(around.begin(), around.end(), [&](const ConfChoice& a, const ConfChoice& b) {
        return evaluated_.at(a).reserved_peak_bytes < evaluated_.at(b).reserved_peak_bytes;
      });
      around.resize(std::min(around.size(), kPromising));
      try_capacities(around);
    }
  }

  void choose(Advice& advice) const {
    const auto best = [&](auto&& key) { return evaluated_.at(best_by(key, 1, true).front()); };
    advice.least_reserved = best([&](const AdviceFigures& f) { return reserved_ratio(f); });
    advice.smallest_capacity = best([&](const AdviceFigures& f) { return capacity_ratio(f); });
    advice.best = best([&](const AdviceFigures& f) { return score(f); });
    // What fits comes first; of that, what is best in both.
    if (options_.capacity_bytes != 0)
      advice.best = best([&](const AdviceFigures& f) { return score(f) + (*f.fits ? 0 : 1e6); });
    advice.best_in_both = reserved_ratio(advice.best) <= 1 && capacity_ratio(advice.best) <= 1;
    advice.settings_tried = evaluated_.size();
  }

  const Workload& workload_;
  const AdviceOptions& options_;
  const AdviceProgress& progress_;
  double replays_left_;
  Evaluated evaluated_;
  std::uint64_t reserved_to_beat_ = 0;
  std::uint64_t capacity_to_beat_ = 0;
};

}  // namespace

Advice advise(const Workload& workload, const AdviceOptions& options,
              const AdviceProgress& progress) {
  return Adviser(workload, options, progress).run();
}

}  // namespace tenon
