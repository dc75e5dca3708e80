#include "tenon/lab/planning/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/base/interruption.h"
#include "tenon/heap/best_fit_heap.h"
#include "tenon/lab/planning/fit.h"
#include "tenon/lab/planning/packed_index.h"

namespace tenon {
namespace {

// Below this many requests the small ones are not treated apart.
constexpr std::size_t kFewRequests = 4096;
// Small requests together need at most this share of the whole.
constexpr std::uint64_t kSmallShare = 512;

// A packing this close to the bound (1/kGoodShare above it) is not improved further.
constexpr std::uint64_t kGoodShare = 1000;
// How often a request that ended too high is moved to the front.
constexpr int kPromotions = 8;
// The same with further orders, where that was not enough: rounds with each, and greedy runs in
// all, fewer for large problems (requests x runs).
constexpr int kLongPromotions = 30;
constexpr std::size_t kPromotionWork = 400'000;
constexpr std::size_t kFewestRuns = 4;
constexpr std::size_t kMostRuns = 64;
// Greedy runs of all kinds, for problems of millions of requests (requests x runs); below an effort
// of 1, that share of the most runs there are, and at least one of each fixed order.
constexpr std::size_t kGreedyWork = 20'000'000;
// Ranges that the searches of all greedy runs look at (PackedIndex): some seconds. Problems in
// which thousands of requests overlap at random need more; recorded programs at most 1/30.
constexpr double kGreedyVisits = 1e9;
constexpr std::size_t kFixedOrders = 3;
constexpr std::size_t kAllRuns = kFixedOrders + kPromotions + kMostRuns;

using Order = std::vector<std::uint32_t>;

// Beginnings and ends in order of time; at one time, ends first.
struct Edge {
  std::uint32_t time;
  bool begins;
  std::uint32_t request;
};

// Of all requests.
std::vector<Edge> edges_of(const std::vector<PlanRequest>& requests) {
  std::vector<Edge> edges;
  edges.reserve(2 * requests.size());
  const auto earlier = [](const Edge& a, const Edge& b) {
    if (a.time != b.time) return a.time < b.time;
    if (a.begins != b.begins) return b.begins;
    return a.request < b.request;
  };
  // Requests mostly come in order of their beginnings: then only the ends are to be sorted.
  for (std::uint32_t i = 0; i < requests.size(); ++i)
    edges.push_back({requests[i].begin, true, i});
  if (!std::is_sorted(edges.begin(), edges.end(), earlier))
    std::sort(edges.begin(), edges.end(), earlier);
  const auto middle = static_cast<std::ptrdiff_t>(edges.size());
  for (std::uint32_t i = 0; i < requests.size(); ++i)
    edges.push_back({requests[i].end, false, i});
  std::sort(edges.begin() + middle, edges.end(), earlier);
  std::inplace_merge(edges.begin(), edges.begin() + middle, edges.end(), earlier);
  return edges;
}

// Most bytes live at once of the requests up to a size.
std::uint64_t live_peak(const std::vector<PlanRequest>& requests,
                        const std::vector<Edge>& edges, std::uint64_t largest = UINT64_MAX) {
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  for (const Edge& e : edges) {
    const std::uint64_t size = requests[e.request].size;
    if (size > largest) continue;
    live = e.begins ? live + size : live - size;
    peak = std::max(peak, live);
  }
  return peak;
}

// A way to give offsets to the requests up to a size; returns the highest end.
std::uint64_t replay(const std::vector<PlanRequest>& requests,
                     const std::vector<Edge>& edges, std::uint64_t largest,
                     std::vector<std::uint64_t>& offsets) {
  BestFitHeap heap;
  heap.add_extent(0, std::uint64_t{1} << 62);
  std::vector<Block*> blocks(requests.size());
  std::uint64_t peak = 0;
  for (const Edge& e : edges) {
    if (requests[e.request].size > largest) continue;
    if (!e.begins) {
      heap.release(blocks[e.request]);
      continue;
    }
    Block* block = blocks[e.request] = heap.place(requests[e.request].size);
    offsets[e.request] = block->offset;
    peak = std::max(peak, block->offset + block->size);
  }
  return peak;
}

// Gives up, with the highest end there is, where the peak reaches `give_up_at` or the visits are
// used up.
std::uint64_t greedy(const std::vector<PlanRequest>& requests, const Order& order,
                     std::vector<std::uint64_t>& offsets, std::uint64_t give_up_at,
                     std::uint64_t& visits_left) {
  std::uint32_t duration = 1;
  for (const PlanRequest& r : requests) duration = std::max(duration, r.end);
  PackedIndex placed(duration);
  std::uint64_t peak = 0;
  for (const std::uint32_t i : order) {
    stop_if_asked();
    if (placed.visited() >= visits_left) {
      visits_left = 0;
      return UINT64_MAX;
    }
    const PlanRequest& r = requests[i];
    const std::uint64_t offset = placed.lowest_fit(r.size, r.begin, r.end);
    placed.insert({offset, offset + r.size, r.begin, r.end});
    offsets[i] = offset;
    peak = std::max(peak, offset + r.size);
    if (peak >= give_up_at) break;
  }
  visits_left -= std::min(visits_left, placed.visited());
  return peak;
}

// Largest key first; ties in the order of time.
Order ordered_by(const std::vector<PlanRequest>& requests, Order which,
                 double (*key)(const PlanRequest&)) {
  std::vector<double> keys(requests.size());
  for (const std::uint32_t i : which) keys[i] = key(requests[i]);
  std::sort(which.begin(), which.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (keys[a] != keys[b]) return keys[a] > keys[b];
    if (requests[a].size != requests[b].size) return requests[a].size > requests[b].size;
    return a < b;
  });
  return which;
}

// By request: the most bytes live at once during its life, as a share of the most ever. Maxima over
// ranges of time from a table of maxima over powers of two: O(n log n).
std::vector<double> contention_of(const std::vector<PlanRequest>& requests) {
  std::uint32_t duration = 1;
  for (const PlanRequest& r : requests) duration = std::max(duration, r.end);
  std::vector<std::vector<std::uint64_t>> most(1, std::vector<std::uint64_t>(duration));
  for (const PlanRequest& r : requests) {
    most[0][r.begin] += r.size;
    if (r.end < duration) most[0][r.end] -= r.size;  // wraps and comes back in the sum
  }
  std::partial_sum(most[0].begin(), most[0].end(), most[0].begin());
  for (std::size_t width = 1; 2 * width <= duration; width *= 2) {
    const std::vector<std::uint64_t>& half = most.back();
    std::vector<std::uint64_t> whole(half.size() - width);
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = std::max(half[i], half[i + width]);
    most.push_back(std::move(whole));
  }
  const auto peak = static_cast<double>(*std::max_element(most[0].begin(), most[0].end()));
  std::vector<double> contention(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto [size, begin, end] = requests[i];
    const int level = std::bit_width(end - begin) - 1;
    const std::vector<std::uint64_t>& table = most[static_cast<std::size_t>(level)];
    const std::uint64_t found = std::max(table[begin], table[end - (1u << level)]);
    contention[i] = static_cast<double>(found) / std::max(1.0, peak);
  }
  return contention;
}

double life(const PlanRequest& r) { return static_cast<double>(r.end - r.begin); }

// First the buffers of the fullest times, in steps of `grain`; 1 or more: all alike. Then by key.
struct ContendedOrder {
  double grain;
  double (*key)(const PlanRequest&);
};
double by_size(const PlanRequest& r) { return static_cast<double>(r.size); }
double by_area(const PlanRequest& r) { return static_cast<double>(r.size) * life(r); }
constexpr ContendedOrder kContendedOrders[] = {{0.05, by_size}, {0.2, by_size}, {0.05, life},
                                               {2, by_size},    {0.2, by_area}, {2, life},
                                               {2, by_area},    {0.01, by_size}};

Order ordered_by_contention(const std::vector<PlanRequest>& requests, const Order& which,
                            const std::vector<double>& contention, const ContendedOrder& kind) {
  Order order = ordered_by(requests, which, kind.key);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::floor(contention[a] / kind.grain) > std::floor(contention[b] / kind.grain);
  });
  return order;
}

