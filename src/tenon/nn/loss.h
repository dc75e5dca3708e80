// Losses as objects, for programs that choose one at run time. Each gives the mean, of shape [],
// and throws what its operator of ops/loss.h throws: InvalidArgument, OutOfMemory. Dtypes promote.
// Thread-safe while no thread writes an argument. O(elements).
#pragma once

#include <functional>

#include "tenon/ops/loss.h"

namespace tenon::nn {

// What a model gave and what it should have given -> a 0-d tensor. Except for cross_entropy_loss,
// the two broadcast.
using Loss = std::function<Tensor(const Tensor& output, const Tensor& target)>;

// The mean of log(sum_c exp(x[c])) - x[target] over logits [N, C, ...] and integer classes [N,
// ...], without those that are ops::kIgnoreIndex. `label_smoothing` (0 to 1) divides that share of
// each target equally among all classes.
inline Loss cross_entropy_loss(double label_smoothing = 0) {
  return [=](const Tensor& logits, const Tensor& target) {
    return ops::cross_entropy(logits, target, ops::Reduction::kMean, ops::kIgnoreIndex,
                              label_smoothing);
  };
}
// The mean of (a - b)^2.
inline Loss mse_loss() {
  return [](const Tensor& a, const Tensor& b) { return ops::mse_loss(a, b); };
}
// The mean of |a - b|.
inline Loss l1_loss() {
  return [](const Tensor& a, const Tensor& b) { return ops::l1_loss(a, b); };
}
// The mean of (a - b)^2 / 2 where |a - b| <= delta, else of delta (|a - b| - delta / 2). Throws
// InvalidArgument, when called, unless delta > 0.
inline Loss huber_loss(double delta = 1) {
  return [=](const Tensor& a, const Tensor& b) {
    return ops::huber_loss(a, b, ops::Reduction::kMean, delta);
  };
}
// The mean of -y log(sigmoid(x)) - (1 - y) log(1 - sigmoid(x)) for logits x and targets y in [0,
// 1].
inline Loss binary_cross_entropy_loss() {
  return [](const Tensor& logits, const Tensor& target) {
    return ops::binary_cross_entropy_with_logits(logits, target);
  };
}

}  // namespace tenon::nn
