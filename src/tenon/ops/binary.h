// Element-wise operators of two tensors, in three forms. name(a, b): one operand may be a number.
// name_(self, b): in place. name_out(out, a, b): into `out`, which has the result's shape and a
// dtype that can take it. The last two bump the output's version and return it.
//
// Operands broadcast and promote as in PyTorch: shapes are aligned at the last dimension, sizes of
// 1 stretch. Throws InvalidArgument where shapes do not broadcast, the dtype has no such operation,
// the devices differ, or `out` does not fit; OutOfMemory. Thread-safe unless a thread writes an
// argument. O(elements of the result), which is the same on any number of threads.
#pragma once

#include <cstdint>

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops {

// The operators.
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
// floating-point dtype. Comparisons and logical operators give bool. fmod has the sign of the
// dividend, remainder that of the divisor. floor_divide rounds down. maximum and minimum pass NaN
// on. Of integers, x / 0 is 0 except for div, and a negative power is cut to an integer.
using BinaryOperator = Operator<Tensor(const Tensor&, const Tensor&)>;
// Writes into the first argument, which must have the result's shape and a dtype that can take it,
// and returns it. In place: the output is an operand, too. Bumps the output's version.
using BinaryIntoOperator = Operator<const Tensor&(const Tensor&, const Tensor&, const Tensor&)>;

namespace detail {

Tensor binary(Binary kind, const Tensor& a, const Tensor& b);
const Tensor& binary_into(Binary kind, const Tensor& out, const Tensor& a, const Tensor& b);

// eq and ne where a dtype is for storage only: the values are compared exactly.
Tensor compare_stored(Binary kind, const Tensor& a, const Tensor& b);

template <Binary kind>
Tensor binary_kernel(const Tensor& a, const Tensor& b) {
  if constexpr (kind == Binary::kEq || kind == Binary::kNe)
    if (is_storage_only(a.dtype()) || is_storage_only(b.dtype())) [[unlikely]]
      return compare_stored(kind, a, b);
  return binary(kind, a, b);
}
template <Binary kind>
const Tensor& binary_into_kernel(const Tensor& out, const Tensor& a, const Tensor& b) {
  return binary_into(kind, out, a, b);
}

}  // namespace detail

// The name as errors have it, "floor_divide".
const char* binary_name(Binary kind);

// The dispatched operators: ops::op::add(a, b), ops::op::add_into(out, a, b).
#define TENON_BINARY(name, kind)                                                                  \
  namespace op {                                                                                  \
  inline constinit BinaryOperator name(#name, &detail::binary_kernel<Binary::kind>,               \
                                       &labels::broadcast);                                       \
  inline constinit BinaryIntoOperator name##_into(                                                \
      #name "_into", &detail::binary_into_kernel<Binary::kind>, &labels::broadcast_into);         \
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

TENON_BINARY(add, kAdd)  // a + b
TENON_BINARY(sub, kSub)  // a - b
TENON_BINARY(mul, kMul)  // a b
TENON_BINARY(div, kDiv)  // a / b; integers give the default floating-point dtype
TENON_BINARY(maximum, kMaximum)  // the larger; NaN if either is
TENON_BINARY(minimum, kMinimum)  // the smaller; NaN if either is
TENON_BINARY(pow, kPow)  // a to the power of b
TENON_BINARY(atan2, kAtan2)  // the angle of the point (b, a) in radians, in (-pi, pi]
TENON_BINARY(fmod, kFmod)  // the rest of a / b, with the sign of a
TENON_BINARY(remainder, kRemainder)  // the rest of a / b, with the sign of b
TENON_BINARY(floor_divide, kFloorDivide)  // a / b rounded down
TENON_BINARY(bitwise_and, kBitwiseAnd)  // a & b; integers and bool
TENON_BINARY(bitwise_or, kBitwiseOr)  // a | b; integers and bool
TENON_BINARY(bitwise_xor, kBitwiseXor)  // a ^ b; integers and bool
TENON_BINARY(eq, kEq)  // bool: a == b
TENON_BINARY(ne, kNe)  // bool: a != b
TENON_BINARY(lt, kLt)  // bool: a < b
TENON_BINARY(le, kLe)  // bool: a <= b
TENON_BINARY(gt, kGt)  // bool: a > b
TENON_BINARY(ge, kGe)  // bool: a >= b
TENON_BINARY(logical_and, kLogicalAnd)  // bool: both are not 0
TENON_BINARY(logical_or, kLogicalOr)  // bool: one is not 0
TENON_BINARY(logical_xor, kLogicalXor)  // bool: exactly one is not 0
#undef TENON_BINARY

// a + alpha b, a - alpha b: operands broadcast and promote. Throws as the operators above.
Tensor add(const Tensor& a, const Tensor& b, const Scalar& alpha);
Tensor sub(const Tensor& a, const Tensor& b, const Scalar& alpha);

}  // namespace tenon::ops
