// Running sums, and order along a dimension (negative: from the end). Shapes are the input's, and
// so is the dtype of sorted values. Throws InvalidArgument for a dimension out of range or sorting
// complex numbers, and OutOfMemory. Thread-safe unless a thread writes the argument.
#pragma once

#include <utility>

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"

namespace tenon::ops {

// Values, and their int64 indices along the dimension.
using SortResult = std::pair<Tensor, Tensor>;

namespace detail {
Tensor cumsum(const Tensor& a, std::int64_t dim);
Tensor cumprod(const Tensor& a, std::int64_t dim);
SortResult sort(const Tensor& a, std::int64_t dim, bool descending);
SortResult topk(const Tensor& a, std::int64_t k, std::int64_t dim, bool largest);
}  // namespace detail

namespace op {
inline constinit Operator<Tensor(const Tensor&, std::int64_t)> cumsum("cumsum", &detail::cumsum,
                                                                      &labels::like);
inline constinit Operator<Tensor(const Tensor&, std::int64_t)> cumprod("cumprod", &detail::cumprod,
                                                                       &labels::like);
inline constinit Operator<SortResult(const Tensor&, std::int64_t, bool)> sort("sort", &detail::sort,
                                                                              &labels::like);
inline constinit Operator<SortResult(const Tensor&, std::int64_t, std::int64_t, bool)> topk(
    "topk", &detail::topk, &labels::topk);
}  // namespace op

// Sums (products) of all elements up to each one, itself included. Integers and bools give int64,
// which wraps around; floats are gathered in f64. O(elements).
inline Tensor cumsum(const Tensor& a, std::int64_t dim) { return op::cumsum(a, dim); }
inline Tensor cumprod(const Tensor& a, std::int64_t dim) { return op::cumprod(a, dim); }
// In increasing or decreasing order. Stable: equal elements keep their order. NaN counts as
// largest. O(n log n) for each row.
inline SortResult sort(const Tensor& a, std::int64_t dim = -1, bool descending = false) {
  return op::sort(a, dim, descending);
}
// The indices of sort.
inline Tensor argsort(const Tensor& a, std::int64_t dim = -1, bool descending = false) {
  return op::sort(a, dim, descending).second;
}
// The k largest (or smallest) along the dimension, best first; among equals the first comes first.
// That dimension has size k. Throws InvalidArgument unless k is 0 to the size. Of a 0-d tensor the
// element, for k of 0, too, as in PyTorch. O(n log k) a row.
inline SortResult topk(const Tensor& a, std::int64_t k, std::int64_t dim = -1,
                       bool largest = true) {
  return op::topk(a, k, dim, largest);
}

}  // namespace tenon::ops
