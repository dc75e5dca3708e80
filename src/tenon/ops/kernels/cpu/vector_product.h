// Products of a matrix and a few vectors on the host.
#pragma once

#include <cstdint>

#include "tenon/ops/kernels/cpu/gemm.h"
#include "tenon/tensor/dtype.h"

namespace tenon::ops::cpu {

// Whether vector_product computes in this dtype.
constexpr bool has_vector_product(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 ||
         dtype == DType::kF16;
}

// The most vectors. To read a larger matrix once takes longer than the sums of so few.
constexpr std::int64_t kFewVectors = 8;

// gemm() of a single product where m or n is at most kFewVectors. Each element of the result is
// computed by itself, so pieces on several threads change nothing. The matrix is read once. Copied
// are only vectors with gaps, vectors of 16 bits, and a few columns.
void vector_product(const Products& p);

}  // namespace tenon::ops::cpu
