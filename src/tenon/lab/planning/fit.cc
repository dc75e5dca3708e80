#include "tenon/lab/planning/fit.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <string_view>
#include <thread>

#include "tenon/base/random.h"
#include "tenon/lab/jobs.h"
#include "tenon/lab/planning/capacity_search.h"
#include "tenon/lab/planning/corner_search.h"
#include "tenon/lab/planning/exchange_search.h"
#include "tenon/lab/planning/sections.h"

namespace tenon {
namespace {

constexpr int kSearchers = 2;
// Searches are short, every eighth one longer; the first of each searcher longer still.
constexpr std::uint64_t kShortSearch = 1000;
constexpr std::uint64_t kLongSearch = 8 * kShortSearch;
constexpr std::uint64_t kFirstSearch = 20 * kShortSearch;
constexpr std::uint64_t kRoundsToDouble = 2000;  // so that very hard problems get longer ones
constexpr double kNoise = 0.3;
constexpr double kFailureWeight = 0.3;
constexpr double kFade = 0.9;  // of a section's failures, from one search to the next

// What requests are ordered by, first key first: T contention (the fullest section that the request
// lives in), W width (sections of time), A area, Z size.
constexpr std::array<std::string_view, 8> kOrders = {"TWA", "WAT", "TAW", "AWT",
                                                     "TZW", "TWA", "TAW", "TWZ"};

// One order of preference after another, each searched briefly.
class Searcher {
 public:
  Searcher(const SectionedProblem& problem, const std::vector<PlanRequest>& requests, int number)
      : problem_(problem),
        requests_(requests),
        search_(problem),
        random_(static_cast<std::uint64_t>(number) + 1),
        number_(static_cast<std::uint64_t>(number)) {}

  // At most `most_nodes`.
  void step(std::uint64_t most_nodes) {
    const std::uint64_t turn = round_ * kSearchers + number_;
    const bool plain = turn < kOrders.size();
    std::uint64_t limit = plain ? kFirstSearch : round_ % 8 == 7 ? kLongSearch : kShortSearch;
    limit <<= std::min<std::uint64_t>(round_ / kRoundsToDouble, 20);
    limit = std::min(limit, most_nodes);
    // Half of the noisy searches learn from what failed.
    make_order(kOrders[turn % kOrders.size()], !plain, (turn / kOrders.size()) % 2 == 1);
    outcome_ = search_.run(ranks_, limit);
    nodes_ += search_.nodes();
    for (double& failures : search_.failures()) failures *= kFade;
    ++round_;
  }

  CapacitySearch::Outcome outcome() const { return outcome_; }
  std::uint64_t nodes() const { return nodes_; }
  const std::vector<Units>& offsets() const { return search_.offsets(); }

 private:
  double key(char kind, std::size_t i, const std::vector<double>& contention) const {
    const PlanRequest& request = requests_[i];
    const double width = static_cast<double>(request.end - request.begin);
    const double size = problem_.items[i].size;
    switch (kind) {
      case 'W': return width;
      case 'A': return width * size;
      case 'Z': return size;
      default: break;
    }
    const SectionItem& item = problem_.items[i];
    return *std::max_element(contention.begin() + item.first, contention.begin() + item.last + 1);
  }

  void make_order(std::string_view kinds, bool noisy, bool learned) {
    std::vector<double> contention(problem_.totals.begin(), problem_.totals.end());
    const std::vector<double>& failures = search_.failures();
    const double most = failures.empty() ? 0 : *std::max_element(failures.begin(), failures.end());
    for (std::size_t s = 0; learned && most > 0 && s < contention.size(); ++s)
      contention[s] *= 1 + kFailureWeight * failures[s] / most;
    const std::size_t count = problem_.items.size();
    std::vector<std::vector<double>> keys;
    for (const char kind : kinds) {
      std::vector<double>& values = keys.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = key(kind, i, contention);
        // Contention stays as it is: what lives in the same full section belongs together.
        if (noisy && kind != 'T') values[i] *= std::exp(kNoise * (unit_random() * 2 - 1));
      }
    }
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      for (const std::vector<double>& values : keys)
        if (values[a] != values[b]) return values[a] > values[b];
      return a < b;
    });
    ranks_.resize(count);
    for (std::uint32_t rank = 0; rank < count; ++rank) ranks_[order[rank]] = rank;
  }

  double unit_random() { return static_cast<double>(random_.next() >> 11) * 0x1.0p-53; }

  const SectionedProblem& problem_;
  const std::vector<PlanRequest>& requests_;
  CapacitySearch search_;
  Random random_;
  const std::uint64_t number_;
  std::uint64_t round_ = 0;
  std::uint64_t nodes_ = 0;
  std::vector<std::uint32_t> ranks_;
  CapacitySearch::Outcome outcome_ = CapacitySearch::Outcome::kGaveUp;
};

