// Losses: with Reduction::kNone one for each target or element, else a 0-d tensor. Dtypes promote.
// The mean of integers is refused. Thread-safe unless a thread writes an argument. O(elements).
// Throws InvalidArgument for shapes, dtypes and numbers that do not fit; OutOfMemory.
#pragma once

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"

namespace tenon::ops {

// What becomes of the single losses.
enum class Reduction : std::uint8_t { kNone, kMean, kSum };
// The class that counts for nothing.
inline constexpr std::int64_t kIgnoreIndex = -100;

namespace detail {
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, Reduction reduction,
                std::int64_t ignore_index);
Tensor cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction,
                     std::int64_t ignore_index, double label_smoothing);
Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction);
Tensor l1_loss(const Tensor& a, const Tensor& b, Reduction reduction);
Tensor huber_loss(const Tensor& a, const Tensor& b, Reduction reduction, double delta);
Tensor bce_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction);
}  // namespace detail

namespace op {
using PairLossOperator = Operator<Tensor(const Tensor&, const Tensor&, Reduction)>;
inline constinit Operator<Tensor(const Tensor&, const Tensor&, Reduction, std::int64_t)> nll_loss(
    "nll_loss", &detail::nll_loss, &labels::loss);
inline constinit Operator<Tensor(const Tensor&, const Tensor&, Reduction, std::int64_t, double)>
    cross_entropy("cross_entropy", &detail::cross_entropy, &labels::smoothed_loss);
inline constinit PairLossOperator mse_loss("mse_loss", &detail::mse_loss, &labels::pair_loss);
inline constinit PairLossOperator l1_loss("l1_loss", &detail::l1_loss, &labels::pair_loss);
inline constinit Operator<Tensor(const Tensor&, const Tensor&, Reduction, double)> huber_loss(
    "huber_loss", &detail::huber_loss, &labels::huber);
inline constinit PairLossOperator binary_cross_entropy_with_logits(
    "binary_cross_entropy_with_logits", &detail::bce_with_logits, &labels::pair_loss);
}  // namespace op

// -x[target]: classes stand in dimension 1 (0 of a 1-d input), [N, C, ...] with integer targets
// [N, ...] in [0, C). Targets equal to ignore_index count for nothing, also in the mean, which is
// over the others (NaN if there are none). Throws InvalidArgument for another target.
inline Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target,
                       Reduction reduction = Reduction::kMean,
                       std::int64_t ignore_index = kIgnoreIndex) {
  return op::nll_loss(log_probabilities, target, reduction, ignore_index);
}
// log(sum_c exp(x[c])) - x[target]: nll_loss of log_softmax. With label_smoothing s (0 to 1) it is
// (1 - s) times that plus s times its mean over all classes. Throws as nll_loss, and for another s.
inline Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                            Reduction reduction = Reduction::kMean,
                            std::int64_t ignore_index = kIgnoreIndex, double label_smoothing = 0) {
  return op::cross_entropy(logits, target, reduction, ignore_index, label_smoothing);
}
// (a - b)^2. Operands broadcast and promote.
inline Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::kMean) {
  return op::mse_loss(a, b, reduction);
}
// |a - b|. Operands broadcast and promote.
inline Tensor l1_loss(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::kMean) {
  return op::l1_loss(a, b, reduction);
}
// (a - b)^2 / 2 where |a - b| <= delta, else delta (|a - b| - delta / 2). Operands broadcast and
// promote. Throws InvalidArgument unless delta > 0. Huber 1964.
inline Tensor huber_loss(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::kMean,
                         double delta = 1) {
  return op::huber_loss(a, b, reduction, delta);
}
// -y log(sigmoid(x)) - (1 - y) log(1 - sigmoid(x)) for logits x and targets y in [0, 1], computed
// as max(x, 0) - x y + log(1 + exp(-|x|)), which does not overflow. Operands broadcast and promote.
inline Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                               Reduction reduction = Reduction::kMean) {
  return op::binary_cross_entropy_with_logits(logits, target, reduction);
}

}  // namespace tenon::ops
