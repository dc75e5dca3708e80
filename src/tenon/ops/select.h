// Operators that choose: by a condition, or by index tensors, which are of any integer dtype. A
// dimension may be negative (from the end). Throws InvalidArgument for shapes and dtypes that do
// not fit, and for an index outside of [0, size), with the index and the size; OutOfMemory.
// Thread-safe unless a thread writes an argument. O(elements).
#pragma once

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"

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
    "where", &detail::where, &labels::broadcast_three);
inline constinit Operator<Tensor(const Tensor&, const Tensor&, const Scalar&)> masked_fill(
    "masked_fill", &detail::masked_fill, &labels::masked);
inline constinit SelectOperator index_select("index_select", &detail::index_select,
                                             &labels::index_select);
inline constinit SelectOperator gather("gather", &detail::gather_elements, &labels::gather);
inline constinit ScatterOperator scatter_add("scatter_add", &detail::scatter_add,
                                            &labels::scatter_add);
inline constinit ScatterOperator index_add("index_add", &detail::index_add, &labels::index_add);
inline constinit Operator<Tensor(const Tensor&, const Tensor&)> embedding(
    "embedding", &detail::embedding, &labels::embedding);
inline constinit Operator<Tensor(const Tensor&, std::int64_t)> one_hot("one_hot", &detail::one_hot,
                                                                       &labels::one_hot);
}  // namespace op

// a where the condition (bool) holds, else b; all three broadcast, a and b promote. Throws
// InvalidArgument for a condition of another dtype.
inline Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return op::where(condition, a, b);
}
// `value` where the mask (bool) holds, else a. The result keeps a's dtype; throws InvalidArgument
// for a value of a higher kind.
inline Tensor masked_fill(const Tensor& a, const Tensor& mask, const Scalar& value) {
  return op::masked_fill(a, mask, value);
}
// The slices of a dimension that a 1-d index names, in its order: that dimension has the index's
// size.
inline Tensor index_select(const Tensor& a, std::int64_t dim, const Tensor& index) {
  return op::index_select(a, dim, index);
}
// out[i][j] = a[i][index[i][j]] for dim 1, in the index's shape, which has a's number of dimensions
// and is no larger than `a` except along `dim`.
inline Tensor gather(const Tensor& a, std::int64_t dim, const Tensor& index) {
  return op::gather(a, dim, index);
}
// A copy of `a` to which source[i][j] is added at [i][index[i][j]] (for dim 1). The source has a's
// dtype and is at least as large as the index. Additions to one element happen in the source's
// order, on any number of threads; those of 16-bit floats in f32, rounded once, by copies in f32.
inline Tensor scatter_add(const Tensor& a, std::int64_t dim, const Tensor& index,
                          const Tensor& source) {
  return op::scatter_add(a, dim, index, source);
}
// A copy of `a` to whose slices, named by a 1-d index, the source's slices are added, in its order.
// The source has a's dtype and shape, with the index's size along `dim`. Short rows of 16-bit
// floats are added as scatter_add adds them.
inline Tensor index_add(const Tensor& a, std::int64_t dim, const Tensor& index,
                        const Tensor& source) {
  return op::index_add(a, dim, index, source);
}
// Rows of `weight` [rows, width] in the index's shape [...]: [..., width].
inline Tensor embedding(const Tensor& index, const Tensor& weight) {
  return op::embedding(index, weight);
}
// [..., classes] of int64 for an index [...]: 1 at each index, 0 elsewhere. Negative `classes`: the
// largest index + 1. Throws InvalidArgument if that is asked of no elements.
inline Tensor one_hot(const Tensor& index, std::int64_t classes = -1) {
  return op::one_hot(index, classes);
}

}  // namespace tenon::ops
