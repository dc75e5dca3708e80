// Products of matrices of bfloat16 numbers, by the processor's instructions for them.
#pragma once

#include <cstdint>

#include "tenon/ops/kernels/cpu/gemm.h"

namespace tenon::ops::cpu {

// Whether this processor has the instructions: AVX512_BF16.
bool has_bf16_products();

// out[m, n] = a[m, k] b[k, n] + beta out, of f32 matrices whose numbers all have bfloat16's
// precision. On the calling thread. An element's result does not depend on m and n. Subnormal
// operands and products count as zero. Throws std::bad_alloc without memory for its buffers, some
// 1.2 MiB for each thread. Requires: has_bf16_products().
void bf16_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b,
               double beta, float* out, std::int64_t out_stride);

}  // namespace tenon::ops::cpu
