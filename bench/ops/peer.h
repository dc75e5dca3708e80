// The other libraries, seen from ours: this header knows nothing of them.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::bench {

using Call = std::function<void()>;

namespace detail {
inline double elapsed_ns(const Call& body, int calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) body();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}
}  // namespace detail

// Nanoseconds for one call of each body that there is (0 for an empty one): the fastest of many
// short rounds, since a machine's other users only ever make it slower and a short round has the
// better chance to run undisturbed. Bodies take turns, so that all see the same disturbances.
inline std::vector<double> measure_together(const std::vector<Call>& bodies) {
  constexpr double kRoundNs = 4e5;
  constexpr double kTotalNs = 6e7;  // for each body
  std::vector<double> best(bodies.size(), 0);
  std::vector<int> calls(bodies.size(), 1);
  double longest = 1;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    if (!bodies[i]) continue;
    detail::elapsed_ns(bodies[i], 1);  // warm
    best[i] = std::max(detail::elapsed_ns(bodies[i], 1), 20.0);
    calls[i] = std::clamp(static_cast<int>(kRoundNs / best[i]), 1, 20000);
    longest = std::max(longest, best[i] * calls[i]);
  }
  const int rounds = std::clamp(static_cast<int>(kTotalNs / longest), 4, 150);
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < bodies.size(); ++i)
      if (bodies[i])
        best[i] = std::min(best[i], detail::elapsed_ns(bodies[i], calls[i]) / calls[i]);
  return best;
}
inline double measure_ns(const Call& body) { return measure_together({body})[0]; }

// PyTorch's operator of that name on the same memory; empty where the build has no PyTorch.
// Throws std::invalid_argument for a name that it has not.
Call peer_call(const std::string& name, const std::vector<Tensor>& inputs);
// The operator and the gradients of those inputs that are wanted, from a gradient of ones.
Call peer_gradients(const std::string& name, const std::vector<Tensor>& inputs,
                    const std::vector<bool>& wanted);
void set_peer_threads(int threads);

// The product of two square matrices of one dtype by OpenBLAS (f32) and by oneDNN's primitive;
// empty where the library has none for the dtype on this machine.
Call openblas_matmul(const Tensor& a, const Tensor& b, int threads);
Call onednn_matmul(const Tensor& a, const Tensor& b, int threads);

}  // namespace tenon::bench
