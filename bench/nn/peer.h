// The same models in the other library. This header knows nothing of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tenon/nn/models.h"

namespace tenon::bench {

// What both sides train.
struct Case {
  std::string name;       // "mlp", "cnn", "gpt", "2-8-1"
  std::string optimizer;  // "sgd" (with momentum) or "adam"
  double learning_rate = 1e-3;
  Tensor input, target;  // one batch
  nn::GptOptions gpt;    // of "gpt"
};

// A model with a copy of our weights, and its optimiser.
class Peer {
 public:
  virtual ~Peer() = default;
  // Forward, backward, update, gradients let go. Returns the loss.
  virtual double step(const Tensor& input, const Tensor& target) = 0;
};

// Null where the build has no PyTorch.
std::unique_ptr<Peer> make_peer(const Case& what, const std::vector<nn::NamedTensor>& weights,
                                int threads);

// Most bytes of the other library's tensors at once for such a model, its state and some steps on
// the case's batch; 0 where the build has none.
std::uint64_t peer_peak_of(const Case& what, const std::vector<nn::NamedTensor>& weights,
                           int threads);

}  // namespace tenon::bench
