// Attention. Thread-safe unless a thread writes an argument.
#pragma once

#include <optional>

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"

namespace tenon::ops {

namespace detail {
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                 bool is_causal, std::optional<double> scale);
}

namespace op {
inline constinit Operator<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool,
                                 std::optional<double>)>
    scaled_dot_product_attention("scaled_dot_product_attention", &detail::attention,
                                 &labels::attention, 3);
}

// softmax(query key^T * scale + mask) value, for query [..., L, E], key [..., S, E], value [..., S,
// V]. The scale is 1 / sqrt(E) unless given. A mask of bools selects the keys, one of numbers is
// added. Either broadcasts to [..., L, S]. is_causal shows place i the keys up to i, and then there
// is no mask. A query that sees nothing gets NaN. The result is [..., L, V] in query's dtype;
// 16-bit floats are computed in f32. Leading dimensions broadcast. Vaswani et al. 2017.
//
// On the host, and on meta likewise, the scores exist a tile at a time (fused_attention.h). For its
// gradient a call keeps query, key, value and mask as they are given, the result, and two numbers
// for each query; the result's memory has query's dimension order. Scratch memory: some tiles for
// each thread, and in backward a number for each query. The scores are kept, O(L S), on other
// devices, for the gradient of a mask or gradient, forward mode, names, different dtypes, and fewer
// than 8 queries. O(L S (E + V)) work for each batch.
//
// Throws InvalidArgument for shapes that do not fit, no floating point, a mask beside is_causal;
// OutOfMemory.
inline Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key,
                                           const Tensor& value, const Tensor& mask = {},
                                           bool is_causal = false,
                                           std::optional<double> scale = std::nullopt) {
  return op::scaled_dot_product_attention(query, key, value, mask, is_causal, scale);
}

}  // namespace tenon::ops