// A node visits each section of each request, so where requests live in many it counts for more.
std::uint64_t nodes_that_one_counts_for(const SectionedProblem& problem) {
  constexpr std::uint64_t kSectionsOfARequest = 160;  // as many count for one
  std::uint64_t visits = 0;
  for (const SectionItem& item : problem.items) visits += item.last - item.first + 1;
  return 1 + visits / (kSectionsOfARequest * std::max<std::size_t>(1, problem.items.size()));
}

// Runs each searcher until it is decided, another was decided in an earlier round, or the budget is
// gone. Rounds are compared, not times, so the result does not depend on the threads.
class Race {
 public:
  Race(const SectionedProblem& problem, const std::vector<PlanRequest>& requests,
       std::uint64_t node_budget)
      : node_budget_(node_budget) {
    for (int i = 0; i < kSearchers; ++i)
      searchers_.push_back(std::make_unique<Searcher>(problem, requests, i));
  }

  // The searcher that decided, or null.
  const Searcher* run() {
    {
      Helpers helpers;
      std::size_t started = 1;
      while (started < searchers_.size() &&
             helpers.start([this, started] { run_searcher(started); }))
        ++started;
      run_searcher(0);
      for (std::size_t i = started; i < searchers_.size(); ++i) run_searcher(i);
    }
    const Searcher* best = nullptr;
    const std::uint64_t best_round = decided_at_.load();
    for (std::size_t i = searchers_.size(); i-- > 0;)
      if (rounds_[i] == best_round && searchers_[i]->outcome() != CapacitySearch::Outcome::kGaveUp)
        best = searchers_[i].get();
    return best;
  }

 private:
  void run_searcher(std::size_t index) {
    Searcher& searcher = *searchers_[index];
    for (std::uint64_t round = 0; searcher.nodes() < node_budget_ && round <= decided_at_.load();
         ++round) {
      searcher.step(node_budget_ - searcher.nodes());
      rounds_[index] = round;
      if (searcher.outcome() == CapacitySearch::Outcome::kGaveUp) continue;
      std::uint64_t known = decided_at_.load();
      while (round < known && !decided_at_.compare_exchange_weak(known, round)) {
      }
      return;
    }
  }

  const std::uint64_t node_budget_;
  std::vector<std::unique_ptr<Searcher>> searchers_;
  std::array<std::uint64_t, kSearchers> rounds_ = {};
  std::atomic<std::uint64_t> decided_at_{UINT64_MAX};
};

std::vector<std::uint64_t> in_bytes(const std::vector<Units>& offsets,
                                    const SectionedProblem& problem) {
  std::vector<std::uint64_t> bytes;
  for (const Units offset : offsets)
    bytes.push_back(static_cast<std::uint64_t>(offset) * problem.unit_bytes);
  return bytes;
}

// A packing without a free byte: the searches for sizes of few units and for sizes that differ in
// turns, each turn four times as long as the one before. The first finds early what it finds.
FitResult search_full(const SectionedProblem& problem, std::uint64_t node_budget) {
  FitResult result;
  const auto is_over = [&](auto& search, std::uint64_t turn) {
    result.fit = search.run(std::min(turn, node_budget - result.nodes));
    result.nodes += search.nodes();
    if (result.fit == Fit::kFits) result.offsets = in_bytes(search.offsets(), problem);
    return result.fit != Fit::kUnknown || result.nodes >= node_budget;
  };
  CornerSearch corners(problem);
  ExchangeSearch exchanges(problem);
  std::uint64_t turn = 16 * (problem.items.size() + 1);
  while (!is_over(corners, turn) && !is_over(exchanges, 4 * turn)) turn *= 4;
  return result;
}

}  // namespace

FitResult fit_within(const std::vector<PlanRequest>& requests, std::uint64_t capacity_bytes,
                     std::uint64_t node_budget) {
  FitResult result;
  if (requests.size() > kMostSearched) return result;
  const std::optional<SectionedProblem> problem = make_sections(requests, capacity_bytes);
  if (!problem) return result;
  if (is_full(*problem)) return search_full(*problem, node_budget);
  Race race(*problem, requests, node_budget / nodes_that_one_counts_for(*problem));
  const Searcher* decided = race.run();
  if (decided == nullptr) return result;
  result.nodes = decided->nodes();
  result.fit = decided->outcome() == CapacitySearch::Outcome::kFits ? Fit::kFits : Fit::kImpossible;
  if (result.fit == Fit::kFits) result.offsets = in_bytes(decided->offsets(), *problem);
  return result;
}

}  // namespace tenon
