// The other library, seen from ours: this header knows nothing of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::bench {

// Nanoseconds for one call: the fastest of several rounds of some milliseconds each, since a
// machine's other users only ever make it slower.
inline double measure_ns(const std::function<void()>& body) {
  using Clock = std::chrono::steady_clock;
  const auto time = [&](int calls) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) body();
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  };
  time(1);  // warm
  const double once = std::max(time(1), 50.0);
  const int calls = std::clamp(static_cast<int>(5e6 / once), 1, 100000);
  double best = once * 10;
  for (int round = 0; round < (once > 2e7 ? 4 : 9); ++round)
    best = std::min(best, time(calls) / calls);
  return best;
}

// The same for libtorch's operator of that name on the same memory, with as many threads; 0 where
// the build has no libtorch.
double peer_ns(const std::string& name, const std::vector<Tensor>& inputs, int threads);

}  // namespace tenon::bench
