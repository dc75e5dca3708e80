#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/small_product.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <algorithm>

#include "tenon/ops/kernels/cpu/small_product.h"

#ifndef TENON_OPS_SMALL_PRODUCT_TASK
#define TENON_OPS_SMALL_PRODUCT_TASK
namespace tenon::ops::cpu {

// The most elements of b, whose rows are whole vectors, and the most lanes of one.
constexpr std::int64_t kMostElements = 4096, kMostLanes = 16;

struct SmallProduct {
  std::int64_t m, n, k;
  const float* a;
  std::int64_t a_row, a_column;  // distances
  Matrix b;
  float beta;
  float* out;
  std::int64_t out_stride;
};

}  // namespace tenon::ops::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

using cpu::SmallProduct;

// `width` columns, at most a vector's, of up to four rows.
template <int kRows>
HWY_INLINE void some_rows(const SmallProduct& p, std::int64_t row, std::int64_t column,
                          const float* b, std::int64_t b_stride) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  const float* a = p.a + row * p.a_row;
  for (std::int64_t l = 0; l < p.k; ++l, a += p.a_column, b += b_stride) {
    const auto line = hn::LoadU(d, b);
    sum0 = hn::MulAdd(hn::Set(d, a[0]), line, sum0);
    if (kRows > 1) sum1 = hn::MulAdd(hn::Set(d, a[p.a_row]), line, sum1);
    if (kRows > 2) sum2 = hn::MulAdd(hn::Set(d, a[2 * p.a_row]), line, sum2);
    if (kRows > 3) sum3 = hn::MulAdd(hn::Set(d, a[3 * p.a_row]), line, sum3);
  }
  const std::int64_t width = std::min(lanes, p.n - column);
  const auto put = [&](auto sum, std::int64_t r) {
    float* const to = p.out + (row + r) * p.out_stride + column;
    if (width == lanes && p.beta == 0) return hn::StoreU(sum, d, to);
    HWY_ALIGN float sums[hn::MaxLanes(d)];
    hn::Store(sum, d, sums);
    for (std::int64_t c = 0; c < width; ++c)
      to[c] = p.beta == 0 ? sums[c] : sums[c] + p.beta * to[c];
  };
  put(sum0, 0);
  if (kRows > 1) put(sum1, 1);
  if (kRows > 2) put(sum2, 2);
  if (kRows > 3) put(sum3, 3);
}

}  // namespace

void small_product(const SmallProduct& p) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  const auto* b = static_cast<const float*>(p.b.data);
  std::int64_t b_stride = p.b.row_stride;
  // Rows of whole vectors.
  alignas(64) float room[cpu::kMostElements];
  if (p.b.transposed || p.n % lanes != 0) {
    const std::int64_t width = (p.n + lanes - 1) / lanes * lanes;
    for (std::int64_t l = 0; l < p.k; ++l) {
      float* const line = room + l * width;
      if (!p.b.transposed) std::copy_n(b + l * b_stride, p.n, line);
      std::fill(line + p.n, line + width, 0.0f);
    }
    for (std::int64_t c = 0; p.b.transposed && c < p.n; ++c)
      for (std::int64_t l = 0; l < p.k; ++l) room[l * width + c] = b[c * b_stride + l];
    b = room;
    b_stride = width;
  }
  for (std::int64_t column = 0; column < p.n; column += lanes) {
    std::int64_t row = 0;
    for (; row + 4 <= p.m; row += 4) some_rows<4>(p, row, column, b + column, b_stride);
    if (p.m - row == 3) some_rows<3>(p, row, column, b + column, b_stride);
    if (p.m - row == 2) some_rows<2>(p, row, column, b + column, b_stride);
    if (p.m - row == 1) some_rows<1>(p, row, column, b + column, b_stride);
  }
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(small_product);

bool cpu::is_small_product(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kMostWork = 1 << 18;
  return m * n * k <= kMostWork &&
         k * ((n + kMostLanes - 1) / kMostLanes * kMostLanes) <= kMostElements;
}

void cpu::small_product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a,
                        const Matrix& b, float beta, float* out, std::int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(small_product)
  ({m, n, k, static_cast<const float*>(a.data), a.transposed ? 1 : a.row_stride,
    a.transposed ? a.row_stride : 1, b, beta, out, out_stride});
}

}  // namespace tenon::ops
#endif
