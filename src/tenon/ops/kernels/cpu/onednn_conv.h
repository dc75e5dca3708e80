// Convolutions by oneDNN.
#pragma once

#include "tenon/ops/conv.h"

namespace tenon::ops::cpu {

// out = conv2d(a, weight, bias) for dense f32 tensors in NCHW order; an undefined bias is none.
// Direct convolution in whatever blocked layout suits the machine; reordered operands and scratch
// memory come from the current allocator. On num_threads() threads, with the same result on any
// number: where oneDNN has no direct kernel and would cut a product of matrices by threads, this
// returns false and does nothing.
bool onednn_conv2d(const Tensor& out, const Tensor& a, const Tensor& weight, const Tensor& bias,
                   const ConvOptions& options);

}  // namespace tenon::ops::cpu
