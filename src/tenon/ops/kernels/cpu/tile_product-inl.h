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

// c[m, n] = a[m, k] b[k, n], or that is added. a has any strides; rows of b can be read up to the
// next whole vector.
template <typename T>
struct TileProduct {
  std::int64_t m, n, k;
  const T* a;
  std::int64_t a_row, a_column;
  const T* b;
  std::int64_t b_row;
  T* c;
  std::int64_t c_row;
};

// Rows of c that are computed together: what the registers hold of two vectors each.
constexpr int kProductRows = HWY_TARGET == HWY_AVX3 ? 8 : 4;

template <bool kAdds, class D, class V>
HWY_INLINE void put_sum(D d, V sum, hwy::HWY_NAMESPACE::TFromD<D>* to, std::int64_t count) {
  if constexpr (kAdds) sum = hwy::HWY_NAMESPACE::Add(load_some(d, to, count), sum);
  store_some(d, sum, to, count);
}

template <bool kAdds, int kRows, int kVectors, typename T>
HWY_INLINE void tile_rows(const TileProduct<T>& p, std::int64_t row, std::int64_t column) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T* a = p.a + row * p.a_row;
  const T* b = p.b + column;
  auto s00 = hn::Zero(d), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00,
       s31 = s00, s40 = s00, s41 = s00, s50 = s00, s51 = s00, s60 = s00, s61 = s00, s70 = s00,
       s71 = s00;
  for (std::int64_t l = 0; l < p.k; ++l, a += p.a_column, b += p.b_row) {
    const auto b0 = hn::LoadU(d, b);
    const auto b1 = kVectors > 1 ? hn::LoadU(d, b + lanes) : b0;
#define TENON_ROW(r)                                         \
  if constexpr (kRows > r) {                                 \
    const auto x = hn::Set(d, a[r * p.a_row]);               \
    s##r##0 = hn::MulAdd(x, b0, s##r##0);                    \
    if (kVectors > 1) s##r##1 = hn::MulAdd(x, b1, s##r##1);  \
  }
    TENON_ROW(0) TENON_ROW(1) TENON_ROW(2) TENON_ROW(3)
    TENON_ROW(4) TENON_ROW(5) TENON_ROW(6) TENON_ROW(7)
#undef TENON_ROW
  }
  T* const c = p.c + row * p.c_row + column;
  const std::int64_t last = p.n - column - (kVectors - 1) * lanes;
#define TENON_ROW(r)                                                              \
  if constexpr (kRows > r) {                                                      \
    put_sum<kAdds>(d, s##r##0, c + r * p.c_row, kVectors > 1 ? lanes : last);     \
    if (kVectors > 1) put_sum<kAdds>(d, s##r##1, c + r * p.c_row + lanes, last);  \
  }
  TENON_ROW(0) TENON_ROW(1) TENON_ROW(2) TENON_ROW(3)
  TENON_ROW(4) TENON_ROW(5) TENON_ROW(6) TENON_ROW(7)
#undef TENON_ROW
}

template <bool kAdds, int kRows, typename T>
HWY_INLINE void tile_columns(const TileProduct<T>& p, std::int64_t row) {
  const auto lanes =
      static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<T>()));
  std::int64_t column = 0;
  for (; p.n - column > lanes; column += 2 * lanes) tile_rows<kAdds, kRows, 2>(p, row, column);
  if (column < p.n) tile_rows<kAdds, kRows, 1>(p, row, column);
}

template <bool kAdds, typename T>
HWY_NOINLINE void tile_product(const TileProduct<T>& p) {
  std::int64_t row = 0;
  for (; row + kProductRows <= p.m; row += kProductRows)
    tile_columns<kAdds, kProductRows>(p, row);
  if (kProductRows > 4 && row + 4 <= p.m) {
    tile_columns<kAdds, 4>(p, row);
    row += 4;
  }
  if (row + 2 <= p.m) {
    tile_columns<kAdds, 2>(p, row);
    row += 2;
  }
  if (row < p.m) tile_columns<kAdds, 1>(p, row);
}

}  // namespace
}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
