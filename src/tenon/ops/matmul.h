// Matrix products.
#pragma once

#include "tenon/ops/dispatch.h"

namespace tenon::ops {

namespace detail {
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor bmm(const Tensor& a, const Tensor& b);
Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b);
Tensor linear(const Tensor& a, const Tensor& weight, const Tensor& bias);
Tensor outer(const Tensor& a, const Tensor& b);
}  // namespace detail

namespace op {
using ProductOperator = Operator<Tensor(const Tensor&, const Tensor&)>;
using ProductSumOperator = Operator<Tensor(const Tensor&, const Tensor&, const Tensor&)>;
inline constinit ProductOperator matmul("matmul", &detail::matmul);
inline constinit ProductOperator bmm("bmm", &detail::bmm);
inline constinit ProductOperator outer("outer", &detail::outer);
inline constinit ProductSumOperator addmm("addmm", &detail::addmm);
inline constinit ProductSumOperator linear("linear", &detail::linear);
}  // namespace op

// As PyTorch and NumPy: vectors lose the dimension they lent, leading dimensions are a batch and
// broadcast. Both of one dtype, any but bool; 16-bit floats are multiplied in f32. Transposed and
// otherwise strided matrices are used where they are, if one of their last two strides is 1.
// The first may be a sparse matrix (tensor/sparse.h), the second then a vector or a matrix.
inline Tensor matmul(const Tensor& a, const Tensor& b) { return op::matmul(a, b); }
// [n, p, k] by [n, k, q].
inline Tensor bmm(const Tensor& a, const Tensor& b) { return op::bmm(a, b); }
// bias + a b, where bias broadcasts to [m, n].
inline Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b) {
  return op::addmm(bias, a, b);
}
// a [..., in] by weight [out, in], transposed, plus bias [out] or an undefined one.
inline Tensor linear(const Tensor& a, const Tensor& weight, const Tensor& bias = {}) {
  return op::linear(a, weight, bias);
}
// [m] by [n]: [m, n].
inline Tensor outer(const Tensor& a, const Tensor& b) { return op::outer(a, b); }

}  // namespace tenon::ops
