// Tensors most of whose elements are zero: coordinates (COO), compressed rows or columns (CSR,
// CSC), and the same of dense blocks (BSR, BSC).
//
// Thread-safe unless a thread writes an argument.
#pragma once

#include "tenon/tensor/tensor.h"

namespace tenon {

// A sparse tensor is a Tensor with sizes, dtype and device, whose elements lie in other, strided
// tensors. It has no bytes of its own: whatever asks for them throws InvalidArgument and says
// to_dense(). ops::matmul takes one as its first operand.
//
//   COO: indices [sparse_dim, nnz] of int64, values [nnz, dense sizes...]. Elements that occur more
//        than once add up. Coalesced: sorted in row-major order, each once.
//   CSR: two dimensions; crow_indices [rows + 1] and col_indices [nnz] of int64, values [nnz]. The
//        columns of a row ascend strictly.
//   CSC: the same by columns: ccol_indices [columns + 1], row_indices [nnz].
//   BSR: as CSR, of blocks: values [nnz, height, width]; pointers and indices count blocks.
//   BSC: as CSC, of blocks.
//
// The parts are shared with who gave them, not copied; do not change indices afterwards. Sparse
// tensors are made on the host. Gradients go through the values: where they require one, the
// results of conversions and of ops/sparse.h do. The gradient has exactly one element for each
// value.

// Throws InvalidArgument, with the place, where an index is out of range or shapes do not fit.
// O(nnz). `indices` and the like may be any integers; others than int64 are converted.
Tensor sparse_coo_tensor(const Tensor& indices, const Tensor& values, IntList sizes);
Tensor sparse_csr_tensor(const Tensor& crow_indices, const Tensor& col_indices,
                         const Tensor& values, IntList sizes);
Tensor sparse_csc_tensor(const Tensor& ccol_indices, const Tensor& row_indices,
                         const Tensor& values, IntList sizes);
Tensor sparse_bsr_tensor(const Tensor& crow_indices, const Tensor& col_indices,
                         const Tensor& values, IntList sizes);
Tensor sparse_bsc_tensor(const Tensor& ccol_indices, const Tensor& row_indices,
                         const Tensor& values, IntList sizes);

// What is not zero (NaN is not) of a strided or sparse tensor. `sparse_dim` leading dimensions are
// sparse, the others stay dense in `values` (-1: all). From strided O(numel), else O(nnz). Of CSC,
// BSR and BSC in their order, which coalesce() sorts, and with the zeros of their blocks.
Tensor to_sparse_coo(const Tensor& source, std::int64_t sparse_dim = -1);
// Of a matrix. From sparse ones O(nnz log nnz) at most.
Tensor to_sparse_csr(const Tensor& source);
Tensor to_sparse_csc(const Tensor& source);
// Blocks in which something is not zero. Their size must divide the matrix's.
Tensor to_sparse_bsr(const Tensor& source, std::int64_t height, std::int64_t width);
Tensor to_sparse_bsc(const Tensor& source, std::int64_t height, std::int64_t width);
// The tensor itself if it is strided already. O(numel).
Tensor to_dense(const Tensor& source);

// Whether it is of one of these layouts.
inline bool is_sparse(const Tensor& tensor) { return tensor.layout() != Layout::kStrided; }

// How many elements (blocks, of BSR and BSC) are there, zeros and duplicates of COO included.
std::int64_t sparse_nnz(const Tensor& sparse);
const Tensor& sparse_values(const Tensor& sparse);
const Tensor& sparse_indices(const Tensor& coo);
const Tensor& sparse_crow_indices(const Tensor& csr_or_bsr);
const Tensor& sparse_col_indices(const Tensor& csr_or_bsr);
const Tensor& sparse_ccol_indices(const Tensor& csc_or_bsc);
const Tensor& sparse_row_indices(const Tensor& csc_or_bsc);

// Other values in the same places: a scaled or converted tensor. Shapes must be equal.
Tensor with_sparse_values(const Tensor& sparse, const Tensor& values);

// Whether the indices are sorted and none comes twice.
bool is_coalesced(const Tensor& coo);
// Sorts and adds duplicates up. The tensor itself if it is coalesced. O(nnz log nnz).
Tensor coalesce(const Tensor& coo);

// Rows and columns changed places; COO may have more sparse dimensions, of which two do. Values of
// COO are shared, those of the others are not. O(nnz). Tensor::transpose and t() come here.
Tensor transpose_sparse(const Tensor& sparse, std::int64_t dim0, std::int64_t dim1);

}  // namespace tenon
