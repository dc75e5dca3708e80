// Running sums, and order along a dimension.
#pragma once

#include <utility>

#include "tenon/ops/dispatch.h"

namespace tenon::ops {

using SortResult = std::pair<Tensor, Tensor>;  // values, int64 indices

namespace detail {
Tensor cumsum(const Tensor& a, std::int64_t dim);
Tensor cumprod(const Tensor& a, std::int64_t dim);
SortResult sort(const Tensor& a, std::int64_t dim, bool descending);
SortResult topk(const Tensor& a, std::int64_t k, std::int64_t dim, bool largest);
}  // namespace detail

namespace op {
inline constinit Operator<Tensor(const Tensor&, std::int64_t)> cumsum("cumsum", &detail::cumsum);
inline constinit Operator<Tensor(const Tensor&, std::int64_t)> cumprod("cumprod", &detail::cumprod);
inline constinit Operator<SortResult(const Tensor&, std::int64_t, bool)> sort("sort",
                                                                              &detail::sort);
inline constinit Operator<SortResult(const Tensor&, std::int64_t, std::int64_t, bool)> topk(
    "topk", &detail::topk);
}  // namespace op

// Sums (products) of all elements up to each one. Integers and bools give int64; floats are added
// up in f64.
inline Tensor cumsum(const Tensor& a, std::int64_t dim) { return op::cumsum(a, dim); }
inline Tensor cumprod(const Tensor& a, std::int64_t dim) { return op::cumprod(a, dim); }
// Stable: equal elements keep their order. NaN counts as largest. O(n log n) for each row.
inline SortResult sort(const Tensor& a, std::int64_t dim = -1, bool descending = false) {
  return op::sort(a, dim, descending);
}
inline Tensor argsort(const Tensor& a, std::int64_t dim = -1, bool descending = false) {
  return op::sort(a, dim, descending).second;
}
// The k largest (or smallest), best first. Among equals the first comes first.
inline SortResult topk(const Tensor& a, std::int64_t k, std::int64_t dim = -1,
                       bool largest = true) {
  return op::topk(a, k, dim, largest);
}

}  // namespace tenon::ops
