// Operators that choose: by a condition, or by index tensors.
#pragma once

#include "tenon/ops/dispatch.h"

namespace tenon::ops {

namespace detail {
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor masked_fill(const Tensor& a, const Tensor& mask, const Scalar& value);
Tensor index_select(const Tensor& a, std::int64_t dim, const Tensor& index);
Tensor gather_elements(const Tensor& a, std::int64_t dim, const Tensor& index);
Tensor scatter_add(const Tensor& a, std::int64_t dim, const Tensor& index, const Tensor& source);
Tensor index_add(const Tensor& a, std::int64_t dim, const Tensor& index, const Tensor& source);
Tensor embedding(const Tensor& index, const Tensor& weight);
Tensor one_hot(const Tensor& index, std::int64_t classes);
}  // namespace detail

namespace op {
using SelectOperator = Operator<Tensor(const Tensor&, std::int64_t, const Tensor&)>;
using ScatterOperator = Operator<Tensor(const Tensor&, std::int64_t, const Tensor&, const Tensor&)>;
inline constinit Operator<Tensor(const Tensor&, const Tensor&, const Tensor&)> where(
    "where", &detail::where);
inline constinit Operator<Tensor(const Tensor&, const Tensor&, const Scalar&)> masked_fill(
    "masked_fill", &detail::masked_fill);
inline constinit SelectOperator index_select("index_select", &detail::index_select);
inline constinit SelectOperator gather("gather", &detail::gather_elements);
inline constinit ScatterOperator scatter_add("scatter_add", &detail::scatter_add);
inline constinit ScatterOperator index_add("index_add", &detail::index_add);
inline constinit Operator<Tensor(const Tensor&, const Tensor&)> embedding("embedding",
                                                                          &detail::embedding);
inline constinit Operator<Tensor(const Tensor&, std::int64_t)> one_hot("one_hot", &detail::one_hot);
}  // namespace op

// a where the condition (bool) holds, else b; all three broadcast, a and b promote.
inline Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return op::where(condition, a, b);
}
// `value` where the mask holds; the result keeps a's dtype.
inline Tensor masked_fill(const Tensor& a, const Tensor& mask, const Scalar& value) {
  return op::masked_fill(a, mask, value);
}
// The slices of a dimension that a 1-d index names. Indices are integers in [0, size); others throw
// InvalidArgument with the index and the size, as in all of these.
inline Tensor index_select(const Tensor& a, std::int64_t dim, const Tensor& index) {
  return op::index_select(a, dim, index);
}
// out[i][j] = a[i][index[i][j]] for dim 1: an element for each of the index's.
inline Tensor gather(const Tensor& a, std::int64_t dim, const Tensor& index) {
  return op::gather(a, dim, index);
}
// A copy of `a` to which source[i][j] is added at [i][index[i][j]] (for dim 1). Additions to one
// element happen in the source's order, on any number of threads.
inline Tensor scatter_add(const Tensor& a, std::int64_t dim, const Tensor& index,
                          const Tensor& source) {
  return op::scatter_add(a, dim, index, source);
}
// A copy of `a` to whose slices the source's slices are added.
inline Tensor index_add(const Tensor& a, std::int64_t dim, const Tensor& index,
                        const Tensor& source) {
  return op::index_add(a, dim, index, source);
}
// Rows of `weight` [rows, width] in the index's shape: [..., width].
inline Tensor embedding(const Tensor& index, const Tensor& weight) {
  return op::embedding(index, weight);
}
// 1 at each index of a new last dimension of `classes`, or of the largest index + 1 if negative.
inline Tensor one_hot(const Tensor& index, std::int64_t classes = -1) {
  return op::one_hot(index, classes);
}

}  // namespace tenon::ops