// The largest power of two such that all requests up to it need at most 1/kSmallShare together.
std::uint64_t small_limit(const std::vector<PlanRequest>& requests,
                          const std::vector<Edge>& edges, std::uint64_t whole) {
  if (requests.size() < kFewRequests) return 0;
  std::uint64_t least = UINT64_MAX;  // no request is smaller
  for (const PlanRequest& r : requests) least = std::min(least, r.size);
  std::uint64_t limit = 0;
  for (std::uint64_t candidate = 1; candidate <= whole / kSmallShare; candidate *= 2) {
    if (candidate >= least && live_peak(requests, edges, candidate) > whole / kSmallShare) break;
    limit = candidate;
  }
  return limit;
}

std::vector<PlanRequest> in_units(const std::vector<PlanRequest>& requests, std::uint64_t unit) {
  std::vector<PlanRequest> out = requests;
  for (PlanRequest& r : out) {
    if (r.size == 0 || r.size > kMaxRequestBytes || r.begin >= r.end)
      throw InvalidArgument(fmt::format("plan: a request of {} bytes that lives in [{}, {})",
                                        r.size, r.begin, r.end));
    r.size = align_up(r.size, unit);
  }
  return out;
}

// The best packing so far, and what improves it.
class Packer {
 public:
  Packer(const std::vector<PlanRequest>& requests, double effort)
      : requests_(requests), offsets_(requests.size()) {
    const std::vector<Edge> edges = edges_of(requests);
    best_.lower_bound_bytes = live_peak(requests, edges);
    best_.offsets.resize(requests.size());
    best_.peak_bytes = replay(requests, edges, UINT64_MAX, best_.offsets);
    if (good_enough()) return;
    const std::uint64_t limit = small_limit(requests, edges, best_.lower_bound_bytes);
    for (std::uint32_t i = 0; i < requests.size(); ++i)
      (requests[i].size <= limit ? small_ : large_).push_back(i);
    strip_ = replay(requests, edges, limit, offsets_);
    greedy_runs_left_ = std::max<std::size_t>(1, kGreedyWork / requests.size());
    visits_left_ = static_cast<std::uint64_t>(effort * kGreedyVisits);
    const double share = effort * static_cast<double>(kAllRuns);
    if (effort < 1)
      greedy_runs_left_ = std::min(greedy_runs_left_,
                                   std::max(kFixedOrders, static_cast<std::size_t>(share)));
  }

