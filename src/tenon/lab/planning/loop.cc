#include "tenon/lab/planning/loop.h"

#include <algorithm>

namespace tenon {
namespace {

// The end of the loop: of the first whole iteration after the first one (which often differs in
// what it leaves behind), cut where the fewest bytes are live.
std::size_t end_of_loop(const std::vector<PlanRequest>& recorded, const Iterations& iterations) {
  std::vector<std::uint64_t> change(recorded.size() + 1);  // wraps and comes back in the sum
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    // Live between requests i and i + 1, up to the one before its end.
    change[i] += recorded[i].size;
    if (recorded[i].end != kNeverFreed) change[recorded[i].end - 1] -= recorded[i].size;
  }
  const std::size_t first = iterations.begin + iterations.period;
  std::size_t best = 0;
  std::uint64_t live = 0, least = 0;
  for (std::size_t cut = 0; cut <= first + iterations.period; ++cut) {
    if (cut > first && (best == 0 || live < least)) {
      best = cut;
      least = live;
    }
    live += change[cut];
  }
  return best;
}

}  // namespace

std::optional<LoopedRequests> fold_iterations(const std::vector<PlanRequest>& recorded,
                                              const Iterations& iterations) {
  const std::size_t end = end_of_loop(recorded, iterations);
  const std::size_t period = iterations.period;
  LoopedRequests looped;
  looped.loop_begin = end - period;
  looped.requests.assign(recorded.begin(), recorded.begin() + static_cast<std::ptrdiff_t>(end));
  for (std::size_t i = 0; i < end; ++i) {
    PlanRequest& request = looped.requests[i];
    const bool in_loop = i >= looped.loop_begin;
    std::uint64_t last = 0;  // the latest end, as seen from the first iteration of the loop
    if (in_loop)
      for (std::size_t at = i; at < recorded.size(); at += period)
        if (recorded[at].end != kNeverFreed)
          last = std::max<std::uint64_t>(last, recorded[at].end - (at - i));
    if (in_loop && (last == 0 || last > i + period)) return std::nullopt;
    if (in_loop && last > end) {
      request.begin = static_cast<std::uint32_t>(looped.loop_begin);
      last = end;
    }
    if (!in_loop) last = std::min<std::uint64_t>(request.end, end);
    request.end = static_cast<std::uint32_t>(last);
  }
  return looped;
}

}  // namespace tenon
