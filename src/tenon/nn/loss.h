// Losses as objects, for programs that choose one at run time.
#pragma once

#include <functional>

#include "tenon/ops/loss.h"

namespace tenon::nn {

// What a model gave and what it should have given -> a 0-d tensor.
using Loss = std::function<Tensor(const Tensor& output, const Tensor& target)>;

// Of logits [N, C, ...] and classes [N, ...]; `label_smoothing` gives that share of each target to
// all classes alike.
inline Loss cross_entropy_loss(double label_smoothing = 0) {
  return [=](const Tensor& logits, const Tensor& target) {
    return ops::cross_entropy(logits, target, ops::Reduction::kMean, ops::kIgnoreIndex,
                              label_smoothing);
  };
}
inline Loss mse_loss() {
  return [](const Tensor& a, const Tensor& b) { return ops::mse_loss(a, b); };
}
inline Loss l1_loss() {
  return [](const Tensor& a, const Tensor& b) { return ops::l1_loss(a, b); };
}
inline Loss huber_loss(double delta = 1) {
  return [=](const Tensor& a, const Tensor& b) {
    return ops::huber_loss(a, b, ops::Reduction::kMean, delta);
  };
}
inline Loss binary_cross_entropy_loss() {
  return [](const Tensor& logits, const Tensor& target) {
    return ops::binary_cross_entropy_with_logits(logits, target);
  };
}

}  // namespace tenon::nn
