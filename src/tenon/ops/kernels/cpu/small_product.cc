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

}  // namespace tenon::ops::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

// Whether loads and stores of a part of a vector leave the rest alone.
constexpr bool kLoadsParts = HWY_TARGET <= HWY_AVX2;

// One product; rows of b are whole vectors, or kLoadsParts.
template <typename T>
struct Small {
  std::int64_t m, n, k;
  const T* a;
  std::int64_t a_row, a_column;  // distances
  const T* b;
  std::int64_t b_stride;
  T beta;
  T* out;
  std::int64_t out_stride;
};

// Rows that are computed together: what the registers hold of two vectors each.
constexpr int kMostRows = HWY_TARGET == HWY_AVX3 ? 8 : 4;

// Columns of one or two vectors, the last of which may be a part of one.
template <int kRows, int kVectors, typename T>
HWY_INLINE void some_rows(const Small<T>& p, std::int64_t row, std::int64_t column) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t last = std::min(lanes, p.n - column - (kVectors - 1) * lanes);
  const auto mask = hn::FirstN(d, static_cast<std::size_t>(last));
  auto s00 = hn::Zero(d), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00,
       s31 = s00, s40 = s00, s41 = s00, s50 = s00, s51 = s00, s60 = s00, s61 = s00, s70 = s00,
       s71 = s00;
  const T* a = p.a + row * p.a_row;
  const T* b = p.b + column;
  for (std::int64_t l = 0; l < p.k; ++l, a += p.a_column, b += p.b_stride) {
    const auto end = hn::MaskedLoad(mask, d, b + (kVectors - 1) * lanes);
    const auto b0 = kVectors > 1 ? hn::LoadU(d, b) : end;
#define TENON_ROW(r)                                             \
  if constexpr (kRows > r) {                                     \
    const auto x = hn::Set(d, a[r * p.a_row]);                   \
    s##r##0 = hn::MulAdd(x, b0, s##r##0);                        \
    if (kVectors > 1) s##r##1 = hn::MulAdd(x, end, s##r##1);     \
  }
    TENON_ROW(0) TENON_ROW(1) TENON_ROW(2) TENON_ROW(3)
    TENON_ROW(4) TENON_ROW(5) TENON_ROW(6) TENON_ROW(7)
#undef TENON_ROW
  }
  const auto put = [&](auto sum, std::int64_t r, std::int64_t vector) HWY_ATTR {
    T* const to = p.out + (row + r) * p.out_stride + column + vector * lanes;
    const bool is_whole = vector < kVectors - 1 || last == lanes;
    if (is_whole || kLoadsParts) {
      if (p.beta != 0)
        sum = hn::MulAdd(hn::Set(d, p.beta),
                         is_whole ? hn::LoadU(d, to) : hn::MaskedLoad(mask, d, to), sum);
      if (is_whole) return hn::StoreU(sum, d, to);
      return hn::BlendedStore(sum, mask, d, to);
    }
    HWY_ALIGN T sums[hn::MaxLanes(d)];
    hn::Store(sum, d, sums);
    for (std::int64_t c = 0; c < last; ++c)
      to[c] = p.beta == 0 ? sums[c] : sums[c] + p.beta * to[c];
  };
#define TENON_ROW(r)                                   \
  if constexpr (kRows > r) {                           \
    put(s##r##0, r, 0);                                \
    if (kVectors > 1) put(s##r##1, r, 1);              \
  }
  TENON_ROW(0) TENON_ROW(1) TENON_ROW(2) TENON_ROW(3)
  TENON_ROW(4) TENON_ROW(5) TENON_ROW(6) TENON_ROW(7)
#undef TENON_ROW
}

template <int kRows, typename T>
HWY_INLINE void all_columns(const Small<T>& p, std::int64_t& row) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  for (; row + kRows <= p.m; row += kRows) {
    std::int64_t column = 0;
    for (; p.n - column > lanes; column += 2 * lanes) some_rows<kRows, 2>(p, row, column);
    if (column < p.n) some_rows<kRows, 1>(p, row, column);
  }
}

// Fills rows of whole vectors with b.
template <typename T>
void copy_rows(T* room, std::int64_t width, const cpu::Matrix& b, std::int64_t n, std::int64_t k) {
  const auto* from = static_cast<const T*>(b.data);
  const std::int64_t down = b.transposed ? 1 : b.row_stride;
  const std::int64_t right = b.transposed ? b.row_stride : 1;
  for (std::int64_t l = 0; l < k; ++l) {
    T* const line = room + l * width;
    for (std::int64_t c = 0; c < n; ++c) line[c] = from[l * down + c * right];
    std::fill(line + n, line + width, T(0));
  }
}

template <typename T>
void products(const cpu::Products& p) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const bool is_copied = p.b.transposed || (!kLoadsParts && p.n % lanes != 0);
  const std::int64_t width = (p.n + lanes - 1) / lanes * lanes;
  alignas(64) T room[cpu::kMostElements];
  Small<T> one{p.m,
               p.n,
               p.k,
               nullptr,
               p.a.transposed ? 1 : p.a.row_stride,
               p.a.transposed ? p.a.row_stride : 1,
               room,
               is_copied ? width : p.b.row_stride,
               static_cast<T>(p.beta),
               nullptr,
               p.out_stride};
  for (std::int64_t i = 0; i < p.count; ++i) {
    one.a = static_cast<const T*>(p.a.data) + i * p.a_apart;
    one.out = static_cast<T*>(p.out) + i * p.out_apart;
    const auto* const b = static_cast<const T*>(p.b.data) + i * p.b_apart;
    if (!is_copied)
      one.b = b;
    else if (i == 0 || p.b_apart != 0)
      copy_rows(room, width, {b, p.b.row_stride, p.b.transposed}, p.n, p.k);
    std::int64_t row = 0;
    all_columns<kMostRows>(one, row);
    if constexpr (kMostRows > 4) all_columns<4>(one, row);
    all_columns<2>(one, row);
    all_columns<1>(one, row);
  }
}

}  // namespace

void small_products(const cpu::Products& p) {
  p.dtype == DType::kF64 ? products<double>(p) : products<float>(p); }

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(small_products);

bool cpu::is_small_product(const Products& p) {
  constexpr std::int64_t kMostWork = 1 << 18;
  return (p.dtype == DType::kF32 || p.dtype == DType::kF64) && p.m * p.n * p.k <= kMostWork &&
         p.k * ((p.n + kMostLanes - 1) / kMostLanes * kMostLanes) <= kMostElements;
}

void cpu::small_products(const Products& p) { HWY_DYNAMIC_DISPATCH(small_products)(p); }

}  // namespace tenon::ops
#endif
