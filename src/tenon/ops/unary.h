// Element-wise operators of one tensor of any shape. Each has three forms. name(a) gives a new
// tensor of a's shape. name_(self) writes in place. name_out(out, a) writes into `out`, which has
// a's shape and a dtype that can take the result, and returns it. The last two bump the version.
//
// Where Unary says so, integers and bools become the default floating-point dtype. 16-bit floats
// are computed in f32. Throws InvalidArgument, with the operator's name, for a dtype that has no
// such operation and for an `out` that does not fit, and OutOfMemory. Thread-safe unless a thread
// writes an argument. O(elements). The result is the same on any number of threads.
//
// Largest errors in units in the last place, of f32 and of f64, where the processor has AVX2 or
// AVX-512: of tanh 2 and 2.5, of erf 2.5 and 2.
#pragma once

#include <cstdint>
#include <optional>

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"

namespace tenon::ops {

// The operators, by group.
enum class Unary : std::uint8_t {
  // of every dtype that has them
  kNeg,
  kAbs,
  kSign,
  kSquare,
  kRelu,
  kLogicalNot,
  kBitwiseNot,
  kClamp,
  // integers stay as they are
  kFloor,
  kCeil,
  kRound,
  kTrunc,
  // integers become the default floating-point dtype
  kExp,
  kExp2,
  kExpm1,
  kLog,
  kLog2,
  kLog10,
  kLog1p,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kErf,
  kErfc,
  kSigmoid,
  kLogSigmoid,
  kSilu,
  kMish,
  kGelu,
  kGeluTanh,
  kLeakyRelu,
  kElu,
  kSoftplus,
  kHardtanh,
  kHardsigmoid,
  kHardswish,
  // give bool
  kIsNan,
  kIsInf,
  kIsFinite,
};
// The name as errors have it, "log1p".
const char* unary_name(Unary kind);

// Numbers that some need: clamp (low, high), leaky_relu (slope), elu (alpha), softplus (beta,
// threshold), hardtanh (low, high).
struct UnaryNumbers {
  double first = 0;
  double second = 0;
};

// The kinds of entries in the tables of ops::op.
using UnaryOperator = Operator<Tensor(const Tensor&)>;
using UnaryIntoOperator = Operator<const Tensor&(const Tensor&, const Tensor&)>;
using UnaryNumbersOperator = Operator<Tensor(const Tensor&, const UnaryNumbers&)>;

namespace detail {

Tensor unary(Unary kind, const Tensor& a, const UnaryNumbers& numbers = {});
const Tensor& unary_into(Unary kind, const Tensor& out, const Tensor& a,
                         const UnaryNumbers& numbers = {});
template <Unary kind>
Tensor unary_kernel(const Tensor& a) {
  return unary(kind, a);
}
template <Unary kind>
const Tensor& unary_into_kernel(const Tensor& out, const Tensor& a) {
  return unary_into(kind, out, a);
}
template <Unary kind>
Tensor unary_numbers_kernel(const Tensor& a, const UnaryNumbers& numbers) {
  return unary(kind, a, numbers);
}

}  // namespace detail

#define TENON_UNARY(name, kind)                                                            \
  namespace op {                                                                           \
  inline constinit UnaryOperator name(#name, &detail::unary_kernel<Unary::kind>,           \
                                      &labels::like);                                      \
  inline constinit UnaryIntoOperator name##_into(                                          \
      #name "_into", &detail::unary_into_kernel<Unary::kind>, &labels::into_like);         \
  }                                                                                        \
  inline Tensor name(const Tensor& a) { return op::name(a); }                              \
  inline const Tensor& name##_(const Tensor& self) { return op::name##_into(self, self); } \
  inline const Tensor& name##_out(const Tensor& out, const Tensor& a) {                    \
    return op::name##_into(out, a);                                                        \
  }
#define TENON_UNARY_NUMBERS(name, kind)                                                          \
  namespace op {                                                                                 \
  inline constinit UnaryNumbersOperator name(#name, &detail::unary_numbers_kernel<Unary::kind>,  \
                                             &labels::like);                                     \
  }

