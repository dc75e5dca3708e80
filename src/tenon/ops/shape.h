// Operators that put elements in other places, and so copy. The result shares no memory with its
// arguments and has their dtype. A dimension may be negative (from the end). Throws InvalidArgument
// (with the shapes) for arguments that do not fit, and OutOfMemory. Thread-safe unless a thread
// writes an argument. O(elements of the result).
#pragma once

#include <span>
#include <vector>

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"

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
inline constinit Operator<Tensor(std::span<const Tensor>, std::int64_t)> cat("cat", &detail::cat,
                                                                             &labels::cat);
inline constinit Operator<Tensor(std::span<const Tensor>, std::int64_t)> stack(
    "stack", &detail::stack, &labels::stack);
inline constinit Operator<Tensor(const Tensor&, IntList)> flip("flip", &detail::flip,
                                                               &labels::like);
inline constinit Operator<Tensor(const Tensor&, IntList, IntList)> roll("roll", &detail::roll,
                                                                        &labels::like);
inline constinit Operator<Tensor(const Tensor&, IntList)> repeat("repeat", &detail::repeat,
                                                                 &labels::repeat);
inline constinit Operator<Tensor(const Tensor&, IntList, const Scalar&)> pad("pad", &detail::pad,
                                                                             &labels::pad);
inline constinit Operator<Tensor(const Tensor&, std::int64_t)> tril("tril", &detail::tril,
                                                                    &labels::like);
inline constinit Operator<Tensor(const Tensor&, std::int64_t)> triu("triu", &detail::triu,
                                                                    &labels::like);
}  // namespace op

// Side by side along `dim`, in which alone the shapes may differ: the result has the sum of their
// sizes. Dtypes promote. Skips 1-d tensors without elements. Throws for no tensors and 0-d ones.
inline Tensor cat(std::span<const Tensor> tensors, std::int64_t dim = 0) {
  return op::cat(tensors, dim);
}
// The same as cat(span), for a list in braces.
inline Tensor cat(std::initializer_list<Tensor> tensors, std::int64_t dim = 0) {
  return op::cat(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}
// Side by side along a new dimension at `dim`. All have one shape, dtypes promote. Throws
// InvalidArgument for no tensors.
inline Tensor stack(std::span<const Tensor> tensors, std::int64_t dim = 0) {
  return op::stack(tensors, dim);
}
// The same as stack(span), for a list in braces.
inline Tensor stack(std::initializer_list<Tensor> tensors, std::int64_t dim = 0) {
  return op::stack(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}
// The order along those dimensions reversed, in a's shape. No dimension may come twice. Strides are
// a's where a is dense, as PyTorch's are, else contiguous.
inline Tensor flip(const Tensor& a, IntList dims) { return op::flip(a, dims); }
// Element i goes to place i + shift, modulo the size: a shift for each of `dims`. With one shift
// and no dimensions, of the flattened tensor. The result has a's shape.
inline Tensor roll(const Tensor& a, IntList shifts, IntList dims = {}) {
  return op::roll(a, shifts, dims);
}
// As tiles: the size of dimension i becomes repeats[i] times as large. More repeats than dimensions
// add dimensions in front. Fewer throw InvalidArgument.
inline Tensor repeat(const Tensor& a, IntList repeats) { return op::repeat(a, repeats); }
// Filled with `value` around. `pad` has a pair (before, after) for each dimension from the last one
// on: size n becomes n + before + after. Negative ones crop; throws for a size below 0.
inline Tensor pad(const Tensor& a, IntList pad, const Scalar& value = 0) {
  return op::pad(a, pad, value);
}
// What lies below (above) and on a diagonal of the last two dimensions, zero elsewhere. The result
// has a's shape. Diagonal 0 is the main one, 1 the one above it.
inline Tensor tril(const Tensor& a, std::int64_t diagonal = 0) { return op::tril(a, diagonal); }
inline Tensor triu(const Tensor& a, std::int64_t diagonal = 0) { return op::triu(a, diagonal); }

}  // namespace tenon::ops