  bool good_enough() const {
    return best_.peak_bytes <= best_.lower_bound_bytes + best_.lower_bound_bytes / kGoodShare;
  }

  void try_fixed_orders() {
    for (const auto key : {by_size, by_area, life}) {
      if (done()) return;
      try_order(ordered_by(requests_, large_, key), best_.peak_bytes - strip_);
    }
  }

  // What ended highest came too late: it goes to the front, and the rest follows as before.
  void promote_highest() {
    if (done()) return;
    Order order = ordered_by(requests_, large_, by_size);
    for (int round = 0; round < kPromotions && !done(); ++round) {
      const std::uint64_t peak = try_order(order, UINT64_MAX);
      std::stable_partition(order.begin(), order.end(), [&](std::uint32_t i) {
        return offsets_[i] + requests_[i].size == peak;
      });
    }
  }

  // The same from further orders, for longer, with all that ended too high: above the middle
  // between bound and peak.
  void promote_from_many_orders() {
    if (done() || large_.empty()) return;
    const std::vector<double> contention = contention_of(requests_);
    std::size_t runs_left = std::clamp(kPromotionWork / large_.size(), kFewestRuns, kMostRuns);
    for (const ContendedOrder& kind : kContendedOrders) {
      if (runs_left == 0 || done()) return;
      Order order = ordered_by_contention(requests_, large_, contention, kind);
      for (int round = 0; round < kLongPromotions && runs_left > 0 && !done(); ++round) {
        --runs_left;
        const std::uint64_t peak = try_order(order, UINT64_MAX);
        const std::uint64_t bound = std::min(peak, best_.lower_bound_bytes);
        std::stable_partition(order.begin(), order.end(), [&](std::uint32_t i) {
          return offsets_[i] + requests_[i].size >= peak - (peak - bound) / 2;
        });
      }
    }
  }

