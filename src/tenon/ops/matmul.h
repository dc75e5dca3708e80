// Matrix products. Both operands have one dtype, any except bool. 16-bit floats are multiplied in
// f32. Throws InvalidArgument, with both shapes and dtypes, where they do not fit, and OutOfMemory.
// Thread-safe unless a thread writes an argument. O(m n k) for each product of a batch. The result
// is the same on any number of threads.
#pragma once

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"
#include "tenon/ops/sparse.h"

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
inline constinit ProductOperator matmul("matmul", &detail::matmul, &labels::product);
inline constinit ProductOperator bmm("bmm", &detail::bmm, &labels::product);
inline constinit ProductOperator outer("outer", &detail::outer, &labels::outer);
inline constinit ProductSumOperator addmm("addmm", &detail::addmm, &labels::product_sum);
inline constinit ProductSumOperator linear("linear", &detail::linear, &labels::linear, 2);
}  // namespace op

// [..., m, k] by [..., k, n]: [..., m, n], as in PyTorch and NumPy. Leading dimensions are a batch
// and broadcast. A vector is a row on the left and a column on the right, and the result has no
// dimension for it. A matrix is used where it is, transposed or not, if one of its last two strides
// is 1; others are copied. The first may be a sparse matrix (tensor/sparse.h), the second then a
// vector or a matrix.
inline Tensor matmul(const Tensor& a, const Tensor& b) { return op::matmul(a, b); }
// [n, p, k] by [n, k, q]: [n, p, q]. Both have three dimensions and the same batch.
inline Tensor bmm(const Tensor& a, const Tensor& b) { return op::bmm(a, b); }
// bias + a b, of [m, k] by [k, n]: [m, n], to which the bias broadcasts, converted to their dtype.
inline Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b) {
  return op::addmm(bias, a, b);
}
// a weight^T + bias, of a [..., in] and weight [out, in]: [..., out]. The bias is [out] or
// undefined.
inline Tensor linear(const Tensor& a, const Tensor& weight, const Tensor& bias = {}) {
  return op::linear(a, weight, bias);
}
// a[i] b[j], of [m] and [n]: [m, n]. Dtypes promote. O(m n).
inline Tensor outer(const Tensor& a, const Tensor& b) { return op::outer(a, b); }

}  // namespace tenon::ops
