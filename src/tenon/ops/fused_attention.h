// Attention on the host without the scores in memory: Note [Attention in tiles] in
// kernels/cpu/attention_tiles.h. Thread-safe unless a thread writes an argument. O(L S (E + V))
// work for each head.
#pragma once

#include <optional>

#include "tenon/ops/dispatch.h"

namespace tenon::ops {

// query [..., L, E], key [..., S, E], value [..., S, V], and a mask that is undefined, of bools, or
// of numbers to add. Leading dimensions and the mask broadcast.
struct Attention {
  Tensor query, key, value, mask;
  bool is_causal = false;
  double scale = 1;

  DType dtype() const { return query.dtype(); }
  // Of the result, [..., L, V]. Throws InvalidArgument where leading dimensions do not broadcast.
  DimVector sizes() const;
};

// The call's arguments, checked: what scaled_dot_product_attention throws for those.
Attention attention_of(const Tensor& query, const Tensor& key, const Tensor& value,
                       const Tensor& mask, bool is_causal, std::optional<double> scale);

// From what attention is made of: other dtypes and devices, labels, and derivatives of derivatives.
// Keeps the scores, and so does its gradient.
Tensor composed_attention(const Attention& attention);

// Whether the functions below compute it, and are worth it: on the host, and on meta, where they do
// all but the arithmetic and hand symbols on. Tensors with names they do not serve.
bool has_fused_attention(const Attention& attention);

// What a forward pass writes: `out`, of the result's sizes and dtype, with dense rows, and, unless
// undefined, what its gradient needs of each query's sum.
struct AttentionResult {
  Tensor out, sums;
};
// [..., 2, L], in the dtype of the arithmetic: compute_dtype().
Tensor empty_sums(const Attention& attention);

// Scratch memory: some tiles for each thread. Requires: has_fused_attention, or a few queries where
// that wants more.
void fused_attention(const Attention& attention, const AttentionResult& to);

// Its gradients, from that of the result and what the forward pass wrote. Defined ones are written;
// they have dense rows, the sizes of query, key and value with all leading dimensions, and are of
// the dtype of the arithmetic. Scratch memory: some tiles for each thread, and a number for each
// query of each head. Throws OutOfMemory.
struct AttentionGradients {
  Tensor query, key, value;
};
void fused_attention_gradients(const Attention& attention, const AttentionResult& result,
                               const Tensor& gradient, const AttentionGradients& to);

// An empty tensor for the result: its memory has the order of dimensions of the queries'.
Tensor empty_attention(const Attention& attention);

// An empty tensor for the gradient of `operand`, which is query, key or value: with all leading
// dimensions, in the operand's order, of the dtype of the arithmetic.
Tensor empty_gradient(const Attention& attention, const Tensor& operand);

// An empty tensor on the device of `like` whose memory has the order of its dimensions, as
// elementwise results have. Requires: as many dimensions.
Tensor empty_in_order_of(const Tensor& like, IntList sizes, DType dtype);

}  // namespace tenon::ops
