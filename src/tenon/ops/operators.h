// The signs of arithmetic for tensors, and one header for all operators. Throws what the function
// throws; thread-safe unless a thread writes an argument. O(elements).
#pragma once

#include "tenon/ops/attention.h"
#include "tenon/ops/binary.h"
#include "tenon/ops/complex.h"
#include "tenon/ops/conv.h"
#include "tenon/ops/loss.h"
#include "tenon/ops/matmul.h"
#include "tenon/ops/normalization.h"
#include "tenon/ops/pool.h"
#include "tenon/ops/reduce.h"
#include "tenon/ops/scan.h"
#include "tenon/ops/select.h"
#include "tenon/ops/shape.h"
#include "tenon/ops/softmax.h"
#include "tenon/ops/sparse.h"
#include "tenon/ops/unary.h"

namespace tenon {

// As the function of ops that each stands for. Comparisons give a tensor of bools.
#define TENON_SIGN(sign, name)                                                              \
  inline Tensor operator sign(const Tensor& a, const Tensor& b) { return ops::name(a, b); } \
  inline Tensor operator sign(const Tensor& a, const Scalar& b) { return ops::name(a, b); } \
  inline Tensor operator sign(const Scalar& a, const Tensor& b) { return ops::name(a, b); }
TENON_SIGN(+, add)   // ops::add
TENON_SIGN(-, sub)   // ops::sub
TENON_SIGN(*, mul)   // ops::mul
TENON_SIGN(/, div)   // ops::div
TENON_SIGN(==, eq)   // ops::eq
TENON_SIGN(!=, ne)   // ops::ne
TENON_SIGN(<, lt)    // ops::lt
TENON_SIGN(<=, le)   // ops::le
TENON_SIGN(>, gt)    // ops::gt
TENON_SIGN(>=, ge)   // ops::ge
#undef TENON_SIGN

// ops::neg.
inline Tensor operator-(const Tensor& a) { return ops::neg(a); }
// In place: ops::add_ and so on.
inline const Tensor& operator+=(const Tensor& a, const Tensor& b) { return ops::add_(a, b); }
inline const Tensor& operator-=(const Tensor& a, const Tensor& b) { return ops::sub_(a, b); }
inline const Tensor& operator*=(const Tensor& a, const Tensor& b) { return ops::mul_(a, b); }
inline const Tensor& operator/=(const Tensor& a, const Tensor& b) { return ops::div_(a, b); }
inline const Tensor& operator+=(const Tensor& a, const Scalar& b) { return ops::add_(a, b); }
inline const Tensor& operator-=(const Tensor& a, const Scalar& b) { return ops::sub_(a, b); }
inline const Tensor& operator*=(const Tensor& a, const Scalar& b) { return ops::mul_(a, b); }
inline const Tensor& operator/=(const Tensor& a, const Scalar& b) { return ops::div_(a, b); }

}  // namespace tenon