TENON_UNARY(neg, kNeg)  // -x; not for bool
TENON_UNARY(abs, kAbs)  // |x|; of a complex number its modulus, in the real dtype
TENON_UNARY(sign, kSign)  // -1, 0 or 1; of a complex number z / |z|
TENON_UNARY(square, kSquare)  // x x
TENON_UNARY(relu, kRelu)  // max(x, 0)
TENON_UNARY(logical_not, kLogicalNot)  // bool: x == 0
TENON_UNARY(bitwise_not, kBitwiseNot)  // ~x; integers and bool
TENON_UNARY(floor, kFloor)  // the largest integer <= x
TENON_UNARY(ceil, kCeil)  // the smallest integer >= x
TENON_UNARY(round, kRound)  // the nearest integer, halves to even
TENON_UNARY(trunc, kTrunc)  // the integer part, towards 0
TENON_UNARY(exp, kExp)  // e^x
TENON_UNARY(exp2, kExp2)  // 2^x
TENON_UNARY(expm1, kExpm1)  // e^x - 1, exact near 0
TENON_UNARY(log, kLog)  // natural logarithm; NaN below 0
TENON_UNARY(log2, kLog2)  // logarithm to base 2
TENON_UNARY(log10, kLog10)  // logarithm to base 10
TENON_UNARY(log1p, kLog1p)  // log(1 + x), exact near 0
TENON_UNARY(sqrt, kSqrt)  // square root; NaN below 0
TENON_UNARY(rsqrt, kRsqrt)  // 1 / sqrt(x)
TENON_UNARY(reciprocal, kReciprocal)  // 1 / x
TENON_UNARY(sin, kSin)  // sine of radians
TENON_UNARY(cos, kCos)  // cosine of radians
TENON_UNARY(tan, kTan)  // tangent of radians
TENON_UNARY(asin, kAsin)  // arc sine in [-pi/2, pi/2]
TENON_UNARY(acos, kAcos)  // arc cosine in [0, pi]
TENON_UNARY(atan, kAtan)  // arc tangent in [-pi/2, pi/2]
TENON_UNARY(sinh, kSinh)  // (e^x - e^-x) / 2
TENON_UNARY(cosh, kCosh)  // (e^x + e^-x) / 2
TENON_UNARY(tanh, kTanh)  // sinh(x) / cosh(x)
TENON_UNARY(erf, kErf)  // 2 / sqrt(pi) times the integral of exp(-t t) from 0 to x
TENON_UNARY(erfc, kErfc)  // 1 - erf(x), exact for large x
TENON_UNARY(sigmoid, kSigmoid)  // 1 / (1 + exp(-x))
TENON_UNARY(log_sigmoid, kLogSigmoid)  // log(sigmoid(x))
TENON_UNARY(silu, kSilu)  // x sigmoid(x)
TENON_UNARY(mish, kMish)  // x tanh(log(1 + exp(x)))
TENON_UNARY(hardsigmoid, kHardsigmoid)  // min(max(x / 6 + 1 / 2, 0), 1)
TENON_UNARY(hardswish, kHardswish)  // x hardsigmoid(x)
TENON_UNARY(isnan, kIsNan)  // bool: x is no number
TENON_UNARY(isinf, kIsInf)  // bool: x is +inf or -inf
TENON_UNARY(isfinite, kIsFinite)  // bool: x is neither infinite nor NaN
TENON_UNARY(gelu_none, kGelu)  // x Phi(x), Phi the normal distribution function, by erf
TENON_UNARY(gelu_tanh, kGeluTanh)  // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
TENON_UNARY_NUMBERS(leaky_relu, kLeakyRelu)
TENON_UNARY_NUMBERS(elu, kElu)
TENON_UNARY_NUMBERS(softplus, kSoftplus)
TENON_UNARY_NUMBERS(hardtanh, kHardtanh)
TENON_UNARY_NUMBERS(clamp, kClamp)
#undef TENON_UNARY
#undef TENON_UNARY_NUMBERS

// x Phi(x), by erf or by the approximation with tanh (Hendrycks and Gimpel 2016). Floating point.
inline Tensor gelu(const Tensor& a, bool approximate_tanh = false) {
  return approximate_tanh ? gelu_tanh(a) : gelu_none(a);
}
// x where x >= 0, else slope x.
inline Tensor leaky_relu(const Tensor& a, double slope = 0.01) {
  return op::leaky_relu(a, {slope, 0});
}
// x where x > 0, else alpha (exp(x) - 1). Clevert, Unterthiner and Hochreiter 2016.
inline Tensor elu(const Tensor& a, double alpha = 1) { return op::elu(a, {alpha, 0}); }
// log(1 + exp(beta x)) / beta, and x itself where beta x is above the threshold.
inline Tensor softplus(const Tensor& a, double beta = 1, double threshold = 20) {
  return op::softplus(a, {beta, threshold});
}
// min(max(x, low), high).
inline Tensor hardtanh(const Tensor& a, double low = -1, double high = 1) {
  return op::hardtanh(a, {low, high});
}
// min(max(x, low), high). Either bound may be absent; throws InvalidArgument without both. A bound
// of higher kind than the tensor's raises its dtype: an integer tensor with bounds of 0.5 becomes
// floating point. A bound that is NaN makes all NaN.
Tensor clamp(const Tensor& a, std::optional<Scalar> low, std::optional<Scalar> high = std::nullopt);

}  // namespace tenon::ops
