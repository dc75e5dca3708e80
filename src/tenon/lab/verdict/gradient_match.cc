#include "tenon/lab/verdict/gradient_match.h"

#include <algorithm>

#include "tenon/lab/verdict/passes.h"

namespace tenon {
namespace {

constexpr std::size_t kWindow = 24;  // forward calls looked at to either side

// The forward calls of one pass and the backward pass that follows it.
class Match {
 public:
  Match(const Trace& trace, std::span<const Lifetime> lives, const CallSites& sites,
        Categories& categories)
      : trace_(trace), lives_(lives), sites_(sites), categories_(categories) {}

  void run(std::uint32_t from, const Stretch& backward) {
    collect(from, backward);
    if (calls_.empty()) return;
    std::size_t next = 0;  // in frees_
    for (std::uint32_t i = backward.begin; i < backward.end; ++i) {
      while (next < frees_.size() && frees_[next].first < i) ++next;
      const TraceEvent& event = trace_.events[i];
      if (event.op != TraceOp::kAlloc) continue;
      BlockCategory& own = categories_.blocks[event.block];
      if (own.category != Category::kGradients && own.category != Category::kTemporaries) continue;
      const std::size_t place = next < frees_.size() ? frees_[next].second
                                : frees_.empty()     ? calls_.size() - 1
                                                     : 0;
      own.of_site = lives_[calls_[find(event, place)]].site;
    }
  }

 private:
  void collect(std::uint32_t from, const Stretch& backward) {
    calls_.clear();
    frees_.clear();
    for (std::uint32_t i = from; i < backward.begin; ++i) {
      const TraceEvent& event = trace_.events[i];
      if (event.op != TraceOp::kAlloc || event.block < trace_.early_blocks || event.site == 0)
        continue;
      const Category category = categories_.blocks[event.block].category;
      if (category != Category::kActivations && category != Category::kLoss &&
          category != Category::kTemporaries)
        continue;
      const std::uint32_t gone = freed_at(lives_[event.block]);
      if (gone >= backward.begin && gone < backward.end) frees_.emplace_back(gone, calls_.size());
      calls_.push_back(event.block);
    }
    std::sort(frees_.begin(), frees_.end());
  }

  // The call nearest to `place` that fits best.
  std::size_t find(const TraceEvent& event, std::size_t place) const {
    const std::string node = node_operator(sites_.call_site(event.site).node);
    std::size_t same_size = calls_.size();
    for (std::size_t away = 0; away <= kWindow; ++away)
      for (const bool ahead : {false, true}) {
        if (ahead ? place + away >= calls_.size() : away > place) continue;
        const std::size_t at = ahead ? place + away : place - away;
        const Lifetime& call = lives_[calls_[at]];
        if (!node.empty()) {
          const CallSite& site = sites_.call_site(call.site);
          if (site.op == node || site.kernel == node) return at;
        }
        if (same_size == calls_.size() && call.size_bytes == event.size_bytes) {
          if (node.empty()) return at;
          same_size = at;
        }
      }
    return same_size < calls_.size() ? same_size : place;
  }

  const Trace& trace_;
  std::span<const Lifetime> lives_;
  const CallSites& sites_;
  Categories& categories_;
  std::vector<std::uint32_t> calls_;                          // blocks, in order
  std::vector<std::pair<std::uint32_t, std::size_t>> frees_;  // event, number in calls_
};

}  // namespace

void match_gradients(const Trace& trace, std::span<const Lifetime> lives, const CallSites& sites,
                     Categories& categories) {
  if (!categories.passes.by_stack) return;
  Match match(trace, lives, sites, categories);
  std::uint32_t from = 0;
  for (const Stretch& backward : categories.passes.backward) {
    match.run(from, backward);
    from = backward.end;
  }
}

}  // namespace tenon
