#include "tenon/ops/kernels/cpu/bf16_gemm.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "tenon/base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tenon::ops::cpu {

#if defined(__x86_64__)

namespace {

// The numbers k and k+1 of a row of `a`, or of a column of `b`, in one word: the instruction
// multiplies two pairs and adds both products to a sum.
using BF16Pair = std::uint32_t;

// A tile of the result stays in registers: 24 of 32. Panels of `a` are kTileRows high, those of `b`
// kTileColumns wide. One panel of `b` and one of `a` fit the first cache, a block of each the
// second.
constexpr std::int64_t kTileRows = 12;
constexpr std::int64_t kTileColumns = 32;
constexpr std::int64_t kDepth = 512;  // of a block, in numbers
constexpr std::int64_t kBlockRows = 16 * kTileRows;
constexpr std::int64_t kBlockColumns = 32 * kTileColumns;

struct alignas(64) Blocks {
  BF16Pair a[kBlockRows * kDepth / 2];
  BF16Pair b[kBlockColumns * kDepth / 2];
};

std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
BF16Pair pair_of(float first, float second) {
  return bits_of(first) >> 16 | (bits_of(second) & 0xFFFF0000);
}

// Panels of `width` lines, each line `depth` numbers. The numbers of a line lie `along` apart, the
// lines `across`. What is missing in the last panel and the last pair is zero.
//   panel:   pair 0 of all lines, pair 1 of all lines ...
[[gnu::target("avx512f")]] void pack(BF16Pair* to, const float* from, std::int64_t lines,
                                     std::int64_t width, std::int64_t depth, std::int64_t across,
                                     std::int64_t along) {
  const std::int64_t pairs = (depth + 1) / 2;
  for (std::int64_t first = 0; first < lines; first += width, to += width * pairs) {
    const std::int64_t count = std::min(width, lines - first);
    const float* panel = from + first * across;
    if (count < width) std::fill(to, to + width * pairs, 0);
    if (across == 1) {
      for (std::int64_t p = 0; p < depth / 2; ++p)
        for (std::int64_t line = 0; line < count; ++line)
          to[p * width + line] =
              pair_of(panel[2 * p * along + line], panel[(2 * p + 1) * along + line]);
    } else {
      for (std::int64_t line = 0; line < count; ++line)
        for (std::int64_t p = 0; p < depth / 2; ++p)
          to[p * width + line] = pair_of(panel[line * across + 2 * p * along],
                                         panel[line * across + (2 * p + 1) * along]);
    }
    if (depth % 2 != 0)
      for (std::int64_t line = 0; line < count; ++line)
        to[(pairs - 1) * width + line] = pair_of(panel[line * across + (depth - 1) * along], 0);
  }
}

// rows x columns numbers of the result, from one panel of each.
[[gnu::target("avx512f,avx512bf16")]] void compute_tile(std::int64_t pairs, const BF16Pair* a,
                                                        const BF16Pair* b, float beta, float* out,
                                                        std::int64_t out_stride, std::int64_t rows,
                                                        std::int64_t columns) {
  __m512 sum[kTileRows][2] = {};
  for (std::int64_t p = 0; p < pairs; ++p, a += kTileRows, b += kTileColumns) {
    const __m512bh left = (__m512bh)_mm512_load_si512(b);
    const __m512bh right = (__m512bh)_mm512_load_si512(b + 16);
    for (std::int64_t i = 0; i < kTileRows; ++i) {
      const __m512bh row = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[i]));
      sum[i][0] = _mm512_dpbf16_ps(sum[i][0], row, left);
      sum[i][1] = _mm512_dpbf16_ps(sum[i][1], row, right);
    }
  }
  const std::uint32_t mask = columns < 32 ? (1u << columns) - 1 : ~0u;
  for (std::int64_t i = 0; i < kTileRows; ++i) {
    if (i >= rows) return;
    for (int half = 0; half < 2; ++half) {
      const auto some = static_cast<__mmask16>(mask >> (16 * half));
      float* const to = out + i * out_stride + 16 * half;
      __m512 result = sum[i][half];
      if (beta != 0)
        result = _mm512_fmadd_ps(_mm512_set1_ps(beta), _mm512_maskz_loadu_ps(some, to), result);
      _mm512_mask_storeu_ps(to, some, result);
    }
  }
}

struct Steps {
  std::int64_t row, column;
};
Steps steps_of(const Matrix& matrix) {
  return matrix.transposed ? Steps{1, matrix.row_stride} : Steps{matrix.row_stride, 1};
}

}  // namespace

bool has_bf16_products() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
  return has;
}

void bf16_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b,
               double beta, float* out, std::int64_t out_stride) {
  static thread_local const auto blocks = std::make_unique<Blocks>();
  const Steps of_a = steps_of(a), of_b = steps_of(b);
  for (std::int64_t at = 0; at < k; at += kDepth) {
    const std::int64_t depth = std::min(kDepth, k - at);
    const std::int64_t pairs = (depth + 1) / 2;
    const float scale = at == 0 ? static_cast<float>(beta) : 1;
    for (std::int64_t column = 0; column < n; column += kBlockColumns) {
      const std::int64_t columns = std::min(kBlockColumns, n - column);
      const auto* from_b = static_cast<const float*>(b.data) + at * of_b.row + column * of_b.column;
      pack(blocks->b, from_b, columns, kTileColumns, depth, of_b.column, of_b.row);
      for (std::int64_t row = 0; row < m; row += kBlockRows) {
        const std::int64_t rows = std::min(kBlockRows, m - row);
        const auto* from_a = static_cast<const float*>(a.data) + row * of_a.row + at * of_a.column;
        pack(blocks->a, from_a, rows, kTileRows, depth, of_a.row, of_a.column);
        for (std::int64_t j = 0; j < columns; j += kTileColumns)
          for (std::int64_t i = 0; i < rows; i += kTileRows)
            compute_tile(pairs, blocks->a + i * pairs, blocks->b + j * pairs, scale,
                         out + (row + i) * out_stride + column + j, out_stride,
                         std::min(kTileRows, rows - i), std::min(kTileColumns, columns - j));
      }
    }
  }
}

#else

bool has_bf16_products() { return false; }

void bf16_gemm(std::int64_t, std::int64_t, std::int64_t, const Matrix&, const Matrix&, double,
               float*, std::int64_t) {
  TENON_CHECK(false, "this processor has no products of bfloat16");
}

#endif

}  // namespace tenon::ops::cpu
