#include "tenon/lab/planning/exchange_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <tuple>

namespace tenon {
namespace {

using Items = PqTree::Items;
using Subset = std::uint64_t;

constexpr std::size_t kWidest = 4096;   // of a beam
constexpr std::size_t kMostMembers = 64;
constexpr std::size_t kMostCompared = 512;  // choices
constexpr std::size_t kMostChoices = 64;
constexpr std::size_t kMostExact = 14;  // members whose subsets are all tried
constexpr std::size_t kMostSubsets = std::size_t{1} << kMostExact;
// Logarithms to base 2: the least and most doubt of a choice, and what a request costs that a finer
// choice does without.
constexpr double kMostDoubt = 10;
constexpr double kCoarse = 2;
constexpr double kMostCoarse = 6;

// All subsets of `count` members; where there are too many, the small ones and their complements.
struct Subsets {
  explicit Subsets(std::size_t count) : is_complete(count <= kMostExact) {
    const std::size_t members = std::min(count, kMostMembers);
    const std::size_t most = is_complete ? std::size_t{1} << count : kMostSubsets / 2;
    // By size: each grows by members after its last.
    for (std::size_t i = 0; i < all.size() && all.size() < most; ++i)
      for (auto next = static_cast<std::size_t>(std::bit_width(all[i]));
           next < members && all.size() < most; ++next)
        all.push_back(all[i] | Subset{1} << next);
    if (is_complete) return;
    const Subset everything = ~Subset{0} >> (kMostMembers - members);
    for (std::size_t i = 0; i < most; ++i) all.push_back(everything ^ all[i]);
  }
  std::vector<Subset> all = {0};
  bool is_complete;
};

// Calls visit(member) for each.
template <typename Visit>
void for_each(Subset subset, Visit&& visit) {
  for (; subset != 0; subset &= subset - 1)
    visit(static_cast<std::size_t>(std::countr_zero(subset)));
}

double log2_binomial(std::size_t n, std::size_t k) {
  const auto log_factorial = [](std::size_t i) { return std::lgamma(static_cast<double>(i) + 1); };
  return (log_factorial(n) - log_factorial(k) - log_factorial(n - k)) / std::log(2.0);
}

// How many sums near `sum` there are for each number, of subsets no larger than this one.
template <typename Sums>
double density(const Sums& sums, Units sum, std::size_t members, Units reach) {
  double near = -1;  // without the subset itself
  auto at = std::lower_bound(sums.begin(), sums.end(), std::pair(sum - reach, Subset{0}));
  for (; at != sums.end() && at->first <= sum + reach; ++at)
    near += static_cast<std::size_t>(std::popcount(at->second)) <= members;
  constexpr double kOfNone = 0.25;
  return (near + kOfNone) / (2.0 * reach + 1);
}

Items without(Items from, const Items& items) {
  std::erase_if(from, [&](std::uint32_t item) {
    return std::find(items.begin(), items.end(), item) != items.end();
  });
  return from;
}

// Sets the marks of some items, for a while.
class Marking {
 public:
  Marking(PqTree::Marks& marks, const Items& items) : marks_(marks), items_(items) {
    marks_.set(items);
  }
  ~Marking() { marks_.clear(items_); }
  Marking(const Marking&) = delete;
  Marking& operator=(const Marking&) = delete;

