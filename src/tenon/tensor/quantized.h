// int8 tensors with a scale and a zero point: a quarter of float32's bytes. Thread-safe unless a
// thread writes an argument.
#pragma once

#include "tenon/tensor/tensor.h"

namespace tenon {

// Affine quantisation, PyTorch's qint8: an element q stands for scale * (q - zero_point). One scale
// and zero point for the whole tensor, or one for each index of a dimension (a channel).
//
// A quantised tensor is a Tensor of dtype kQI8 with bytes, strides and views as any other. It is
// stored, copied and dequantised. Operators refuse it. Copies keep the parameters, and copy_ and
// fill_ into one quantise by its own. Views keep them, too. Views that mix channels (view, reshape,
// expand and the like, of a tensor that has several) have none, and dequantize refuses them.
// resize_ and set_ keep the parameters; of a tensor quantised per channel they refuse other sizes.
// No gradient passes.
//
// Each function throws InvalidArgument, naming what does not fit. O(elements).

// The nearest of the 256 values, ties to even. What lies beyond takes the last one, and NaN the
// smallest. Of a strided host tensor of real floating point, in f32. `scale` is positive, and
// float32 holds it and its inverse. `zero_point` is in [-128, 127].
Tensor quantize_per_tensor(const Tensor& t, double scale, std::int64_t zero_point);
// `scales` and `zero_points` have an element for each index of dimension `axis`.
Tensor quantize_per_channel(const Tensor& t, const Tensor& scales, const Tensor& zero_points,
                            std::int64_t axis);
// The values, as float32.
Tensor dequantize(const Tensor& quantized);
// The stored integers, as a copy of dtype int8.
Tensor int_repr(const Tensor& quantized);

// Of dtype kQI8.
inline bool is_quantized(const Tensor& t) { return t.dtype() == DType::kQI8; }
bool is_quantized_per_channel(const Tensor& quantized);
// Of one quantised per tensor.
double q_scale(const Tensor& quantized);
std::int64_t q_zero_point(const Tensor& quantized);
// Of one quantised per channel: float64 and int64.
const Tensor& q_per_channel_scales(const Tensor& quantized);
const Tensor& q_per_channel_zero_points(const Tensor& quantized);
std::int64_t q_per_channel_axis(const Tensor& quantized);

namespace detail {
// For the functions that copy. Quantises `source` by the parameters of `target`.
void quantize_into(const Tensor& target, const Tensor& source);
// `copy`, of dtype kQI8, gets the parameters of `source`, if it has some.
void share_quantizer(const Tensor& copy, const Tensor& source);
// Throws InvalidArgument for a tensor quantised per channel that is to have other sizes.
void check_new_sizes(const TensorImpl& tensor, IntList sizes);
bool same_quantizer(const Tensor& a, const Tensor& b);
}  // namespace detail

}  // namespace tenon
