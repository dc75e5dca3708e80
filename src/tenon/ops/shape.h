// Operators that put elements in other places, and so copy.
#pragma once

#include <span>
#include <vector>

#include "tenon/ops/dispatch.h"

namespace tenon::ops {

namespace detail {
Tensor cat(std::span<const Tensor> tensors, std::int64_t dim);
Tensor stack(std::span<const Tensor> tensors, std::int64_t dim);
Tensor flip(const Tensor& a, IntList dims);
Tensor roll(const Tensor& a, IntList shifts, IntList dims);
Tensor repeat(const Tensor& a, IntList repeats);
Tensor pad(const Tensor& a, IntList pad, const Scalar& value);
Tensor tril(const Tensor& a, std::int64_t diagonal);
Tensor triu(const Tensor& a, std::int64_t diagonal);
}  // namespace detail

namespace op {
inline constinit Operator<Tensor(std::span<const Tensor>, std::int64_t)> cat("cat", &detail::cat);
inline constinit Operator<Tensor(std::span<const Tensor>, std::int64_t)> stack("stack",
                                                                               &detail::stack);
inline constinit Operator<Tensor(const Tensor&, IntList)> flip("flip", &detail::flip);
inline constinit Operator<Tensor(const Tensor&, IntList, IntList)> roll("roll", &detail::roll);
inline constinit Operator<Tensor(const Tensor&, IntList)> repeat("repeat", &detail::repeat);
inline constinit Operator<Tensor(const Tensor&, IntList, const Scalar&)> pad("pad", &detail::pad);
inline constinit Operator<Tensor(const Tensor&, std::int64_t)> tril("tril", &detail::tril);
inline constinit Operator<Tensor(const Tensor&, std::int64_t)> triu("triu", &detail::triu);
}  // namespace op

// Side by side along a dimension; dtypes promote. 1-d tensors without elements are skipped.
inline Tensor cat(std::span<const Tensor> tensors, std::int64_t dim = 0) {
  return op::cat(tensors, dim);
}
inline Tensor cat(std::initializer_list<Tensor> tensors, std::int64_t dim = 0) {
  return op::cat(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}
// Along a new dimension.
inline Tensor stack(std::span<const Tensor> tensors, std::int64_t dim = 0) {
  return op::stack(tensors, dim);
}
inline Tensor stack(std::initializer_list<Tensor> tensors, std::int64_t dim = 0) {
  return op::stack(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}
inline Tensor flip(const Tensor& a, IntList dims) { return op::flip(a, dims); }
// Elements pushed over one end come in at the other. No dimensions: of the flattened tensor.
inline Tensor roll(const Tensor& a, IntList shifts, IntList dims = {}) {
  return op::roll(a, shifts, dims);
}
// As tiles; more repeats than dimensions add dimensions in front.
inline Tensor repeat(const Tensor& a, IntList repeats) { return op::repeat(a, repeats); }
// `pad` has a pair (before, after) for each dimension from the last one on; negative ones crop.
inline Tensor pad(const Tensor& a, IntList pad, const Scalar& value = 0) {
  return op::pad(a, pad, value);
}
// Of the last two dimensions: what lies below (above) and on a diagonal; zero elsewhere.
inline Tensor tril(const Tensor& a, std::int64_t diagonal = 0) { return op::tril(a, diagonal); }
inline Tensor triu(const Tensor& a, std::int64_t diagonal = 0) { return op::triu(a, diagonal); }

}  // namespace tenon::ops
