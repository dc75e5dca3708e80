// What a second thread on a second stream adds: operations a second of two threads over those of
// one, on one allocator.
//   bench_two_threads [passes]
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace {

constexpr int kOperations = 400'000;  // of each thread, in a pass

// Sixty-four live blocks of 512 B to 16 MiB, replaced in random order.
void work(tenon::DeviceAllocator& allocator, tenon::Stream stream, std::uint64_t seed,
          int operations) {
  tenon::Random random(seed);
  std::vector<tenon::DataPtr> live(64);
  for (int i = 0; i < operations; ++i) {
    tenon::DataPtr& block = live[random.below(live.size())];
    block.clear();
    block = allocator.allocate_on(std::size_t{1} << random.between(9, 24), stream);
  }
}

double operations_per_us(tenon::DeviceAllocator& allocator,
                         const std::vector<tenon::Stream>& streams, std::size_t count) {
  std::atomic<std::size_t> ready = 0;
  std::atomic<bool> go = false;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      work(allocator, streams[t], t, kOperations / 10);  // its heap, its memory
      ++ready;
      while (!go) std::this_thread::yield();
      work(allocator, streams[t], t + 100, kOperations);
    });
  while (ready != count) std::this_thread::yield();
  const auto start = std::chrono::steady_clock::now();
  go = true;
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  return static_cast<double>(count) * kOperations / elapsed.count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int passes = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  if (std::thread::hardware_concurrency() < 2) {
    fmt::print("this machine runs one thread at a time: nothing to measure\n");
    return 0;
  }
  fmt::print("{:>11} {:>12} {:>12} {:>9}\n", "policy", "1 thread", "2 threads", "ratio");
  for (const tenon::Policy& policy : tenon::policies()) {
    if (policy.name == "plan") continue;  // serves the trace that it was planned from
    tenon::SimBackend backend{tenon::SimOptions{}};
    const auto allocator = tenon::make_policy(policy.name, backend);
    const std::vector<tenon::Stream> streams = {backend.create_stream(), backend.create_stream()};
    std::vector<double> one;
    std::vector<double> two;
    std::vector<double> ratios;  // of neighbouring measurements: a noisy moment meets both
    for (int pass = 0; pass < passes; ++pass) {
      one.push_back(operations_per_us(*allocator, streams, 1));
      two.push_back(operations_per_us(*allocator, streams, 2));
      ratios.push_back(two.back() / one.back());
    }
    fmt::print("{:>11} {:>9.1f}/us {:>9.1f}/us {:>8.2f}x\n", policy.name, median(one), median(two),
               median(ratios));
  }
  return 0;
}
