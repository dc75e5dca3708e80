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

// out[m, n] = a[m, k] b[k, n] + beta out, where out has rows of `n` elements at `out_stride`; all
// of the dtype. For operands of 16 bits, out is of f32, or, `is_narrow` and without beta, as they
// are. A batch has `count` of them, each so many elements apart from the one before.
struct Products {
  DType dtype = DType::kF32;
  std::int64_t m = 0, n = 0, k = 0;
  Matrix a = {}, b = {};
  double beta = 0;
  void* out = nullptr;
  std::int64_t out_stride = 0;
  bool is_narrow = false;
  const void* bias = nullptr;  // n elements of the dtype, added to each row; where takes_bias
  std::int64_t count = 1, a_apart = 0, b_apart = 0, out_apart = 0;

  // Number i of the batch.
  Products one(std::int64_t i) const;
};

// Whether gemm takes operands of that dtype of 16 bits: by a few vectors, or bf16 where the
// processor has instructions for it, most of a kernel's tile is not idle, and the work is worth the
// time in which oneDNN begins.
bool takes_half(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k);

// Whether gemm takes a bias of operands that takes_half allows, and results of their dtype.
bool takes_bias(DType dtype, std::int64_t m, std::int64_t n);

// A product so large that gemm divides it among threads.
bool is_divided(std::int64_t m, std::int64_t n, std::int64_t k);

// By oneDNN, OpenBLAS or, with a few vectors and small ones, loops of ours, in pieces on as many
// threads as num_threads() says and with the same result on any number; by plain loops for
// integers. Requires: the dtype is not bool, and one of 16 bits only where takes_half.
void gemm(const Products& p);
inline void gemm(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a,
                 const Matrix& b, double beta, void* out, std::int64_t out_stride) {
  gemm({dtype, m, n, k, a, b, beta, out, out_stride});
}

}  // namespace tenon::ops::cpu
