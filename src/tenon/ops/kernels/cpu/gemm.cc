#include "tenon/ops/kernels/cpu/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <string_view>

#include "tenon/base/check.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/blas_buffer.h"
#include "tenon/ops/kernels/cpu/block_product.h"
#include "tenon/ops/kernels/cpu/onednn_gemm.h"
#include "tenon/ops/kernels/cpu/vector_product.h"

namespace tenon::ops::cpu {
namespace {

// OpenBLAS computes the same element differently when it cuts a product for another number of
// threads. So it works on one thread here, and the cutting is ours: by sizes alone. It keeps that
// number for the whole program.
void use_one_blas_thread() {
  if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
}

// The bytes of the vectors that OpenBLAS computes in. On a processor that it does not know it takes
// kernels for AVX2 or for SSE.
std::int64_t blas_vector_bytes() {
  const std::string_view core = openblas_get_corename();
  if (core == "SkylakeX" || core == "Cooperlake" || core == "SapphireRapids") return 64;
  return core == "Haswell" || core == "Zen" || core == "Excavator" ? 32 : 16;
}

// Each piece packs the other operand anew, which this many rows are worth.
constexpr std::int64_t kShortestPiece = 256;
constexpr std::int64_t kMostPieces = 16;

// How many rows (or columns) of the result one thread computes at a time: a power of two of pieces,
// so that two and four threads get as much each.
std::int64_t piece_length(std::int64_t length, std::int64_t other, std::int64_t k) {
  if (!is_divided(length, other, k)) return length;
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
void integer_gemm(const Products& p) {
  const auto* pa = static_cast<const T*>(p.a.data);
  const auto* pb = static_cast<const T*>(p.b.data);
  const std::int64_t a_row = p.a.transposed ? 1 : p.a.row_stride;
  const std::int64_t a_column = p.a.transposed ? p.a.row_stride : 1;
  const std::int64_t b_row = p.b.transposed ? 1 : p.b.row_stride;
  const std::int64_t b_column = p.b.transposed ? p.b.row_stride : 1;
  auto* result = static_cast<T*>(p.out);
  const std::int64_t work = std::max<std::int64_t>(1, p.n * p.k);
  parallel_for(0, p.m, std::max<std::int64_t>(1, 65536 / work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   for (std::int64_t j = 0; j < p.n; ++j) {
                     T& to = result[i * p.out_stride + j];
                     std::uint64_t sum = p.beta == 0 ? 0 : static_cast<std::uint64_t>(to);
                     for (std::int64_t l = 0; l < p.k; ++l)
                       sum += static_cast<std::uint64_t>(pa[i * a_row + l * a_column]) *
                              static_cast<std::uint64_t>(pb[l * b_row + j * b_column]);
                     to = static_cast<T>(sum);
                   }
               });
}

// False: not of integers.
bool integers(const Products& p) {
  switch (p.dtype) {
    case DType::kU8:
      return integer_gemm<std::uint8_t>(p), true;
    case DType::kI8:
      return integer_gemm<std::int8_t>(p), true;
    case DType::kI16:
      return integer_gemm<std::int16_t>(p), true;
    case DType::kI32:
      return integer_gemm<std::int32_t>(p), true;
    case DType::kI64:
      return integer_gemm<std::int64_t>(p), true;
    default:
      return false;
  }
}

// Note [Signals in generated code]: oneDNN 2.6's dnnl_sgemm has kernels for packed products that
// keep data in the stack pointer. When a signal is handled then, Linux writes the signal's frame,
// some 3 KiB, below that address: into whatever lies there. Only a handler on an alternate stack
// (SA_ONSTACK) is safe, and handlers are the program's. Holding signals back around each product
// takes two system calls, which is more than a small product. So dnnl_sgemm is not called. oneDNN's
// kernels for blocks (onednn_gemm.h) leave the stack pointer alone. ops/signal_test.cc looks at it.

void by_blas(const Products& p) {
  const auto m = static_cast<blasint>(p.m), n = static_cast<blasint>(p.n);
  const auto k = static_cast<blasint>(p.k), ldc = static_cast<blasint>(p.out_stride);
  const auto lda = static_cast<blasint>(p.a.row_stride), ldb = static_cast<blasint>(p.b.row_stride);
  TENON_CHECK(m == p.m && n == p.n && k == p.k, "a product of {} x {} x {}", p.m, p.k, p.n);
  const double one[2] = {1, 0};
  const double scale[2] = {p.beta, 0};
  const float one_f[2] = {1, 0};
  const float scale_f[2] = {static_cast<float>(p.beta), 0};
  const BlasCall call(static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
  switch (p.dtype) {
    case DType::kF32:
      return cblas_sgemm(CblasRowMajor, order(p.a), order(p.b), m, n, k, 1,
                         static_cast<const float*>(p.a.data), lda,
                         static_cast<const float*>(p.b.data), ldb, scale_f[0],
                         static_cast<float*>(p.out), ldc);
    case DType::kF64:
      return cblas_dgemm(CblasRowMajor, order(p.a), order(p.b), m, n, k, 1,
                         static_cast<const double*>(p.a.data), lda,
                         static_cast<const double*>(p.b.data), ldb, p.beta,
                         static_cast<double*>(p.out), ldc);
    case DType::kC64:
      return cblas_cgemm(CblasRowMajor, order(p.a), order(p.b), m, n, k, one_f, p.a.data, lda,
                         p.b.data, ldb, scale_f, p.out, ldc);
    default:
      return cblas_zgemm(CblasRowMajor, order(p.a), order(p.b), m, n, k, one, p.a.data, lda,
                         p.b.data, ldb, scale, p.out, ldc);
  }
}

const void* at(const void* data, std::int64_t element, DType dtype) {
  return static_cast<const char*>(data) + element * static_cast<std::int64_t>(item_size(dtype));
}
DType out_dtype(const Products& p) {
  const bool is_half = p.dtype == DType::kBF16 || p.dtype == DType::kF16;
  return is_half && !p.is_narrow ? DType::kF32 : p.dtype;
}

// `rows` rows from `first` on, or columns.
Products rows_of(const Products& p, std::int64_t first, std::int64_t rows) {
  Products piece = p;
  piece.m = rows;
  piece.a.data = at(p.a.data, first * (p.a.transposed ? 1 : p.a.row_stride), p.dtype);
  piece.out = const_cast<void*>(at(p.out, first * p.out_stride, out_dtype(p)));
  return piece;
}
Products columns_of(const Products& p, std::int64_t first, std::int64_t columns) {
  Products piece = p;
  piece.n = columns;
  piece.b.data = at(p.b.data, first * (p.b.transposed ? p.b.row_stride : 1), p.dtype);
  piece.out = const_cast<void*>(at(p.out, first, out_dtype(p)));
  if (p.bias != nullptr) piece.bias = at(p.bias, first, p.dtype);
  return piece;
}

// What fills most of the tile of oneDNN's kernels for bf16.
bool fills_tile(DType dtype, std::int64_t m, std::int64_t n) {
  return dtype == DType::kBF16 && m >= 8 && n >= 16 && has_onednn_gemm();
}
bool is_by_vectors(DType dtype, std::int64_t m, std::int64_t n) {
  return std::min(m, n) <= kFewVectors && has_vector_product(dtype) && !fills_tile(dtype, m, n);
}

bool is_of_our_blocks(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }
bool has_our_blocks() {
  static const bool is_wider = block_product_vector_bytes() > blas_vector_bytes();
  return is_wider;
}

// Blocks would transpose what vectors on the left meet as rows: of f64, long ones make more
// vectors faster. Blocks take less time than more than two that meet columns (more than four where
// the columns' rows collide), than short ones, or than vectors on the right that fill half of
// theirs. Where OpenBLAS's vectors are as wide, more vectors are its own; then few of them read a
// matrix that lies in no cache in the order of memory.
bool is_by_vectors(const Products& p) {
  constexpr std::int64_t kFewMeetRows = 16, kFewMeetLongRows = 64, kLong = 192;
  constexpr std::int64_t kFewMeetColumns = 2, kFewMeetCollisions = 4;
  constexpr std::int64_t kShort = 8, kLargeBytes = 4 << 20;
  if (!is_of_our_blocks(p.dtype)) return is_by_vectors(p.dtype, p.m, p.n);
  const auto bytes = static_cast<std::int64_t>(item_size(p.dtype));
  if (!has_our_blocks()) {
    if (std::min(p.m, p.n) > kFewVectors) return false;
    if (std::max(p.m, p.n) * p.k * bytes > kLargeBytes) return true;
  }
  if (p.n < p.m) return p.n * bytes <= block_product_vector_bytes() / 2;
  if (p.k < kShort) return false;
  if (!p.b.transposed) {
    const bool collide = rows_of_b_collide(p, kApartInSecondLevel);
    return p.m <= (collide ? kFewMeetCollisions : kFewMeetColumns);
  }
  const bool is_long = p.dtype == DType::kF64 && p.k >= kLong;
  return p.m <= (is_long ? kFewMeetLongRows : kFewMeetRows);
}

// What is over before a library has begun. A vector alone fills no more than a lane.
bool is_small(const Products& p) {
  constexpr std::int64_t kTiny = 256, kMostWork = 1 << 18, kMostElements = 4096, kLanes = 16;
  const std::int64_t work = p.m * p.n * p.k;
  const bool fills_lanes = std::min(p.m, p.n) > 1 || (p.count > 1 && work <= kTiny);
  return is_of_our_blocks(p.dtype) && fills_lanes && work <= kMostWork &&
         p.k * ((p.n + kLanes - 1) / kLanes * kLanes) <= kMostElements;
}

// `count` rows from `first` on, or columns where there are more of them.
Products part_of(const Products& p, std::int64_t first, std::int64_t count) {
  return p.m >= p.n ? rows_of(p, first, count) : columns_of(p, first, count);
}

// Each element is computed by itself, so any cut gives the same result.
void by_our_blocks(const Products& p) {
  constexpr std::int64_t kUnit = 64, kWork = 1 << 21;
  const std::int64_t units = kWork / (kUnit * std::min(p.m, p.n) * p.k);
  parallel_for(0, std::max(p.m, p.n), std::max<std::int64_t>(1, units) * kUnit,
               [&](std::int64_t begin, std::int64_t end) {
                 block_product(part_of(p, begin, end - begin));
               });
}

// On all threads.
void single(const Products& p) {
  if (integers(p)) return;
  if (is_by_vectors(p)) return vector_product(p);
  TENON_CHECK(p.dtype == DType::kF32 || p.dtype == DType::kF64 || is_complex(p.dtype) ||
                  (p.dtype == DType::kBF16 && has_onednn_gemm()),
              "a product of {}", dtype_name(p.dtype));
  // OpenBLAS would pack what blocks of a few rows read in place, and for short sums that takes
  // longer than they do.
  constexpr std::int64_t kShort = 32;
  const bool is_packed_for_little = std::min(p.m, p.n) <= kFewVectors || p.k <= kShort;
  if (is_of_our_blocks(p.dtype) && (is_packed_for_little || has_our_blocks()))
    return by_our_blocks(p);
  const bool by_onednn = p.dtype == DType::kBF16;
  if (!by_onednn) use_one_blas_thread();
  const std::int64_t length = std::max(p.m, p.n);
  const std::int64_t piece = piece_length(length, std::min(p.m, p.n), p.k);
  parallel_for(0, length, piece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += piece) {
      const Products part = part_of(p, first, std::min(piece, end - first));
      by_onednn ? onednn_gemm(part) : by_blas(part);
    }
  });
}

}  // namespace

Products Products::one(std::int64_t i) const {
  Products product = *this;
  product.count = 1;
  product.a.data = at(a.data, i * a_apart, dtype);
  product.b.data = at(b.data, i * b_apart, dtype);
  product.out = const_cast<void*>(at(out, i * out_apart, out_dtype(*this)));
  return product;
}

bool is_divided(std::int64_t m, std::int64_t n, std::int64_t k) {
  return m * n * k >= (std::int64_t{1} << 22);
}

bool takes_half(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  // Vectors shorter than two of the processor's, and tiny products, are faster in f32.
  constexpr std::int64_t kShort = 32, kTiny = 512, kLeastWork = 1 << 16;
  const std::int64_t work = m * n * k;
  if (fills_tile(dtype, m, n)) return work >= kLeastWork;
  const std::int64_t shortest = std::min(m, n) == 1 ? 1 : kShort;
  return is_by_vectors(dtype, m, n) && work >= kTiny && k >= shortest;
}

bool takes_bias(DType dtype, std::int64_t m, std::int64_t n) { return fills_tile(dtype, m, n); }

void gemm(const Products& p) {
  if (is_small(p)) return block_product(p);
  const bool is_one_call =
      p.count > 1 && !is_by_vectors(p) && !is_divided(p.m, p.n, p.k) && p.dtype == DType::kBF16;
  if (is_one_call) return onednn_gemm(p);
  for (std::int64_t i = 0; i < p.count; ++i) single(p.one(i));
}

}  // namespace tenon::ops::cpu
