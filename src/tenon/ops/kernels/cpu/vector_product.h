// Products of a matrix and a vector on the host.
#pragma once

#include <cstdint>

#include "tenon/ops/kernels/cpu/gemm.h"
#include "tenon/tensor/dtype.h"

namespace tenon::ops::cpu {

// Whether vector_product computes in this dtype.
constexpr bool has_vector_product(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16;
}

// gemm() where m or n is 1. Each element of the result is computed by itself, so pieces on several
// threads change nothing. The matrix is read once, and nothing is copied except a vector with gaps.
void vector_product(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a,
                    const Matrix& b, double beta, void* out, std::int64_t out_stride);

}  // namespace tenon::ops::cpu
