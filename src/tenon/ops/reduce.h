// Reductions over dimensions. `dims` may be negative (from the end); an empty list means all. The
// result has the other dimensions, or with `keepdim` also the reduced ones as 1.
//
// Throws InvalidArgument for a dimension that is out of range or comes twice and for a dtype that
// the reduction is not defined for, and OutOfMemory. Thread-safe unless a thread writes the
// argument. O(elements). 16-bit floats and f32 are gathered in f64. The result is the same on any
// number of threads.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"

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

// The kinds of entries in the tables of ops::op.
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
// i64 or c128, or, on the host, as `dtype`. On a device without f64 and i64 they are f32 or i32.
// `shifts` (of the accumulators' dtype, one for each) are subtracted where the gathering asks for
// it. Undefined shifts are 0. On meta nothing is computed.
Tensor gather(Gather kind, const Tensor& a, std::uint64_t reduced_dims, const Tensor& shifts,
              std::optional<DType> dtype = {});

// Which dimensions a list means, as bits. Throws InvalidArgument for one that comes twice.
std::uint64_t reduced_dims(const char* what, const Tensor& a, IntList dims);
// The shape without the reduced dimensions, or with them as 1.
DimVector reduced_sizes(const Tensor& a, std::uint64_t reduced_dims, bool keepdim);

}  // namespace detail

#define TENON_REDUCE(name, function)                                                \
  namespace op {                                                                    \
  inline constinit ReduceOperator name(#name, &detail::function, &labels::reduced); \
  }                                                                                 \
  inline Tensor name(const Tensor& a, IntList dims = {}, bool keepdim = false) {    \
    return op::name(a, dims, keepdim);                                              \
  }                                                                                 \
  template <std::integral Dim> /* so that {} is a list */                           \
  Tensor name(const Tensor& a, Dim dim, bool keepdim = false) {                     \
    return op::name(a, IntList{static_cast<std::int64_t>(dim)}, keepdim);           \
  }
TENON_REDUCE(sum, sum)    // the sum; int64 of integers and bools
TENON_REDUCE(mean, mean)  // sum / count; floating point or complex; NaN of no elements
TENON_REDUCE(prod, prod)  // the product; int64 of integers and bools
TENON_REDUCE(amax, amax)  // the largest; NaN if any is; throws for no elements and for complex
TENON_REDUCE(amin, amin)  // the smallest; NaN if any is; throws for no elements and for complex
TENON_REDUCE(any, any)    // bool: one is not 0
TENON_REDUCE(all, all)    // bool: none is 0
TENON_REDUCE(logsumexp, logsumexp)  // log(sum(exp(x))) without overflow; floating point
TENON_REDUCE(norm, norm)  // sqrt(sum(x x)), the Euclidean norm; floating point
#undef TENON_REDUCE

namespace op {
inline constinit VarianceOperator var("var", &detail::var, &labels::variance);
inline constinit VarianceOperator std("std", &detail::std_deviation, &labels::variance);
inline constinit ArgOperator argmax("argmax", &detail::argmax, &labels::arg);
inline constinit ArgOperator argmin("argmin", &detail::argmin, &labels::arg);
}  // namespace op

// sum((x - mean)^2) / max(count - correction, 0): infinite or NaN without more elements than the
// correction. Floating point.
inline Tensor var(const Tensor& a, IntList dims = {}, std::int64_t correction = 1,
                  bool keepdim = false) {
  return op::var(a, dims, correction, keepdim);
}
// sqrt(var).
inline Tensor std(const Tensor& a, IntList dims = {}, std::int64_t correction = 1,
                  bool keepdim = false) {
  return op::std(a, dims, correction, keepdim);
}
// The int64 index of the first extreme along a dimension, or in the flattened tensor; NaN is
// extreme. Throws InvalidArgument for no elements and for complex numbers.
inline Tensor argmax(const Tensor& a, std::optional<std::int64_t> dim = std::nullopt,
                     bool keepdim = false) {
  return op::argmax(a, dim, keepdim);
}
// As argmax, of the smallest.
inline Tensor argmin(const Tensor& a, std::optional<std::int64_t> dim = std::nullopt,
                     bool keepdim = false) {
  return op::argmin(a, dim, keepdim);
}

}  // namespace tenon::ops
