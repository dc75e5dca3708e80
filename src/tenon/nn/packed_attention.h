// Self-attention over queries, keys and values that lie side by side.
#pragma once

#include "tenon/ops/dispatch.h"

namespace tenon::nn {

// softmax(q k^T / sqrt(size)) v for each head of `qkv` [N, L, 3 * heads * size], where each place
// has its queries of all heads, then the keys, then the values: [N, L, heads * size]. With
// `causal`, place i sees places up to i.
//
// Reads the heads where they lie, and keeps nothing for backward but `qkv`: the shares are computed
// again, as in Dao et al. 2022 (FlashAttention), but a whole head at a time. Scratch memory: 2 L^2
// numbers for each thread. f32 on the host; other dtypes and devices, and gradients of gradients,
// go through ops::scaled_dot_product_attention. Throws InvalidArgument for shapes that do not fit.
Tensor packed_attention(const Tensor& qkv, std::int64_t heads, bool causal);

}  // namespace tenon::nn
