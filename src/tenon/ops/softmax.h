// Softmax along a dimension. Thread-safe unless a thread writes the argument.
#pragma once

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"

namespace tenon::ops {

namespace detail {
Tensor softmax(const Tensor& a, std::int64_t dim);
Tensor log_softmax(const Tensor& a, std::int64_t dim);
// log(sum(exp(x))) of each line along `dim`, in one dimension and in the dtype of the computation.
// Requires: floating point, on the host, with elements.
Tensor log_sums(const Tensor& a, std::int64_t dim);
}  // namespace detail

namespace op {
inline constinit Operator<Tensor(const Tensor&, std::int64_t)> softmax("softmax", &detail::softmax,
                                                                       &labels::like);
inline constinit Operator<Tensor(const Tensor&, std::int64_t)> log_softmax(
    "log_softmax", &detail::log_softmax, &labels::like);
}  // namespace op

// exp(x) / sum(exp(x)) along `dim` (negative: from the end), and its logarithm, computed without
// overflow. The result has a's shape and dtype. A row of -inf alone becomes NaN. Throws
// InvalidArgument unless `a` is floating point and `dim` in range. O(elements).
inline Tensor softmax(const Tensor& a, std::int64_t dim) { return op::softmax(a, dim); }
inline Tensor log_softmax(const Tensor& a, std::int64_t dim) { return op::log_softmax(a, dim); }

}  // namespace tenon::ops
