// Layer, batch, group and root-mean-square normalisation.
#pragma once

#include "tenon/ops/dispatch.h"

namespace tenon::ops {

namespace detail {
Tensor layer_norm(const Tensor& a, IntList normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps);
Tensor rms_norm(const Tensor& a, IntList normalized_shape, const Tensor& weight, double eps);
Tensor group_norm(const Tensor& a, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps);
Tensor batch_norm(const Tensor& a, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps);
}  // namespace detail

namespace op {
inline constinit Operator<Tensor(const Tensor&, IntList, const Tensor&, const Tensor&, double)>
    layer_norm("layer_norm", &detail::layer_norm);
inline constinit Operator<Tensor(const Tensor&, IntList, const Tensor&, double)> rms_norm(
    "rms_norm", &detail::rms_norm);
inline constinit Operator<Tensor(const Tensor&, std::int64_t, const Tensor&, const Tensor&, double)>
    group_norm("group_norm", &detail::group_norm);
inline constinit Operator<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                 const Tensor&, bool, double, double)>
    batch_norm("batch_norm", &detail::batch_norm);
}  // namespace op

// (x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions, whose sizes are
// normalized_shape. Undefined weight or bias: none. Statistics are computed in f64.
inline Tensor layer_norm(const Tensor& a, IntList normalized_shape, const Tensor& weight = {},
                         const Tensor& bias = {}, double eps = 1e-5) {
  return op::layer_norm(a, normalized_shape, weight, bias, eps);
}
// x / sqrt(mean(x^2) + eps) * weight.
inline Tensor rms_norm(const Tensor& a, IntList normalized_shape, const Tensor& weight = {},
                       double eps = 1e-6) {
  return op::rms_norm(a, normalized_shape, weight, eps);
}
// Over groups of channels (dimension 1) and all behind them; weight and bias by channel.
inline Tensor group_norm(const Tensor& a, std::int64_t groups, const Tensor& weight = {},
                         const Tensor& bias = {}, double eps = 1e-5) {
  return op::group_norm(a, groups, weight, bias, eps);
}
// By channel (dimension 1). Training: with the batch's own statistics, of which running ones, where
// given, take a share of `momentum` in place. Otherwise with the running ones.
inline Tensor batch_norm(const Tensor& a, const Tensor& running_mean, const Tensor& running_var,
                         const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                         double momentum = 0.1, double eps = 1e-5) {
  return op::batch_norm(a, running_mean, running_var, weight, bias, training, momentum, eps);
}

}  // namespace tenon::ops
