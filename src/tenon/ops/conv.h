// Convolutions of one real floating-point dtype. Sums of 16-bit floats are of f32. On the host,
// what comes of channels-last images is channels-last. Throws InvalidArgument, with the shapes,
// where channels, groups, dtypes or options do not fit, and OutOfMemory. Thread-safe unless a
// thread writes an argument. The result is the same on any number of threads.
#pragma once

#include <array>

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"

namespace tenon::ops {

// Two numbers, for height and width; one stands for both.
struct Pair {
  std::int64_t height, width;
  // The same number for both.
  constexpr Pair(std::int64_t both) : height(both), width(both) {}
  // Height, width.
  constexpr Pair(std::int64_t h, std::int64_t w) : height(h), width(w) {}
};

// How the kernel walks, in elements. Strides, dilations and groups are at least 1, paddings at
// least 0.
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
inline constinit ConvOperator conv2d("conv2d", &detail::conv2d, &labels::conv, 2);
inline constinit ConvOperator conv_transpose2d("conv_transpose2d", &detail::conv_transpose2d,
                                               &labels::conv_transposed, 2);
inline constinit ConvOperator conv1d("conv1d", &detail::conv1d, &labels::conv_line, 2);
}  // namespace op

// Cross-correlation of [N, C, H, W] and a weight [out, C / groups, kh, kw], plus a bias [out] or an
// undefined one: [N, out, H', W'] with
//
//     H' = floor((H + 2 padding - dilation (kh - 1) - 1) / stride) + 1
//
// and W' alike. Throws InvalidArgument where that is below 1. O(N out H' W' C / groups kh kw).
inline Tensor conv2d(const Tensor& a, const Tensor& weight, const Tensor& bias = {},
                     const ConvOptions& options = {}) {
  return op::conv2d(a, weight, bias, options);
}
// [N, C, L] by weight [out, C / groups, k]: [N, out, L'], with L' as W' of conv2d; the widths of
// the options count. O(N out L' C / groups k).
inline Tensor conv1d(const Tensor& a, const Tensor& weight, const Tensor& bias = {},
                     const ConvOptions& options = {}) {
  return op::conv1d(a, weight, bias, options);
}
// The gradient of conv2d with respect to its input: [N, C, H, W] and a weight [C, out / groups, kh,
// kw] give [N, out, H', W'] with
//
//     H' = (H - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1
//
// and W' alike. Throws InvalidArgument where that is below 1, or an output_padding is not smaller
// than the larger of stride and dilation. O(N C H W out / groups kh kw).
inline Tensor conv_transpose2d(const Tensor& a, const Tensor& weight, const Tensor& bias = {},
                               const ConvOptions& options = {}) {
  return op::conv_transpose2d(a, weight, bias, options);
}

}  // namespace tenon::ops
