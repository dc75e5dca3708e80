// Layer, batch, group and root-mean-square normalisation. Inputs are floating point, results have
// their shape and dtype. 16-bit floats are computed in f32, statistics in f64. Undefined weight or
// bias: none. Throws InvalidArgument for other dtypes, shapes or parameters, and OutOfMemory.
// Thread-safe unless a thread writes an argument. O(elements).
#pragma once

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"

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
    layer_norm("layer_norm", &detail::layer_norm, &labels::like, 1);
inline constinit Operator<Tensor(const Tensor&, IntList, const Tensor&, double)> rms_norm(
    "rms_norm", &detail::rms_norm, &labels::like, 1);
inline constinit Operator<Tensor(const Tensor&, std::int64_t, const Tensor&, const Tensor&, double)>
    group_norm("group_norm", &detail::group_norm, &labels::like, 1);
inline constinit Operator<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                 const Tensor&, bool, double, double)>
    batch_norm("batch_norm", &detail::batch_norm, &labels::like, 1);
}  // namespace op

// (x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions, whose sizes are
// normalized_shape; weight and bias have as many elements. The variance is that of the population
// (divided by the count). Ba, Kiros and Hinton 2016.
inline Tensor layer_norm(const Tensor& a, IntList normalized_shape, const Tensor& weight = {},
                         const Tensor& bias = {}, double eps = 1e-5) {
  return op::layer_norm(a, normalized_shape, weight, bias, eps);
}
// x / sqrt(mean(x^2) + eps) * weight over the last dimensions, as layer_norm. Zhang and Sennrich
// 2019.
inline Tensor rms_norm(const Tensor& a, IntList normalized_shape, const Tensor& weight = {},
                       double eps = 1e-6) {
  return op::rms_norm(a, normalized_shape, weight, eps);
}
// layer_norm's formula over each group of channels (dimension 1 of [N, C, ...]) and all dimensions
// behind; weight and bias are [C]. The groups must divide the channels. Wu and He 2018.
inline Tensor group_norm(const Tensor& a, std::int64_t groups, const Tensor& weight = {},
                         const Tensor& bias = {}, double eps = 1e-5) {
  return op::group_norm(a, groups, weight, bias, eps);
}
// (x - mean) / sqrt(variance + eps) * weight + bias by channel (dimension 1 of [N, C, ...]); all
// parameters are [C]. Training: mean and variance are the batch's own. The running ones, where
// given, become (1 - momentum) running + momentum batch in place, with the unbiased variance
// (divided by count - 1: NaN for one element a channel). Otherwise they are the running ones, and
// InvalidArgument is thrown without them. Ioffe and Szegedy 2015.
inline Tensor batch_norm(const Tensor& a, const Tensor& running_mean, const Tensor& running_var,
                         const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                         double momentum = 0.1, double eps = 1e-5) {
  return op::batch_norm(a, running_mean, running_var, weight, bias, training, momentum, eps);
}

}  // namespace tenon::ops
