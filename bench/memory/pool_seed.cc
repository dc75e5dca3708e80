// What a pool is worth: the same 1000 pairs of allocate and free through the pool, straight from
// the driver, and through a cached allocator; and what a pair, or a free and an allocation
// elsewhere, costs as free blocks grow in number.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "tenon/base/random.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/compat/memory_pool.h"
#include "tenon/memory/gpu/caching_allocator.h"
#include "tenon/memory/placement/pool_allocator.h"
#include "tenon/memory/system/system_allocator.h"

namespace tenon {
namespace {

constexpr int kPairs = 1000;
constexpr int kPasses = 51;
constexpr std::size_t kSize = 4096;

std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// Median nanoseconds for one call of `pair`, of kPasses passes of `pairs` calls each.
double median_ns(int pairs, const std::function<void()>& pair) {
  std::vector<double> times;
  for (int pass = 0; pass < kPasses; ++pass) {
    const std::uint64_t start = now_ns();
    for (int i = 0; i < pairs; ++i) pair();
    times.push_back(static_cast<double>(now_ns() - start) / pairs);
  }
  std::nth_element(times.begin(), times.begin() + kPasses / 2, times.end());
  return times[kPasses / 2];
}

// Nanoseconds for one call in the fastest of many short passes, each the same work: what it costs
// while nobody else has the caches.
double best_ns(int calls, const std::function<void()>& call) {
  double best = 1e300;
  for (int pass = 0; pass < 8 * kPasses; ++pass) {
    const std::uint64_t start = now_ns();
    for (int i = 0; i < calls; ++i) call();
    best = std::min(best, static_cast<double>(now_ns() - start) / calls);
  }
  return best;
}

// Pool, direct and cached over one backend. Returns direct / pool.
double compare(const char* title, Backend& backend) {
  const auto system = std::make_shared<SystemAllocator>(backend);
  MemoryPool pool(system, 1 << 20);
  CachingAllocator caching(backend, CachingSettings{}, 0);
  const double pooled = median_ns(kPairs, [&] { pool.deallocate(pool.allocate(kSize)); });
  const double direct = median_ns(kPairs, [&] { system->allocate(kSize).clear(); });
  const double cached = median_ns(kPairs, [&] { caching.allocate(kSize).clear(); });
  fmt::print("{:<34} {:>9.1f} {:>9.1f} {:>9.1f} {:>13.2f} {:>13.2f}\n", title, pooled, direct,
             cached, direct / pooled, cached / pooled);
  return direct / pooled;
}

struct Among {
  double pair = 0;  // a block is allocated and freed again
  double turn = 0;  // one of the blocks in use is freed, and another allocated
};

// Nanoseconds for two operations in a pool that holds `holes` free blocks of random sizes, none
// next to another; for `turn`, half of them in use.
Among measure_among(std::size_t holes) {
  SimBackend backend;
  PoolAllocator pool(backend);
  Random random(holes);
  const auto any_size = [&] { return 256 * random.between(1, 256); };
  std::vector<DataPtr> in_holes, between;
  for (std::size_t i = 0; i < holes; ++i) {
    in_holes.push_back(pool.allocate(any_size()));
    between.push_back(pool.allocate(256));
  }
  in_holes.clear();
  std::vector<std::size_t> sizes(4096);
  for (std::size_t& size : sizes) size = any_size();
  std::size_t next = 0;
  const auto next_size = [&] { return sizes[next++ % sizes.size()]; };
  Among among;
  among.pair = best_ns(4096, [&] { pool.allocate(next_size()).clear(); });
  for (std::size_t i = 0; i < holes / 2; ++i) in_holes.push_back(pool.allocate(any_size()));
  among.turn = best_ns(4096, [&] {
    DataPtr& block = in_holes[random.below(in_holes.size())];
    block.clear();
    block = pool.allocate(next_size());
  });
  return among;
}

// Prints both for a growing number of holes.
void show_growth() {
  fmt::print("\n{:<34} {:>9} {:>13} {:>13}\n", "free blocks (fastest passes)", "ns a pair",
             "of 1000's", "ns a turn");
  double first = 0;
  double most = 0;
  for (const std::size_t holes : {1000, 10000, 100000, 1000000}) {
    const Among among = measure_among(holes);
    if (first == 0) first = among.pair;
    most = std::max(most, among.pair / first);
    fmt::print("{:<34} {:>9.1f} {:>13.2f} {:>13.1f}\n", holes, among.pair, among.pair / first,
               among.turn);
  }
  fmt::print("\na pair among any number of free blocks is to cost at most 3 x as much as among "
             "1000: {:.2f} x{}\n", most, most <= 3 ? "" : " (MISSED)");
}

int run() {
  fmt::print("{} pairs of {} bytes, ns for a pair (medians of {} passes)\n\n", kPairs, kSize,
             kPasses);
  fmt::print("{:<34} {:>9} {:>9} {:>9} {:>13} {:>13}\n", "driver", "pool", "direct", "cached",
             "direct/pool", "cached/pool");
  SimBackend sim;
  HostBackend host;
  HostBackend bare({.cache_bytes = 0});
  const double over_sim = compare("simulated (bookkeeping alone)", sim);
  compare("host, which caches freed memory", host);
  const double over_host = compare("host without its cache (mmap)", bare);
  const bool kept = over_host >= 2;
  fmt::print(
      "\nthe pool is to be 2 x as fast as the driver: {:.1f} x over mmap{}, {:.1f} x over the "
      "simulated driver's bookkeeping\n",
      over_host, kept ? "" : " (MISSED)", over_sim);
  show_growth();
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace tenon

int main() { return tenon::run(); }
