// Matrix products on the host.
#pragma once

#include <cstdint>

#include "tenon/tensor/dtype.h"

namespace tenon::ops::cpu {

// One operand in row-major order, or transposed, with the distance of its rows (of the memory's
// rows, where transposed).
struct Matrix {
  const void* data = nullptr;
  std::int64_t row_stride = 0;
  bool transposed = false;
};

// Whether gemm takes operands of bf16 for a result of that size: a vector, or where the processor
// has instructions for them, most of a kernel's tile is not idle, and the work is worth the time in
// which oneDNN begins.
bool takes_bf16(std::int64_t m, std::int64_t n, std::int64_t k);

// out[m, n] = a[m, k] b[k, n] + beta out, where out has rows of `n` elements at `out_stride`; all
// of the dtype, but for bf16 with a result of f32. By oneDNN, OpenBLAS or, with a vector, loops of
// ours, in pieces on as many threads as num_threads() says and with the same result on any number;
// by plain loops for integers. Requires: the dtype is not bool nor f16, and bf16 only where
// takes_bf16(m, n, k).
void gemm(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a,
          const Matrix& b, double beta, void* out, std::int64_t out_stride);

}  // namespace tenon::ops::cpu
