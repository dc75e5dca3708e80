// Products of small matrices of f32, which are over before a library has begun.
#pragma once

#include <cstdint>

#include "tenon/ops/kernels/cpu/gemm.h"

namespace tenon::ops::cpu {

bool is_small_product(std::int64_t m, std::int64_t n, std::int64_t k);

// out[m, n] = a[m, k] b[k, n] + beta out, on the calling thread. Requires: is_small_product.
void small_product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b,
                   float beta, float* out, std::int64_t out_stride);

}  // namespace tenon::ops::cpu
