// Products of matrices of f32 and f64 in the vectors of the processor.
#pragma once

#include <cstdint>

#include "tenon/ops/kernels/cpu/gemm.h"

namespace tenon::ops::cpu {

// The bytes of the vectors that block_product computes in.
std::int64_t block_product_vector_bytes();

// gemm() on the calling thread. It copies strips of the operands into the order in which they are
// read, except those of b that few rows of a meet. An element's sum has the order of k, so no part
// of the result depends on the others. Requires: f32 or f64. Throws std::bad_alloc.
void block_product(const Products& p);

}  // namespace tenon::ops::cpu
