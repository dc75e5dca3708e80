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

// How precise the numbers of a and b are: as their dtype, or as bfloat16.
enum class Precision : bool { kOfDType, kBF16 };

// out[m, n] = a[m, k] b[k, n] + beta out, where out has rows of `n` elements at `out_stride`. By
// OpenBLAS for f32, f64 and complex, in pieces on as many threads as num_threads() says and with
// the same result on any number; by plain loops for integers. Products of f32 matrices with
// bfloat16's precision are by bf16_gemm where the processor allows. Requires: the dtype is none of
// the 16-bit floats, nor bool.
void gemm(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a,
          const Matrix& b, double beta, void* out, std::int64_t out_stride,
          Precision precision = Precision::kOfDType);

}  // namespace tenon::ops::cpu
