// The same models in the other library. This header knows nothing of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::bench {

// One model's batch.
struct Batch {
  std::string model;
  Tensor x, y;
};

// A training step by Adam (forward, backward, update, gradients let go) from a copy of our
// parameters: gives the loss. Null where the build has no PyTorch.
std::function<double()> make_peer_step(const Batch& batch, const std::vector<Tensor>& parameters,
                                       int threads);

// Most bytes of the other library's tensors at once, for parameters, state and three steps; 0 where
// the build has none.
std::uint64_t peer_peak_of(const Batch& batch, const std::vector<Tensor>& parameters, int threads);

}  // namespace tenon::bench
