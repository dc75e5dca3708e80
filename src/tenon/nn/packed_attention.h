// Self-attention over queries, keys and values that lie side by side.
#pragma once

#include "tenon/ops/dispatch.h"

namespace tenon::nn {

// softmax(q k^T / sqrt(size)) v for each head of `qkv` [N, L, 3 * heads * size], where each place
// has its queries of all heads, then the keys, then the values: [N, L, heads * size]. With
// `causal`, place i sees places up to i.
//
// Reads the heads where they lie, keeps nothing for backward but `qkv`, and writes one gradient:
// ops/fused_attention.h. 16-bit floats and f32 on the host; other dtypes and devices, and gradients
// of gradients, go through what attention is made of. Throws InvalidArgument for shapes that do not
// fit.
Tensor packed_attention(const Tensor& qkv, std::int64_t heads, bool causal);

}  // namespace tenon::nn
