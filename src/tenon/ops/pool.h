// Pooling over height and width of [N, C, H, W] or [C, H, W], floating point. 16-bit floats are
// computed in f32. On the host, what comes of channels-last tensors is channels-last. Throws
// InvalidArgument for other shapes and dtypes and for options out of range, and OutOfMemory.
// Thread-safe unless a thread writes the argument.
#pragma once

#include <optional>

#include "tenon/ops/conv.h"
#include "tenon/ops/labels.h"

namespace tenon::ops {

// A window, in elements. Sizes are at least 1 and the padding at most half the kernel.
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
    "max_pool2d", &detail::max_pool2d, &labels::pool);
inline constinit Operator<Tensor(const Tensor&, const PoolOptions&)> avg_pool2d(
    "avg_pool2d", &detail::avg_pool2d, &labels::pool);
inline constinit Operator<Tensor(const Tensor&, const Pair&)> adaptive_avg_pool2d(
    "adaptive_avg_pool2d", &detail::adaptive_avg_pool2d, &labels::pool_to);
}  // namespace op

// The largest element under each window; padding is minus infinity, NaN passes on. The result has
//
//     H' = floor((H + 2 padding - kernel) / stride) + 1
//
// and W' alike; InvalidArgument where that is below 1. O(elements of the result, times the kernel).
inline Tensor max_pool2d(const Tensor& a, const PoolOptions& o) { return op::max_pool2d(a, o); }
// Under each window, the sum of the elements / their number, in max_pool2d's shape. Padding counts
// as zeros or, without count_padding, not at all.
inline Tensor avg_pool2d(const Tensor& a, const PoolOptions& o) { return op::avg_pool2d(a, o); }
// To a size: place i of n averages elements floor(i H / n) to ceil((i + 1) H / n) - 1 of each
// dimension. The result has the given height and width, 1 or more each. O(H W) for each channel.
inline Tensor adaptive_avg_pool2d(const Tensor& a, const Pair& size) {
  return op::adaptive_avg_pool2d(a, size);
}

}  // namespace tenon::ops
