#include "tenon/ops/kernels/cpu/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <string_view>

#include "tenon/base/check.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/blas_buffer.h"
#include "tenon/ops/kernels/cpu/onednn_gemm.h"
#include "tenon/ops/kernels/cpu/small_product.h"
#include "tenon/ops/kernels/cpu/vector_product.h"

namespace tenon::ops::cpu {
namespace {

// OpenBLAS computes the same element differently when it cuts a product for another number of
// threads. So it works on one thread here, and the cutting is ours: by sizes alone. It keeps that
// number for the whole program.
void use_one_blas_thread() {
  if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
}

bool blas_has_avx512() {
  const std::string_view core = openblas_get_corename();
  return core == "SkylakeX" || core == "Cooperlake" || core == "SapphireRapids";
}

// Each piece packs the other operand anew, which this many rows are worth.
constexpr std::int64_t kShortestPiece = 256;
constexpr std::int64_t kMostPieces = 16;

// How many rows (or columns) of the result one thread computes at a time: a power of two of pieces,
// so that two and four threads get as much each.
std::int64_t piece_length(std::int64_t length, std::int64_t other, std::int64_t k) {
  if (length * other * k < (std::int64_t{1} << 22)) return length;
  std::int64_t pieces = 1;
  while (pieces < kMostPieces && length / (2 * pieces) >= kShortestPiece) pieces *= 2;
  if (pieces == 1 && length >= kShortestPiece) pieces = 2;  // half that is worth a second thread
  return (length + pieces - 1) / pieces;
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

// Note [Signals in generated code]: oneDNN 2.6's dnnl_sgemm has kernels for packed products that
// keep data in the stack pointer. When a signal is handled then, Linux writes the signal's frame,
// some 3 KiB, below that address: into whatever lies there. Only a handler on an alternate stack
// (SA_ONSTACK) is safe, and handlers are the program's. Holding signals back around each product
// takes two system calls, which is more than a small product. So dnnl_sgemm is not called. oneDNN's
// kernels for blocks (onednn_gemm.h) leave the stack pointer alone. ops/signal_test.cc looks at it.
bool has_gaps(const Matrix& matrix, std::int64_t rows, std::int64_t columns) {
  return matrix.row_stride != (matrix.transposed ? rows : columns);
}

// OpenBLAS takes its kernels for AVX2 on processors that it does not know. A smaller product is not
// worth the time in which oneDNN finds its kernels, nor copies that few products share.
bool is_faster_by_blocks(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a,
                         const Matrix& b, std::int64_t out_stride) {
  constexpr std::int64_t kLeastWork = 1 << 20, kWorthACopy = 64;
  static const bool is_there = has_onednn_gemm(DType::kF32) && !blas_has_avx512();
  return is_there && m * n * k >= kLeastWork && (n >= kWorthACopy || !has_gaps(a, m, k)) &&
         (m >= kWorthACopy || !has_gaps(b, k, n)) && (k >= kWorthACopy || out_stride == n);
}

// One piece, on the calling thread.
void multiply(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a,
               const Matrix& b, double beta, void* out, std::int64_t out_stride) {
  const auto M = static_cast<blasint>(m), N = static_cast<blasint>(n), K = static_cast<blasint>(k);
  const auto lda = static_cast<blasint>(a.row_stride), ldb = static_cast<blasint>(b.row_stride);
  const auto ldc = static_cast<blasint>(out_stride);
  TENON_CHECK(M == m && N == n && K == k, "a product of {} x {} x {}", m, k, n);
  if (dtype == DType::kF32 && is_small_product(m, n, k))
    return small_product(m, n, k, a, b, static_cast<float>(beta), static_cast<float*>(out),
                         out_stride);
  const double one[2] = {1, 0};
  const double scale[2] = {beta, 0};
  const float one_f[2] = {1, 0};
  const float scale_f[2] = {static_cast<float>(beta), 0};
  if (dtype == DType::kBF16 ||
      (dtype == DType::kF32 && is_faster_by_blocks(m, n, k, a, b, out_stride)))
    return onednn_gemm(dtype, m, n, k, a, b, beta, static_cast<float*>(out), out_stride);
  const BlasCall call(static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
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
    default:
      return cblas_zgemm(CblasRowMajor, order(a), order(b), M, N, K, one, a.data, lda, b.data, ldb,
                         scale, out, ldc);
  }
}

// From row `first` on.
Matrix from_row(const Matrix& matrix, std::int64_t first, std::int64_t item) {
  const std::int64_t step = matrix.transposed ? 1 : matrix.row_stride;
  return {static_cast<const char*>(matrix.data) + first * step * item, matrix.row_stride,
          matrix.transposed};
}
Matrix from_column(const Matrix& matrix, std::int64_t first, std::int64_t item) {
  const std::int64_t step = matrix.transposed ? matrix.row_stride : 1;
  return {static_cast<const char*>(matrix.data) + first * step * item, matrix.row_stride,
          matrix.transposed};
}

}  // namespace

bool takes_bf16(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kLeastWork = 1 << 16;
  return m == 1 || n == 1 ||
         (m >= 8 && n >= 16 && m * n * k >= kLeastWork && has_onednn_gemm(DType::kBF16));
}

void gemm(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a,
          const Matrix& b, double beta, void* out, std::int64_t out_stride) {
  switch (dtype) {
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
      break;
  }
  if ((m == 1 || n == 1) && has_vector_product(dtype))
    return vector_product(dtype, m, n, k, a, b, beta, out, out_stride);
  TENON_CHECK(dtype == DType::kF32 || dtype == DType::kF64 || is_complex(dtype) ||
                  (dtype == DType::kBF16 && has_onednn_gemm(dtype)),
              "a product of {}", dtype_name(dtype));
  if (dtype != DType::kBF16) use_one_blas_thread();
  const auto item = static_cast<std::int64_t>(item_size(dtype));
  const auto out_item =
      static_cast<std::int64_t>(item_size(dtype == DType::kBF16 ? DType::kF32 : dtype));
  auto* target = static_cast<char*>(out);
  if (m >= n) {
    parallel_for(0, m, piece_length(m, n, k), [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t piece = piece_length(m, n, k);
      for (std::int64_t row = begin; row < end; row += piece)
        multiply(dtype, std::min(piece, end - row), n, k, from_row(a, row, item), b, beta,
                 target + row * out_stride * out_item, out_stride);
    });
    return;
  }
  parallel_for(0, n, piece_length(n, m, k), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t piece = piece_length(n, m, k);
    for (std::int64_t column = begin; column < end; column += piece)
      multiply(dtype, m, std::min(piece, end - column), k, a, from_column(b, column, item), beta,
               target + column * out_item, out_stride);
  });
}

}  // namespace tenon::ops::cpu