 private:
  PqTree::Marks& marks_;
  const Items& items_;
};

}  // namespace

ExchangeSearch::ExchangeSearch(const SectionedProblem& problem)
    : problem_(problem), marks_(problem.items.size()), placed_at_(problem.items.size()) {
  Items items(problem.items.size());
  std::iota(items.begin(), items.end(), 0);
  const auto shape = [&](std::uint32_t item) {
    const SectionItem& it = problem.items[item];
    return std::tuple(-it.size, it.first, it.last, item);
  };
  std::sort(items.begin(), items.end(),
            [&](std::uint32_t a, std::uint32_t b) { return shape(a) < shape(b); });
  const std::size_t sections = problem.sections();
  for (Direction* direction : {&forward_, &backward_}) {
    direction->first.resize(sections);
    direction->last.resize(sections);
  }
  for (const std::uint32_t item : items) {
    const SectionItem& it = problem.items[item];
    forward_.first[it.first].push_back(item);
    forward_.last[it.last].push_back(item);
    backward_.first[sections - 1 - it.last].push_back(item);
    backward_.last[sections - 1 - it.first].push_back(item);
  }
}

Fit ExchangeSearch::run(std::uint64_t node_budget) {
  nodes_ = 0;
  node_limit_ = node_budget;
  for (; width_ <= kWidest; width_ *= 4) {
    for (const Direction* direction : {&forward_, &backward_}) {
      is_complete_ = true;
      if (search(*direction, width_)) return Fit::kFits;
      if (nodes_ >= node_limit_) return Fit::kUnknown;
      if (is_complete_) return Fit::kImpossible;
    }
  }
  return Fit::kUnknown;
}

bool ExchangeSearch::search(const Direction& direction, std::size_t width) {
  if (problem_.items.empty()) return true;
  std::vector<State> states = {{PqTree(direction.first[0]), {}, {}, nullptr, 0}};
  for (std::size_t section = 0; section + 1 < problem_.sections() && !states.empty(); ++section) {
    for (State& state : states) {
      state.ended = direction.last[section];
      state.begun = direction.first[section + 1];
    }
    states = cross(std::move(states), width);
  }
  if (states.empty()) return false;
  place(states[0]);
  return true;
}

// The likeliest `width` ways into the next section, likeliest first.
std::vector<ExchangeSearch::State> ExchangeSearch::cross(std::vector<State> states,
                                                         std::size_t width) {
  const auto is_later = [](const State& a, const State& b) { return a.doubt > b.doubt; };
  const std::size_t most_waiting = 64 + 8 * width;
  sums_.clear();
  std::make_heap(states.begin(), states.end(), is_later);
  std::vector<State> crossed;
  while (!states.empty() && crossed.size() < width) {
    if (nodes_ >= node_limit_) return {};
    std::pop_heap(states.begin(), states.end(), is_later);
    State state = std::move(states.back());
    states.pop_back();
    if (state.ended.empty()) {
      crossed.push_back(std::move(state));
      continue;
    }
    for (State& next : after_exchanges(state)) {
      states.push_back(std::move(next));
      std::push_heap(states.begin(), states.end(), is_later);
    }
    if (states.size() > most_waiting) {
      std::sort_heap(states.begin(), states.end(), is_later);
      std::reverse(states.begin(), states.end());
      states.erase(states.begin() + static_cast<std::ptrdiff_t>(most_waiting / 2), states.end());
      std::make_heap(states.begin(), states.end(), is_later);
      is_complete_ = false;
    }
  }
  is_complete_ &= states.empty();
  return crossed;
}

std::vector<ExchangeSearch::State> ExchangeSearch::after_exchanges(const State& state) {
  std::vector<State> states;
  for (const Choice& choice : choices(state)) {
    ++nodes_;
    const Marking marking(marks_, choice.ended);
    PqTree tree = state.tree;
    auto exchange = tree.exchange(marks_, choice.begun);
    if (!exchange) continue;
    auto step = std::make_shared<const Step>(Step{state.last_step, std::move(*exchange)});
    states.push_back({std::move(tree), without(state.ended, choice.ended),
                      without(state.begun, choice.begun), std::move(step),
                      state.doubt + choice.doubt});
  }
  return states;
}

// What ends, in groups that lie together in all orders, largest first.
std::vector<Items> ExchangeSearch::ended_groups(const State& state) {
  const Marking marking(marks_, state.ended);
  std::vector<Items> groups = state.tree.groups(marks_);
  std::sort(groups.begin(), groups.end(), [&](const Items& a, const Items& b) {
    return std::pair(-size_of(a), a) < std::pair(-size_of(b), b);
  });
  return groups;
}

// Exchanges for the largest group that ends, alone and together with others. Where a small one is
// possible, larger ones are possible that contain it, so the smaller is the likelier.
std::vector<ExchangeSearch::Choice> ExchangeSearch::choices(const State& state) {
  std::vector<Choice> choices = partial_choices(state, ended_groups(state));
  const auto count = [](const Choice& c) { return c.ended.size() + c.begun.size(); };
  std::size_t fewest = SIZE_MAX;
  for (const Choice& choice : choices) fewest = std::min(fewest, count(choice));
  for (Choice& choice : choices)
    choice.doubt +=
        std::min(kMostCoarse, kCoarse * static_cast<double>(count(choice) - fewest));
  if (choices.size() > kMostChoices) {
    std::nth_element(choices.begin(), choices.begin() + kMostChoices, choices.end(),
                     [](const Choice& a, const Choice& b) { return a.doubt < b.doubt; });
    choices.resize(kMostChoices);
    is_complete_ = false;
  }
  choices.push_back({state.ended, state.begun, 0});
  double sum = 0;
  for (const Choice& choice : choices) sum += std::exp2(-choice.doubt);
  for (Choice& choice : choices) choice.doubt += std::log2(sum);
  return choices;
}

// How probable one is depends on how many of the kind random sizes would allow.
std::vector<ExchangeSearch::Choice> ExchangeSearch::partial_choices(
    const State& state, const std::vector<Items>& groups) {
  const Sums& sums = sums_of(state.begun);
  const Subsets subsets(groups.size() - 1);  // of the others
  is_complete_ &= subsets.is_complete;
  nodes_ += subsets.all.size() / 64;
  const Units reach = size_of(state.ended) / 16;
  std::vector<Choice> choices;
  for (const Subset others : subsets.all) {
    Items ended = groups[0];
    for_each(others, [&](std::size_t i) {
      ended.insert(ended.end(), groups[i + 1].begin(), groups[i + 1].end());
    });
    if (ended.size() == state.ended.size()) continue;
    const Units sum = size_of(ended);
    const double ways = log2_binomial(groups.size() - 1,
                                      static_cast<std::size_t>(std::popcount(others)));
    auto at = std::lower_bound(sums.begin(), sums.end(), std::pair(sum, Subset{0}));
    for (; at != sums.end() && at->first == sum; ++at) {
      if (choices.size() == kMostCompared) {
        is_complete_ = false;
        return choices;
      }
      Items begun;
      for_each(at->second, [&](std::size_t i) { begun.push_back(state.begun[i]); });
      const double chance = density(sums, sum, begun.size(), reach);
      choices.push_back({ended, std::move(begun),
                         std::clamp(ways + std::log2(chance), -kMostDoubt, kMostDoubt)});
      ++nodes_;  // comparing takes as long as an exchange
    }
  }
  return choices;
}

const ExchangeSearch::Sums& ExchangeSearch::sums_of(const Items& items) {
  const auto [at, is_new] = sums_.try_emplace(items);
  Sums& sums = at->second;
  if (!is_new) return sums;
  const Subsets subsets(items.size());
  is_complete_ &= subsets.is_complete;
  for (const Subset subset : subsets.all) {
    if (!has_no_equal_before(items, subset)) continue;
    Units sum = 0;
    for_each(subset, [&](std::size_t i) { sum += problem_.items[items[i]].size; });
    sums.emplace_back(sum, subset);
  }
  std::sort(sums.begin(), sums.end());
  nodes_ += sums.size() / 64;
  return sums;
}

// Requests of one shape stand next to each other. Of subsets that differ in them alone, the one
// with the first of them counts.
bool ExchangeSearch::has_no_equal_before(const Items& items, Subset subset) const {
  const auto shape = [&](std::size_t i) {
    const SectionItem& item = problem_.items[items[i]];
    return std::tuple(item.size, item.first, item.last);
  };
  bool has_none = true;
  for_each(subset, [&](std::size_t i) {
    if (i > 0 && (subset >> (i - 1) & 1) == 0) has_none &= shape(i - 1) != shape(i);
  });
  return has_none;
}

Units ExchangeSearch::size_of(const Items& items) const {
  return std::accumulate(items.begin(), items.end(), Units{0}, [&](Units sum, std::uint32_t item) {
    return sum + problem_.items[item].size;
  });
}

// From the last section to the first, in an order of each. A request lies at the same place in all
// of its sections.
void ExchangeSearch::place(const State& state) {
  Items order = state.tree.order();
  const auto place_all = [&] {
    Units at = 0;
    for (const std::uint32_t item : order) {
      placed_at_[item] = at;
      at += problem_.items[item].size;
    }
  };
  place_all();
  for (const Step* step = state.last_step.get(); step != nullptr; step = step->before.get()) {
    PqTree::undo(step->exchange, order);
    place_all();
  }
}

}  // namespace tenon
