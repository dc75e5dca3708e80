// Operators of sparse tensors (tensor/sparse.h). This header gives these operators kernels for
// sparse arguments, each with gradients for the values and for dense operands:
//
//   matmul(sparse, dense)      a matrix by a vector or a matrix; dense
//   add, sub                   two sparse ones of a shape, in the first one's layout; sparse and
//                              dense: dense
//   mul, div(sparse, number)   also by a strided 0-d tensor; the layout stays
//   neg(sparse)
//   sum(sparse, dims)          dense
//
// Others refuse sparse tensors. Shapes, dtypes, errors and thread safety: as the dense operators.
#pragma once

#include "tenon/ops/dispatch.h"

namespace tenon::ops {

// The stored elements of a matrix, row by row. Those of row r are numbers [crow[r], crow[r + 1]).
// Number i lies in column col[i] and is element order[i] of the values (undefined: i). A pair of
// rows and columns may come twice.
struct SparsePattern {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Tensor crow, col, order;  // int64
};
// Of a sparse matrix, else InvalidArgument, for its values as one row. O(nnz + rows); of CSR O(1).
SparsePattern pattern_of(const Tensor& sparse);
// Of the transposed matrix with the same values. Throws std::bad_alloc. O(nnz + columns).
SparsePattern transposed(const SparsePattern& pattern);

namespace detail {
Tensor sparse_product(const SparsePattern& pattern, const Tensor& values, const Tensor& dense);
Tensor sampled_product(const SparsePattern& pattern, const Tensor& x, const Tensor& y);
bool install_sparse();
}  // namespace detail

namespace op {
using SparseOperator = Operator<Tensor(const SparsePattern&, const Tensor&, const Tensor&)>;
inline constinit SparseOperator sparse_product("matmul of a sparse matrix",
                                               &detail::sparse_product);
inline constinit SparseOperator sampled_product("sampled_product", &detail::sampled_product);
}  // namespace op

// The matrix of that pattern with `values` [nnz], by dense [columns, n]: dense [rows, n]. Requires:
// those shapes, equal dtypes, not bool (matmul checks them). 16-bit floats are multiplied in f32.
// Throws OutOfMemory. O(nnz n). Each row is computed in one order: threads do not change it.
inline Tensor sparse_product(const SparsePattern& pattern, const Tensor& values,
                             const Tensor& dense) {
  return op::sparse_product(pattern, values, dense);
}
// Elements of x yᵀ (x [rows, n], y [columns, n]) that the pattern has: [nnz]. As sparse_product.
inline Tensor sampled_product(const SparsePattern& pattern, const Tensor& x, const Tensor& y) {
  return op::sampled_product(pattern, x, y);
}

namespace detail {
// Programs that include the header link the kernels; setting them again changes nothing.
inline const bool sparse_installed = install_sparse();
}  // namespace detail

}  // namespace tenon::ops