  Packing take() { return std::move(best_); }

 private:
  bool done() const { return good_enough() || greedy_runs_left_ == 0 || visits_left_ == 0; }

  // Large requests in this order, small ones in their strip above; kept if it is the best yet.
  std::uint64_t try_order(const Order& order, std::uint64_t give_up_at) {
    --greedy_runs_left_;
    const std::uint64_t peak = greedy(requests_, order, offsets_, give_up_at, visits_left_);
    if (visits_left_ == 0) return best_.peak_bytes;
    if (strip_ + peak >= best_.peak_bytes) return peak;
    best_.peak_bytes = strip_ + peak;
    for (const std::uint32_t i : large_) best_.offsets[i] = offsets_[i];
    for (const std::uint32_t i : small_) best_.offsets[i] = peak + offsets_[i];
    return peak;
  }

  const std::vector<PlanRequest>& requests_;
  Packing best_;
  Order small_, large_;
  std::vector<std::uint64_t> offsets_;  // of the try in hand; small ones from the strip's start
  std::uint64_t strip_ = 0;             // what small requests need together
  std::size_t greedy_runs_left_ = 0;
  std::uint64_t visits_left_ = 0;  // of greedy runs
};

}  // namespace

Packing pack(const std::vector<PlanRequest>& wanted, std::uint64_t unit_bytes, double effort) {
  const std::vector<PlanRequest> requests = in_units(wanted, unit_bytes);
  Packer packer(requests, effort);
  packer.try_fixed_orders();
  packer.promote_highest();
  packer.promote_from_many_orders();
  return packer.take();
}

Packing pack_quickly(const std::vector<PlanRequest>& wanted, std::uint64_t unit_bytes) {
  const std::vector<PlanRequest> requests = in_units(wanted, unit_bytes);
  return Packer(requests, 1).take();
}

Packing pack_tightly(const std::vector<PlanRequest>& wanted, std::uint64_t unit_bytes,
                     double effort) {
  return search_below(pack(wanted, unit_bytes, effort), wanted, unit_bytes, effort);
}

Packing search_below(Packing best, const std::vector<PlanRequest>& wanted,
                     std::uint64_t unit_bytes, double effort) {
  // Nodes x requests of one search.
  constexpr double kWorkPerSearch = 30e6;
  constexpr int kSteps = 6;
  if (wanted.empty() || wanted.size() > kMostSearched) return best;
  const std::vector<PlanRequest> requests = in_units(wanted, unit_bytes);
  const auto budget =
      static_cast<std::uint64_t>(effort * kWorkPerSearch / static_cast<double>(requests.size()));
  std::uint64_t low = best.lower_bound_bytes;
  std::uint64_t goal = low;
  for (int step = 0; step < kSteps && best.peak_bytes > low; ++step) {
    FitResult found = fit_within(requests, goal, budget);
    if (found.fit == Fit::kFits) {
      best.offsets = std::move(found.offsets);
      best.peak_bytes = 0;
      for (std::size_t i = 0; i < requests.size(); ++i)
        best.peak_bytes = std::max(best.peak_bytes, best.offsets[i] + requests[i].size);
    } else {
      low = goal + unit_bytes;
    }
    goal = align_down(low + (best.peak_bytes - std::min(low, best.peak_bytes)) / 2, unit_bytes);
  }
  return best;
}

}  // namespace tenon
