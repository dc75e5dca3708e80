// Convolutions.
#pragma once

#include <array>

#include "tenon/ops/dispatch.h"

namespace tenon::ops {

// Two numbers, for height and width; one stands for both.
struct Pair {
  std::int64_t height, width;
  constexpr Pair(std::int64_t both) : height(both), width(both) {}
  constexpr Pair(std::int64_t h, std::int64_t w) : height(h), width(w) {}
};

struct ConvOptions {
  Pair stride = 1;
  Pair padding = 0;
  Pair dilation = 1;
  std::int64_t groups = 1;
  Pair output_padding = 0;  // of the transposed convolution
};

namespace detail {
Tensor conv2d(const Tensor& a, const Tensor& weight, const Tensor& bias, const ConvOptions& o);
Tensor conv_transpose2d(const Tensor& a, const Tensor& weight, const Tensor& bias,
                        const ConvOptions& o);
Tensor conv1d(const Tensor& a, const Tensor& weight, const Tensor& bias, const ConvOptions& o);
// The gradient of conv2d's weight (of `sizes`) from those of its result: not dispatched, not
// recorded; the autograd layer's fast way. Requires: shapes that fit.
Tensor conv2d_weight_gradient(const Tensor& gradient, const Tensor& a, IntList sizes,
                              const ConvOptions& o);
}  // namespace detail

namespace op {
using ConvOperator =
    Operator<Tensor(const Tensor&, const Tensor&, const Tensor&, const ConvOptions&)>;
inline constinit ConvOperator conv2d("conv2d", &detail::conv2d);
inline constinit ConvOperator conv_transpose2d("conv_transpose2d", &detail::conv_transpose2d);
inline constinit ConvOperator conv1d("conv1d", &detail::conv1d);
}  // namespace op

// [N, C, H, W] by weight [out, C / groups, kh, kw], plus a bias [out] or an undefined one. One
// floating dtype; 16-bit floats are computed in f32.
inline Tensor conv2d(const Tensor& a, const Tensor& weight, const Tensor& bias = {},
                     const ConvOptions& options = {}) {
  return op::conv2d(a, weight, bias, options);
}
// [N, C, L] by weight [out, C / groups, k]; the widths of the options count.
inline Tensor conv1d(const Tensor& a, const Tensor& weight, const Tensor& bias = {},
                     const ConvOptions& options = {}) {
  return op::conv1d(a, weight, bias, options);
}
// The transposed operation: weight [C, out / groups, kh, kw].
inline Tensor conv_transpose2d(const Tensor& a, const Tensor& weight, const Tensor& bias = {},
                               const ConvOptions& options = {}) {
  return op::conv_transpose2d(a, weight, bias, options);
}

}  // namespace tenon::ops
