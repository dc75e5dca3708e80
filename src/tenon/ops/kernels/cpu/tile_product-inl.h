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
  std::int64_t b_strip = 0;  // from kProductVectors of a row of b to the next; 0: side by side
};

// Rows of c and vectors of each that are computed together: what the registers hold.
constexpr int kProductRows = HWY_TARGET == HWY_AVX3 ? 8 : 4;
constexpr int kProductVectors = HWY_TARGET == HWY_AVX3 ? 3 : 2;

template <class D, class V>
HWY_INLINE void put_sum(D d, V sum, hwy::HWY_NAMESPACE::TFromD<D> beta,
                        hwy::HWY_NAMESPACE::TFromD<D>* to, std::int64_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  if (beta != 0) sum = hn::MulAdd(hn::Set(d, beta), load_some(d, to, count), sum);
  store_some(d, sum, to, count);
}

// How many rows of a matrix ahead are fetched, where they are read in place.
constexpr std::int64_t kRowsAhead = 8;

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
  const T* b = p.b + (p.b_strip == 0 ? column : column / (kProductVectors * lanes) * p.b_strip);
#define TENON_ROWS(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#define TENON_ROW(r) auto s##r##0 = hn::Zero(d), s##r##1 = s##r##0, s##r##2 = s##r##0;
  TENON_ROWS(TENON_ROW)
#undef TENON_ROW
  for (std::int64_t r = 0; p.beta != 0 && r < std::min<std::int64_t>(kRows, p.m - row); ++r)
    for (std::int64_t v = 0; v < kVectors; ++v)  // read at the end
      __builtin_prefetch(p.c + (row + r) * p.c_row + column + v * lanes);
  for (std::int64_t l = 0; l < p.k; ++l, a += p.a_column, b += p.b_row) {
    if (!kReadsPast)  // the processor foresees no rows that are far apart
      for (int v = 0; v < kVectors; ++v) __builtin_prefetch(b + kRowsAhead * p.b_row + v * lanes);
    const T* const end = b + (kVectors - 1) * lanes;
    const auto last_b = kReadsPast ? hn::LoadU(d, end) : hn::MaskedLoad(mask, d, end);
    const auto b0 = kVectors > 1 ? hn::LoadU(d, b) : last_b;
    const auto b1 = kVectors > 2 ? hn::LoadU(d, b + lanes) : last_b;
#define TENON_ROW(r)                                             \
  if constexpr (kRows > r) {                                     \
    const auto x = hn::Set(d, a[down(r)]);                       \
    s##r##0 = hn::MulAdd(x, b0, s##r##0);                        \
    if (kVectors > 1) s##r##1 = hn::MulAdd(x, b1, s##r##1);      \
    if (kVectors > 2) s##r##2 = hn::MulAdd(x, last_b, s##r##2);  \
  }
    TENON_ROWS(TENON_ROW)
#undef TENON_ROW
  }
  T* const c = p.c + row * p.c_row + column;
#define TENON_ROW(r)                                                                           \
  if (kRows > r && (kWhole || row + r < p.m)) {                                                \
    T* const to = c + r * p.c_row;                                                             \
    put_sum(d, s##r##0, p.beta, to, kVectors > 1 ? lanes : last);                              \
    if (kVectors > 1) put_sum(d, s##r##1, p.beta, to + lanes, kVectors > 2 ? lanes : last);    \
    if (kVectors > 2) put_sum(d, s##r##2, p.beta, to + 2 * lanes, last);                       \
  }
  TENON_ROWS(TENON_ROW)
#undef TENON_ROW
#undef TENON_ROWS
}

template <bool kReadsPast, bool kWhole, int kRows, typename T>
HWY_INLINE void tile_columns(const TileProduct<T>& p, std::int64_t row) {
  const auto lanes =
      static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<T>()));
  std::int64_t column = 0;
  const auto left = [&] { return (p.n - column + lanes - 1) / lanes; };
  // Four vectors are two and two, unless a strip of b ends behind the third.
  if constexpr (kProductVectors == 3)
    for (; left() > 2 && (left() != 4 || p.b_strip != 0); column += 3 * lanes)
      tile_rows<kReadsPast, kWhole, kRows, 3>(p, row, column);
  for (; left() > 1; column += 2 * lanes) tile_rows<kReadsPast, kWhole, kRows, 2>(p, row, column);
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
