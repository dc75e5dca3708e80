// Convolutions by oneDNN.
#pragma once

#include "tenon/ops/conv.h"

// All take dense tensors of one dtype that has_onednn_conv, [N, C, H, W] and [out, C / groups, kh,
// kw], each contiguous or channels-last, and compute directly in whatever layout suits the machine.
// The batch, or of few images the rows of the result, are cut into parts by sizes alone. Several
// threads take parts, and what parts add up to is added in order: the result is the same on any
// number of threads. Copies in other layouts exist for the parts in work only, and come from the
// current allocator.
//
// Where oneDNN has no direct kernel and would multiply matrices, and where columns are faster, they
// return false and do nothing.
namespace tenon::ops::cpu {

// f32; bf16 where the processor has instructions for it.
bool has_onednn_conv(DType dtype);

// out = conv2d(a, weight, bias); an undefined bias is none.
bool onednn_conv2d(const Tensor& out, const Tensor& a, const Tensor& weight, const Tensor& bias,
                   const ConvOptions& options);

// grad_input = the gradient of a, from that of the output; grad_input may be of f32, too.
bool onednn_conv2d_backward_input(const Tensor& grad_input, const Tensor& grad_output,
                                  const Tensor& weight, const ConvOptions& options);

// grad_weight = the gradient of the weight, and grad_bias (undefined: not wanted) of the bias; both
// of f32.
bool onednn_conv2d_backward_weight(const Tensor& grad_weight, const Tensor& grad_bias,
                                   const Tensor& grad_output, const Tensor& a,
                                   const ConvOptions& options);

}  // namespace tenon::ops::cpu
