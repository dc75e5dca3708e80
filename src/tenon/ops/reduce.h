// Reductions over dimensions.
#pragma once

#include <cstdint>
#include <optional>

#include "tenon/ops/dispatch.h"

namespace tenon::ops {

// How elements are gathered.
enum class Gather : std::uint8_t {
  kSum,
  kProduct,
  kLargest,
  kSmallest,
  kSumOfSquares,       // of differences from a shift
  kSumOfExponentials,  // of differences from a shift
};

using ReduceOperator = Operator<Tensor(const Tensor&, IntList dims, bool keepdim)>;
using VarianceOperator =
    Operator<Tensor(const Tensor&, IntList dims, std::int64_t correction, bool keepdim)>;
using ArgOperator = Operator<Tensor(const Tensor&, std::optional<std::int64_t> dim, bool keepdim)>;

// An empty list of dimensions means all. Sums and products of integers and bools are int64, of
// floats their own dtype (gathered in f64). mean, var, std and logsumexp need floating point (or
// complex, for mean). amax and amin pass NaN on and need at least one element, as do argmax and
// argmin. any and all give bool. The result is the same on any number of threads.
namespace detail {

Tensor sum(const Tensor& a, IntList dims, bool keepdim);
Tensor mean(const Tensor& a, IntList dims, bool keepdim);
Tensor prod(const Tensor& a, IntList dims, bool keepdim);
Tensor amax(const Tensor& a, IntList dims, bool keepdim);
Tensor amin(const Tensor& a, IntList dims, bool keepdim);
Tensor any(const Tensor& a, IntList dims, bool keepdim);
Tensor all(const Tensor& a, IntList dims, bool keepdim);
Tensor logsumexp(const Tensor& a, IntList dims, bool keepdim);
Tensor norm(const Tensor& a, IntList dims, bool keepdim);
Tensor var(const Tensor& a, IntList dims, std::int64_t correction, bool keepdim);
Tensor std_deviation(const Tensor& a, IntList dims, std::int64_t correction, bool keepdim);
Tensor argmax(const Tensor& a, std::optional<std::int64_t> dim, bool keepdim);
Tensor argmin(const Tensor& a, std::optional<std::int64_t> dim, bool keepdim);

// The gathered accumulators of every kept element, in row-major order of the kept dimensions: f64,
// i64 or c128. `shifts` (f64, one for each) are subtracted where the gathering asks for it.
// Undefined shifts are 0. On meta nothing is computed.
Tensor gather(Gather kind, const Tensor& a, std::uint64_t reduced_dims, const Tensor& shifts);

// Which dimensions a list means, as bits. Throws InvalidArgument for one that comes twice.
std::uint64_t reduced_dims(const char* what, const Tensor& a, IntList dims);
// The shape without the reduced dimensions, or with them as 1.
DimVector reduced_sizes(const Tensor& a, std::uint64_t reduced_dims, bool keepdim);

}  // namespace detail

#define TENON_REDUCE(name, function)                                             \
  namespace op {                                                                 \
  inline constinit ReduceOperator name(#name, &detail::function);                \
  }                                                                              \
  inline Tensor name(const Tensor& a, IntList dims = {}, bool keepdim = false) { \
    return op::name(a, dims, keepdim);                                           \
  }                                                                              \
  inline Tensor name(const Tensor& a, std::int64_t dim, bool keepdim = false) {  \
    return op::name(a, IntList{dim}, keepdim);                                   \
  }
TENON_REDUCE(sum, sum)
TENON_REDUCE(mean, mean)
TENON_REDUCE(prod, prod)
TENON_REDUCE(amax, amax)
TENON_REDUCE(amin, amin)
TENON_REDUCE(any, any)
TENON_REDUCE(all, all)
TENON_REDUCE(logsumexp, logsumexp)
TENON_REDUCE(norm, norm)  // Euclidean
#undef TENON_REDUCE

namespace op {
inline constinit VarianceOperator var("var", &detail::var);
inline constinit VarianceOperator std("std", &detail::std_deviation);
inline constinit ArgOperator argmax("argmax", &detail::argmax);
inline constinit ArgOperator argmin("argmin", &detail::argmin);
}  // namespace op

// Squared deviations divided by count - correction.
inline Tensor var(const Tensor& a, IntList dims = {}, std::int64_t correction = 1,
                  bool keepdim = false) {
  return op::var(a, dims, correction, keepdim);
}
inline Tensor std(const Tensor& a, IntList dims = {}, std::int64_t correction = 1,
                  bool keepdim = false) {
  return op::std(a, dims, correction, keepdim);
}
// The index of the first extreme along a dimension, or in the flattened tensor; NaN is extreme.
inline Tensor argmax(const Tensor& a, std::optional<std::int64_t> dim = std::nullopt,
                     bool keepdim = false) {
  return op::argmax(a, dim, keepdim);
}
inline Tensor argmin(const Tensor& a, std::optional<std::int64_t> dim = std::nullopt,
                     bool keepdim = false) {
  return op::argmin(a, dim, keepdim);
}

}  // namespace tenon::ops
