#include "tenon/ops/kernels/cpu/gemm.h"

#include <cblas.h>

#include <atomic>

#include "tenon/base/check.h"
#include "tenon/base/parallel.h"

namespace tenon::ops::cpu {
namespace {

// OpenBLAS keeps its number of threads for the whole program.
void use_our_threads() {
  static std::atomic<int> current{0};
  const int wanted = num_threads();
  if (current.load(std::memory_order_relaxed) == wanted) return;
  openblas_set_num_threads(wanted);
  current.store(wanted, std::memory_order_relaxed);
}

CBLAS_TRANSPOSE order(const Matrix& matrix) {
  return matrix.transposed ? CblasTrans : CblasNoTrans;
}

// Unsigned, so that overflow wraps.
template <typename T>
void integer_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b,
                  double beta, void* out, std::int64_t out_stride) {
  const auto* pa = static_cast<const T*>(a.data);
  const auto* pb = static_cast<const T*>(b.data);
  const std::int64_t a_row = a.transposed ? 1 : a.row_stride;
  const std::int64_t a_column = a.transposed ? a.row_stride : 1;
  const std::int64_t b_row = b.transposed ? 1 : b.row_stride;
  const std::int64_t b_column = b.transposed ? b.row_stride : 1;
  auto* result = static_cast<T*>(out);
  parallel_for(0, m, std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, n * k)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   for (std::int64_t j = 0; j < n; ++j) {
                     std::uint64_t sum =
                         beta == 0 ? 0 : static_cast<std::uint64_t>(result[i * out_stride + j]);
                     for (std::int64_t l = 0; l < k; ++l)
                       sum += static_cast<std::uint64_t>(pa[i * a_row + l * a_column]) *
                              static_cast<std::uint64_t>(pb[l * b_row + j * b_column]);
                     result[i * out_stride + j] = static_cast<T>(sum);
                   }
               });
}

}  // namespace

void gemm(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a,
          const Matrix& b, double beta, void* out, std::int64_t out_stride) {
  use_our_threads();
  const auto M = static_cast<blasint>(m), N = static_cast<blasint>(n), K = static_cast<blasint>(k);
  const auto lda = static_cast<blasint>(a.row_stride), ldb = static_cast<blasint>(b.row_stride);
  const auto ldc = static_cast<blasint>(out_stride);
  TENON_CHECK(M == m && N == n && K == k, "a product of {} x {} x {}", m, k, n);
  const double one[2] = {1, 0};
  const double scale[2] = {beta, 0};
  const float one_f[2] = {1, 0};
  const float scale_f[2] = {static_cast<float>(beta), 0};
  switch (dtype) {
    case DType::kF32:
      return cblas_sgemm(CblasRowMajor, order(a), order(b), M, N, K, 1,
                         static_cast<const float*>(a.data), lda, static_cast<const float*>(b.data),
                         ldb, scale_f[0], static_cast<float*>(out), ldc);
    case DType::kF64:
      return cblas_dgemm(
          CblasRowMajor, order(a), order(b), M, N, K, 1, static_cast<const double*>(a.data), lda,
          static_cast<const double*>(b.data), ldb, beta, static_cast<double*>(out), ldc);
    case DType::kC64:
      return cblas_cgemm(CblasRowMajor, order(a), order(b), M, N, K, one_f, a.data, lda, b.data,
                         ldb, scale_f, out, ldc);
    case DType::kC128:
      return cblas_zgemm(CblasRowMajor, order(a), order(b), M, N, K, one, a.data, lda, b.data, ldb,
                         scale, out, ldc);
    case DType::kU8:
      return integer_gemm<std::uint8_t>(m, n, k, a, b, beta, out, out_stride);
    case DType::kI8:
      return integer_gemm<std::int8_t>(m, n, k, a, b, beta, out, out_stride);
    case DType::kI16:
      return integer_gemm<std::int16_t>(m, n, k, a, b, beta, out, out_stride);
    case DType::kI32:
      return integer_gemm<std::int32_t>(m, n, k, a, b, beta, out, out_stride);
    case DType::kI64:
      return integer_gemm<std::int64_t>(m, n, k, a, b, beta, out, out_stride);
    default:
      TENON_CHECK(false, "a product of {}", dtype_name(dtype));
  }
}

}  // namespace tenon::ops::cpu
