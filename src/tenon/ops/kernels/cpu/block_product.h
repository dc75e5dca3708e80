// Products of matrices of f32 and f64 in the vectors of the processor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "tenon/ops/kernels/cpu/gemm.h"

namespace tenon::ops::cpu {

// The bytes of the vectors that block_product computes in.
std::int64_t block_product_vector_bytes();

// The most rows of b that are multiplied before the next ones.
constexpr std::int64_t kBlockDepth = 256;

// Whether rows of b, read in place, push each other out of a cache before they are read again.
// Lines that are `apart` share a place in it, which holds eight, and other data needs two: so it is
// with rows of a power of two of elements. Requires: b is not transposed.
constexpr std::int64_t kApartInFirstLevel = 4096, kApartInSecondLevel = 65536;
inline bool rows_of_b_collide(const Products& p, std::int64_t apart) {
  const std::int64_t row_bytes = p.b.row_stride * static_cast<std::int64_t>(item_size(p.dtype));
  return std::gcd(row_bytes, apart) * std::min(p.k, kBlockDepth) > 6 * apart;
}

// gemm() on the calling thread. It copies strips of the operands into the order in which they are
// read, except those of b that few rows of a meet. An element's sum has the order of k, so no part
// of the result depends on the others. Requires: f32 or f64. Throws std::bad_alloc.
void block_product(const Products& p);

}  // namespace tenon::ops::cpu
