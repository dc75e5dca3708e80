// Element-wise operators of one tensor.
#pragma once

#include <cstdint>
#include <optional>

#include "tenon/ops/dispatch.h"

namespace tenon::ops {

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
const char* unary_name(Unary kind);

// Numbers that some need: clamp (low, high), leaky_relu (slope), elu (alpha), softplus (beta,
// threshold), hardtanh (low, high).
struct UnaryNumbers {
  double first = 0;
  double second = 0;
};

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

// round() rounds halves to even. sign of a complex number is z / |z|.
#define TENON_UNARY(name, kind)                                                            \
  namespace op {                                                                           \
  inline constinit UnaryOperator name(#name, &detail::unary_kernel<Unary::kind>);          \
  inline constinit UnaryIntoOperator name##_into(#name "_into",                            \
                                                 &detail::unary_into_kernel<Unary::kind>); \
  }                                                                                        \
  inline Tensor name(const Tensor& a) { return op::name(a); }                              \
  inline const Tensor& name##_(const Tensor& self) { return op::name##_into(self, self); } \
  inline const Tensor& name##_out(const Tensor& out, const Tensor& a) {                    \
    return op::name##_into(out, a);                                                        \
  }
#define TENON_UNARY_NUMBERS(name, kind)                                                          \
  namespace op {                                                                                 \
  inline constinit UnaryNumbersOperator name(#name, &detail::unary_numbers_kernel<Unary::kind>); \
  }

TENON_UNARY(neg, kNeg)
TENON_UNARY(abs, kAbs)
TENON_UNARY(sign, kSign)
TENON_UNARY(square, kSquare)
TENON_UNARY(relu, kRelu)
TENON_UNARY(logical_not, kLogicalNot)
TENON_UNARY(bitwise_not, kBitwiseNot)
TENON_UNARY(floor, kFloor)
TENON_UNARY(ceil, kCeil)
TENON_UNARY(round, kRound)
TENON_UNARY(trunc, kTrunc)
TENON_UNARY(exp, kExp)
TENON_UNARY(exp2, kExp2)
TENON_UNARY(expm1, kExpm1)
TENON_UNARY(log, kLog)
TENON_UNARY(log2, kLog2)
TENON_UNARY(log10, kLog10)
TENON_UNARY(log1p, kLog1p)
TENON_UNARY(sqrt, kSqrt)
TENON_UNARY(rsqrt, kRsqrt)
TENON_UNARY(reciprocal, kReciprocal)
TENON_UNARY(sin, kSin)
TENON_UNARY(cos, kCos)
TENON_UNARY(tan, kTan)
TENON_UNARY(asin, kAsin)
TENON_UNARY(acos, kAcos)
TENON_UNARY(atan, kAtan)
TENON_UNARY(sinh, kSinh)
TENON_UNARY(cosh, kCosh)
TENON_UNARY(tanh, kTanh)
TENON_UNARY(erf, kErf)
TENON_UNARY(erfc, kErfc)
TENON_UNARY(sigmoid, kSigmoid)
TENON_UNARY(log_sigmoid, kLogSigmoid)
TENON_UNARY(silu, kSilu)
TENON_UNARY(mish, kMish)
TENON_UNARY(hardsigmoid, kHardsigmoid)
TENON_UNARY(hardswish, kHardswish)
TENON_UNARY(isnan, kIsNan)
TENON_UNARY(isinf, kIsInf)
TENON_UNARY(isfinite, kIsFinite)
TENON_UNARY(gelu_none, kGelu)
TENON_UNARY(gelu_tanh, kGeluTanh)
TENON_UNARY_NUMBERS(leaky_relu, kLeakyRelu)
TENON_UNARY_NUMBERS(elu, kElu)
TENON_UNARY_NUMBERS(softplus, kSoftplus)
TENON_UNARY_NUMBERS(hardtanh, kHardtanh)
TENON_UNARY_NUMBERS(clamp, kClamp)
#undef TENON_UNARY
#undef TENON_UNARY_NUMBERS

// x Phi(x), by erf or by the approximation with tanh (Hendrycks and Gimpel 2016).
inline Tensor gelu(const Tensor& a, bool approximate_tanh = false) {
  return approximate_tanh ? gelu_tanh(a) : gelu_none(a);
}
inline Tensor leaky_relu(const Tensor& a, double slope = 0.01) {
  return op::leaky_relu(a, {slope, 0});
}
inline Tensor elu(const Tensor& a, double alpha = 1) { return op::elu(a, {alpha, 0}); }
// log(1 + exp(beta x)) / beta, and x itself where beta x is above the threshold.
inline Tensor softplus(const Tensor& a, double beta = 1, double threshold = 20) {
  return op::softplus(a, {beta, threshold});
}
inline Tensor hardtanh(const Tensor& a, double low = -1, double high = 1) {
  return op::hardtanh(a, {low, high});
}
// Either bound may be absent. A bound of higher kind than the tensor's raises its dtype (an integer
// tensor with bounds of 0.5 becomes floating point).
Tensor clamp(const Tensor& a, std::optional<Scalar> low, std::optional<Scalar> high = std::nullopt);

}  // namespace tenon::ops
