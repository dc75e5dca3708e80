// Pooling over height and width.
#pragma once

#include <optional>

#include "tenon/ops/conv.h"

namespace tenon::ops {

struct PoolOptions {
  Pair kernel = 1;
  Pair stride = 0;  // 0: the kernel's size
  Pair padding = 0;
  bool count_padding = true;  // in averages
};

namespace detail {
Tensor max_pool2d(const Tensor& a, const PoolOptions& o);
Tensor avg_pool2d(const Tensor& a, const PoolOptions& o);
Tensor adaptive_avg_pool2d(const Tensor& a, const Pair& size);
}  // namespace detail

namespace op {
inline constinit Operator<Tensor(const Tensor&, const PoolOptions&)> max_pool2d(
    "max_pool2d", &detail::max_pool2d);
inline constinit Operator<Tensor(const Tensor&, const PoolOptions&)> avg_pool2d(
    "avg_pool2d", &detail::avg_pool2d);
inline constinit Operator<Tensor(const Tensor&, const Pair&)> adaptive_avg_pool2d(
    "adaptive_avg_pool2d", &detail::adaptive_avg_pool2d);
}  // namespace op

// [N, C, H, W] or [C, H, W], floating point. Padding is minus infinity for the maximum (and so at
// most half a kernel), zero for the average. NaN passes on.
inline Tensor max_pool2d(const Tensor& a, const PoolOptions& o) { return op::max_pool2d(a, o); }
inline Tensor avg_pool2d(const Tensor& a, const PoolOptions& o) { return op::avg_pool2d(a, o); }
// To a size: place i of n averages elements floor(i H / n) to ceil((i + 1) H / n) - 1.
inline Tensor adaptive_avg_pool2d(const Tensor& a, const Pair& size) {
  return op::adaptive_avg_pool2d(a, size);
}

}  // namespace tenon::ops
