// Element-wise operators of two tensors.
#pragma once

#include <cstdint>

#include "tenon/ops/dispatch.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops {

enum class Binary : std::uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kPow,
  kAtan2,
  kFmod,
  kRemainder,
  kFloorDivide,
  kBitwiseAnd,
  kBitwiseOr,
  kBitwiseXor,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLogicalAnd,
  kLogicalOr,
  kLogicalXor,
};

// Operands broadcast and promote as in PyTorch. div and atan2 of integers give the default
// floating-point dtype; comparisons and logical operators give bool. fmod has the sign of the
// dividend, remainder that of the divisor; floor_divide rounds down. maximum and minimum pass NaN
// on. Throws InvalidArgument where the shapes do not broadcast or the dtype has no such operation.
using BinaryOperator = Operator<Tensor(const Tensor&, const Tensor&)>;
// Writes into the first argument, which must have the result's shape and a dtype that can take it,
// and returns it. In place: the output is an operand, too. Bumps the output's version.
using BinaryIntoOperator = Operator<const Tensor&(const Tensor&, const Tensor&, const Tensor&)>;

namespace detail {

Tensor binary(Binary kind, const Tensor& a, const Tensor& b);
const Tensor& binary_into(Binary kind, const Tensor& out, const Tensor& a, const Tensor& b);

template <Binary kind>
Tensor binary_kernel(const Tensor& a, const Tensor& b) {
  return binary(kind, a, b);
}
template <Binary kind>
const Tensor& binary_into_kernel(const Tensor& out, const Tensor& a, const Tensor& b) {
  return binary_into(kind, out, a, b);
}

}  // namespace detail

const char* binary_name(Binary kind);

// The dispatched operators: ops::op::add(a, b), ops::op::add_into(out, a, b).
#define TENON_BINARY(name, kind)                                                                  \
  namespace op {                                                                                  \
  inline constinit BinaryOperator name(#name, &detail::binary_kernel<Binary::kind>);              \
  inline constinit BinaryIntoOperator name##_into(#name "_into",                                  \
                                                  &detail::binary_into_kernel<Binary::kind>);     \
  }                                                                                               \
  inline Tensor name(const Tensor& a, const Tensor& b) { return op::name(a, b); }                 \
  inline Tensor name(const Tensor& a, const Scalar& b) { return op::name(a, wrapped_number(b)); } \
  inline Tensor name(const Scalar& a, const Tensor& b) { return op::name(wrapped_number(a), b); } \
  inline const Tensor& name##_(const Tensor& self, const Tensor& b) {                             \
    return op::name##_into(self, self, b);                                                        \
  }                                                                                               \
  inline const Tensor& name##_(const Tensor& self, const Scalar& b) {                             \
    return op::name##_into(self, self, wrapped_number(b));                                        \
  }                                                                                               \
  inline const Tensor& name##_out(const Tensor& out, const Tensor& a, const Tensor& b) {          \
    return op::name##_into(out, a, b);                                                            \
  }

TENON_BINARY(add, kAdd)
TENON_BINARY(sub, kSub)
TENON_BINARY(mul, kMul)
TENON_BINARY(div, kDiv)
TENON_BINARY(maximum, kMaximum)
TENON_BINARY(minimum, kMinimum)
TENON_BINARY(pow, kPow)
TENON_BINARY(atan2, kAtan2)
TENON_BINARY(fmod, kFmod)
TENON_BINARY(remainder, kRemainder)
TENON_BINARY(floor_divide, kFloorDivide)
TENON_BINARY(bitwise_and, kBitwiseAnd)
TENON_BINARY(bitwise_or, kBitwiseOr)
TENON_BINARY(bitwise_xor, kBitwiseXor)
TENON_BINARY(eq, kEq)
TENON_BINARY(ne, kNe)
TENON_BINARY(lt, kLt)
TENON_BINARY(le, kLe)
TENON_BINARY(gt, kGt)
TENON_BINARY(ge, kGe)
TENON_BINARY(logical_and, kLogicalAnd)
TENON_BINARY(logical_or, kLogicalOr)
TENON_BINARY(logical_xor, kLogicalXor)
#undef TENON_BINARY

// a + alpha * b, a - alpha * b.
Tensor add(const Tensor& a, const Tensor& b, const Scalar& alpha);
Tensor sub(const Tensor& a, const Tensor& b, const Scalar& alpha);

}  // namespace tenon::ops
