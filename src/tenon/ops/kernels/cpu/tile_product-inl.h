// Products of small tiles that lie in the caches. Included once for each instruction set, so
// without a plain include guard.
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"

#if defined(TENON_OPS_TILE_PRODUCT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_OPS_TILE_PRODUCT_INL_H
#undef TENON_OPS_TILE_PRODUCT_INL_H
#else
#define TENON_OPS_TILE_PRODUCT_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

// c[m, n] = a[m, k] b[k, n] + beta c; where beta is 0, c is not read. a has any strides.
template <typename T>
struct TileProduct {
  std::int64_t m = 0, n = 0, k = 0;
  const T* a = nullptr;
  std::int64_t a_row = 0, a_column = 0;
  const T* b = nullptr;
  std::int64_t b_row = 0;
  T* c = nullptr;
  std::int64_t c_row = 0;
  T beta = 0;
  std::int64_t b_strip = 0;  // from two vectors of a row of b to the next two; 0: side by side
};

// Rows of c that are computed together: what the registers hold of two vectors each.
constexpr int kProductRows = HWY_TARGET == HWY_AVX3 ? 8 : 4;

template <class D, class V>
HWY_INLINE void put_sum(D d, V sum, hwy::HWY_NAMESPACE::TFromD<D> beta,
                        hwy::HWY_NAMESPACE::TFromD<D>* to, std::int64_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  if (beta != 0) sum = hn::MulAdd(hn::Set(d, beta), load_some(d, to, count), sum);
  store_some(d, sum, to, count);
}

// kRows rows; unless kWhole, those that are missing below are the last one again.
template <bool kReadsPast, bool kWhole, int kRows, int kVectors, typename T>
HWY_INLINE void tile_rows(const TileProduct<T>& p, std::int64_t row, std::int64_t column) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t last = std::min(lanes, p.n - column - (kVectors - 1) * lanes);
  const auto mask = hn::FirstN(d, static_cast<std::size_t>(last));
  const auto down = [&](std::int64_t r) {
    return (kWhole ? r : std::min(r, p.m - 1 - row)) * p.a_row;
  };
  const T* a = p.a + row * p.a_row;
  const T* b = p.b + (p.b_strip == 0 ? column : column / (2 * lanes) * p.b_strip);
  auto s00 = hn::Zero(d), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00,
       s31 = s00, s40 = s00, s41 = s00, s50 = s00, s51 = s00, s60 = s00, s61 = s00, s70 = s00,
       s71 = s00;
  for (std::int64_t r = 0; p.beta != 0 && r < std::min<std::int64_t>(kRows, p.m - row); ++r)
    for (std::int64_t v = 0; v < kVectors; ++v)  // read at the end
      __builtin_prefetch(p.c + (row + r) * p.c_row + column + v * lanes);
  for (std::int64_t l = 0; l < p.k; ++l, a += p.a_column, b += p.b_row) {
    const T* const end = b + (kVectors - 1) * lanes;
    const auto b1 = kReadsPast ? hn::LoadU(d, end) : hn::MaskedLoad(mask, d, end);
    const auto b0 = kVectors > 1 ? hn::LoadU(d, b) : b1;
#define TENON_ROW(r)                                         \
  if constexpr (kRows > r) {                                 \
    const auto x = hn::Set(d, a[down(r)]);                   \
    s##r##0 = hn::MulAdd(x, b0, s##r##0);                    \
    if (kVectors > 1) s##r##1 = hn::MulAdd(x, b1, s##r##1);  \
  }
    TENON_ROW(0) TENON_ROW(1) TENON_ROW(2) TENON_ROW(3)
    TENON_ROW(4) TENON_ROW(5) TENON_ROW(6) TENON_ROW(7)
#undef TENON_ROW
  }
  T* const c = p.c + row * p.c_row + column;
#define TENON_ROW(r)                                                                 \
  if (kRows > r && (kWhole || row + r < p.m)) {                                      \
    put_sum(d, s##r##0, p.beta, c + r * p.c_row, kVectors > 1 ? lanes : last);       \
    if (kVectors > 1) put_sum(d, s##r##1, p.beta, c + r * p.c_row + lanes, last);    \
  }
  TENON_ROW(0) TENON_ROW(1) TENON_ROW(2) TENON_ROW(3)
  TENON_ROW(4) TENON_ROW(5) TENON_ROW(6) TENON_ROW(7)
#undef TENON_ROW
}

template <bool kReadsPast, bool kWhole, int kRows, typename T>
HWY_INLINE void tile_columns(const TileProduct<T>& p, std::int64_t row) {
  const auto lanes =
      static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<T>()));
  std::int64_t column = 0;
  for (; p.n - column > lanes; column += 2 * lanes)
    tile_rows<kReadsPast, kWhole, kRows, 2>(p, row, column);
  if (column < p.n) tile_rows<kReadsPast, kWhole, kRows, 1>(p, row, column);
}

// `kReadsPast`: rows of b may be read up to the next whole vector. Without it, kMaskedIsExact.
template <bool kReadsPast, typename T>
HWY_NOINLINE void tile_product(const TileProduct<T>& p) {
  std::int64_t row = 0;
  for (; row + kProductRows <= p.m; row += kProductRows)
    tile_columns<kReadsPast, true, kProductRows>(p, row);
  if (row + 4 < p.m)
    tile_columns<kReadsPast, false, kProductRows>(p, row);
  else if (row < p.m)
    tile_columns<kReadsPast, false, 4>(p, row);
}

}  // namespace
}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
