// Convolutions on the host, by loops and products of matrices of ours.
#pragma once

#include "tenon/ops/conv.h"
#include "tenon/tensor/tensor.h"

namespace tenon::ops {

// One image's sizes under a kernel that walks it. For the transposed convolution `image` is the
// output.
struct ConvWindow {
  std::int64_t channels, height, width;  // of the image, in one group
  std::int64_t kernel_height, kernel_width;
  std::int64_t out_height, out_width;  // how many places the kernel takes
  ConvOptions options;

  std::int64_t rows() const { return channels * kernel_height * kernel_width; }
  std::int64_t columns() const { return out_height * out_width; }
  // The image is its own matrix.
  bool is_plain() const {
    return kernel_height == 1 && kernel_width == 1 && options.stride.height == 1 &&
           options.stride.width == 1 && options.padding.height == 0 && options.padding.width == 0;
  }
};

// All tensors are dense, in the order that the namespace says, on the host and of one dtype, f32 or
// f64, and have elements. An undefined bias is none. Results are the same on any number of threads.
// OutOfMemory for the matrices.

// Images in planes: a window becomes a column of a matrix.
namespace planes {
// out = the convolution of `a`.
void convolve(const Tensor& out, const Tensor& a, const Tensor& weight, const Tensor& bias,
              const ConvWindow& w);
// out = the transposed convolution of `a`, which has the places.
void convolve_transposed(const Tensor& out, const Tensor& a, const Tensor& weight,
                         const Tensor& bias, const ConvWindow& w);
// out, of the weight's shape and zero before, = its gradient from that of the places.
void correlate(const Tensor& out, const Tensor& gradient, const Tensor& a, const ConvWindow& w);
}  // namespace planes

// The same of channels-last images and weights: a window becomes a row, its channels side by side.
namespace channels_last {
void convolve(const Tensor& out, const Tensor& a, const Tensor& weight, const Tensor& bias,
              const ConvWindow& w);
void convolve_transposed(const Tensor& out, const Tensor& a, const Tensor& weight,
                         const Tensor& bias, const ConvWindow& w);
void correlate(const Tensor& out, const Tensor& gradient, const Tensor& a, const ConvWindow& w);
}  // namespace channels_last

}  // namespace tenon::ops
