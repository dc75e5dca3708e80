// A sparse matrix times a dense one.
#pragma once

#include "tenon/tensor/tensor.h"

namespace tenon::ops {

// sparse [m, k], COO or CSR, by dense [k] or [k, n]: dense [m] or [m, n], for ops::matmul. Dtypes
// are equal and not bool; 16-bit floats are multiplied in f32. O(nnz n); rows of the result are
// split over the threads, each computed in one order, so results are the same on any number.
// COO is brought to CSR first. Throws InvalidArgument where the shapes or dtypes do not fit.
Tensor sparse_product(const Tensor& sparse, const Tensor& dense);

}  // namespace tenon::ops
