#include "tenon/lab/planning/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
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

using Order = std::vector<std::uint32_t>;

// Beginnings and ends in order of time; at one time, ends first.
struct Moment {
  std::uint32_t time;
  bool begins;
  std::uint32_t request;
};

std::vector<Moment> moments_of(const std::vector<PlanRequest>& requests, const Order& which) {
  std::vector<Moment> moments;
  moments.reserve(2 * which.size());
  for (const std::uint32_t i : which) {
    moments.push_back({requests[i].begin, true, i});
    moments.push_back({requests[i].end, false, i});
  }
  std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    if (a.time != b.time) return a.time < b.time;
    if (a.begins != b.begins) return b.begins;
    return a.request < b.request;
  });
  return moments;
}

std::uint64_t live_peak(const std::vector<PlanRequest>& requests, const Order& which) {
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  for (const Moment& m : moments_of(requests, which)) {
    live = m.begins ? live + requests[m.request].size : live - requests[m.request].size;
    peak = std::max(peak, live);
  }
  return peak;
}

// A way to give offsets to some of the requests; returns the highest end.
std::uint64_t replay(const std::vector<PlanRequest>& requests, const Order& which,
                     std::vector<std::uint64_t>& offsets) {
  BestFitHeap heap;
  heap.add_extent(0, std::uint64_t{1} << 62);
  std::vector<Block*> blocks(requests.size());
  std::uint64_t peak = 0;
  for (const Moment& m : moments_of(requests, which)) {
    if (!m.begins) {
      heap.release(blocks[m.request]);
      continue;
    }
    Block* block = blocks[m.request] = heap.place(requests[m.request].size);
    offsets[m.request] = block->offset;
    peak = std::max(peak, block->offset + block->size);
  }
  return peak;
}

std::uint64_t greedy(const std::vector<PlanRequest>& requests, const Order& order,
                     std::vector<std::uint64_t>& offsets, std::uint64_t give_up_at) {
  std::uint32_t duration = 1;
  for (const PlanRequest& r : requests) duration = std::max(duration, r.end);
  PackedIndex placed(duration);
  std::uint64_t peak = 0;
  for (const std::uint32_t i : order) {
    const PlanRequest& r = requests[i];
    const std::uint64_t offset = placed.lowest_fit(r.size, r.begin, r.end);
    placed.insert({offset, offset + r.size, r.begin, r.end});
    offsets[i] = offset;
    peak = std::max(peak, offset + r.size);
    if (peak >= give_up_at) break;
  }
  return peak;
}

// Largest key first; ties in the order of time.
Order ordered_by(const std::vector<PlanRequest>& requests, Order which,
                 const std::function<double(const PlanRequest&)>& key) {
  std::vector<double> keys(requests.size());
  for (const std::uint32_t i : which) keys[i] = key(requests[i]);
  std::sort(which.begin(), which.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (keys[a] != keys[b]) return keys[a] > keys[b];
    if (requests[a].size != requests[b].size) return requests[a].size > requests[b].size;
    return a < b;
  });
  return which;
}

double life(const PlanRequest& r) { return static_cast<double>(r.end - r.begin); }

// The largest power of two such that all requests up to it need at most 1/kSmallShare together.
std::uint64_t small_limit(const std::vector<PlanRequest>& requests, std::uint64_t whole) {
  if (requests.size() < kFewRequests) return 0;
  std::uint64_t limit = 0;
  for (std::uint64_t candidate = 1; candidate <= whole / kSmallShare; candidate *= 2) {
    Order small;
    for (std::uint32_t i = 0; i < requests.size(); ++i)
      if (requests[i].size <= candidate) small.push_back(i);
    if (live_peak(requests, small) > whole / kSmallShare) break;
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

}  // namespace

Packing pack(const std::vector<PlanRequest>& wanted, std::uint64_t unit_bytes) {
  const std::vector<PlanRequest> requests = in_units(wanted, unit_bytes);
  Order all(requests.size());
  std::iota(all.begin(), all.end(), 0);
  Packing best;
  best.lower_bound_bytes = live_peak(requests, all);
  best.offsets.resize(requests.size());
  best.peak_bytes = replay(requests, all, best.offsets);

  const std::uint64_t limit = small_limit(requests, best.lower_bound_bytes);
  Order small, large;
  for (const std::uint32_t i : all) (requests[i].size <= limit ? small : large).push_back(i);
  std::vector<std::uint64_t> offsets(requests.size());
  const std::uint64_t strip = replay(requests, small, offsets);

  const std::function<double(const PlanRequest&)> keys[] = {
      [](const PlanRequest& r) { return static_cast<double>(r.size); },
      [](const PlanRequest& r) { return static_cast<double>(r.size) * life(r); },
      [](const PlanRequest& r) { return life(r); },
  };
  const auto try_order = [&](const Order& order, std::uint64_t give_up_at) {
    const std::uint64_t peak = greedy(requests, order, offsets, give_up_at);
    if (strip + peak >= best.peak_bytes) return peak;
    best.peak_bytes = strip + peak;
    for (const std::uint32_t i : large) best.offsets[i] = offsets[i];
    for (const std::uint32_t i : small) best.offsets[i] = peak + offsets[i];
    return peak;
  };
  const auto good_enough = [&] {
    return best.peak_bytes <= best.lower_bound_bytes + best.lower_bound_bytes / kGoodShare;
  };
  for (const auto& key : keys) {
    if (good_enough()) return best;
    try_order(ordered_by(requests, large, key), best.peak_bytes - strip);
  }
  // Whoever ended highest came too late: it goes to the front, and the rest follows as before.
  Order order = ordered_by(requests, large, keys[0]);
  for (int round = 0; round < kPromotions && !good_enough(); ++round) {
    const std::uint64_t peak = try_order(order, UINT64_MAX);
    std::stable_partition(order.begin(), order.end(), [&](std::uint32_t i) {
      return offsets[i] + requests[i].size == peak;
    });
  }
  return best;
}

Packing pack_tightly(const std::vector<PlanRequest>& wanted, std::uint64_t unit_bytes,
                     double effort) {
  // Nodes x requests of one search.
  constexpr double kWorkPerSearch = 30e6;
  constexpr int kSteps = 6;
  Packing best = pack(wanted, unit_bytes);
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
