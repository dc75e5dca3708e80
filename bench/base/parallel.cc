// A parallel loop of two threads beside OpenMP's and beside one thread.
//   bench_parallel
#include "tenon/base/parallel.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace {

constexpr int kLoops = 3001;

template <typename Loop>
double median_us(Loop&& loop) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int i = 0; i < kLoops; ++i) {
    const auto start = Clock::now();
    loop();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + kLoops / 2, times.end());
  return times[kLoops / 2];
}

}  // namespace

int main() {
  tenon::set_num_threads(2);
  omp_set_num_threads(2);
  fmt::print("multiply-adds on two threads; us, medians of {} loops (OMP_WAIT_POLICY counts)\n",
             kLoops);
  fmt::print("{:>8} {:>8} {:>8} {:>8}\n", "count", "tenon", "openmp", "one");
  for (const std::int64_t count : {1 << 12, 1 << 14, 1 << 16, 1 << 18}) {
    std::vector<double> data(static_cast<std::size_t>(count), 1.0);
    const auto body = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        data[static_cast<std::size_t>(i)] = data[static_cast<std::size_t>(i)] * 1.0001 + 1;
    };
    const double ours = median_us([&] { tenon::parallel_for(0, count, count / 2, body); });
    const double openmp = median_us([&] {
#pragma omp parallel for schedule(static)
      for (int half = 0; half < 2; ++half) body(half * count / 2, (half + 1) * count / 2);
    });
    const double one = median_us([&] { body(0, count); });
    fmt::print("{:>8} {:>8.2f} {:>8.2f} {:>8.2f}\n", count, ours, openmp, one);
  }
  return 0;
}
