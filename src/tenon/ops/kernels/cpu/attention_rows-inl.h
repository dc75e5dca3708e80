// Rows, masks and shares of attention. Included once for each instruction set, so without a plain
// include guard.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/attention_tiles.h"
#include "tenon/tensor/half_rows.h"

#if defined(TENON_OPS_ATTENTION_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_OPS_ATTENTION_ROWS_INL_H
#undef TENON_OPS_ATTENTION_ROWS_INL_H
#else
#define TENON_OPS_ATTENTION_ROWS_INL_H
#endif

#include "tenon/ops/kernels/cpu/elementary-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

using cpu::AttentionHead;
using cpu::AttentionRows;

constexpr std::int64_t kTile = cpu::kAttentionTile;
constexpr std::int64_t kTileSize = kTile * kTile;

// exp(x) of x <= 0, with a relative error of 1e-7 + 2e-8 |x|, which is less than that of a rounded
// score; 0 far below 0; NaN of NaN.
template <class D, class V>
HWY_INLINE V shares_of(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
  } else {
    const hn::RebindToUnsigned<D> bits;
    const V log2e = hn::Set(d, 1.44269502F), shifter = hn::Set(d, kToInteger);
    const V shifted = hn::MulAdd(x, log2e, shifter);
    const V rest = hn::MulSub(x, log2e, hn::Sub(shifted, shifter));
    const auto one = hn::BitCast(bits, hn::Set(d, 1.0F));
    const V power = hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(bits, shifted)), one));
    // A product keeps a NaN of `rest`, whatever the power is.
    const V share = hn::Mul(polynomial(d, rest, kPowerOfTwo), power);
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -kShortExpLimit<float>)), share);
  }
}

// Rows of T that are whole vectors, with zeros behind their elements.
template <typename T>
struct Rows {
  const T* data;
  std::int64_t stride;
};
template <typename T>
std::int64_t padded(std::int64_t size) {
  const auto lanes =
      static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<T>()));
  return (size + lanes - 1) / lanes * lanes;
}

template <typename T>
void copy_row(T* to, const AttentionRows& from, std::int64_t row, std::int64_t size) {
  const std::int64_t at = row * from.stride;
  if constexpr (std::is_same_v<T, float>) {
    if (from.dtype == DType::kBF16)
      return tenon::detail::convert_dense(to, static_cast<const BFloat16*>(from.data) + at, size);
    if (from.dtype == DType::kF16)
      return tenon::detail::convert_dense(to, static_cast<const Half*>(from.data) + at, size);
  }
  std::copy_n(static_cast<const T*>(from.data) + at, size, to);
}

// Whether rows are read where they lie.
template <typename T>
bool is_in_place(const AttentionRows& rows, std::int64_t size) {
  const bool is_same = rows.dtype == (sizeof(T) == 8 ? DType::kF64 : DType::kF32);
  return is_same && rows.stride == size && padded<T>(size) == size;
}
// Rows from `first` on: in place, or `copies` of them.
template <typename T>
Rows<T> rows_of(const AttentionRows& from, std::int64_t first, std::int64_t count,
                std::int64_t size, T* copies) {
  if (is_in_place<T>(from, size)) return {static_cast<const T*>(from.data) + first * size, size};
  const std::int64_t width = padded<T>(size);
  for (std::int64_t i = 0; i < count; ++i) {
    copy_row(copies + i * width, from, first + i, size);
    std::fill(copies + i * width + size, copies + (i + 1) * width, T(0));
  }
  return {copies, width};
}

// to[e][i] = rows[i][e] * scale for e < size and i < kTile, with zeros for rows that are not there.
template <typename T>
HWY_NOINLINE void turn(T* to, const Rows<T>& rows, std::int64_t count, std::int64_t size, T scale) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto turn_one = [&](std::int64_t i, std::int64_t e) {
    to[e * kTile + i] = rows.data[i * rows.stride + e] * scale;
  };
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<T, float>) {
    const hn::CappedTag<T, 4> d;
    const auto factor = hn::Set(d, scale);
    for (; i + 4 <= count; i += 4) {
      const auto load = [&](std::int64_t row, std::int64_t e) {
        return hn::Mul(hn::LoadU(d, rows.data + (i + row) * rows.stride + e), factor);
      };
      std::int64_t e = 0;
      for (; e + 4 <= size; e += 4) {
        const auto r0 = load(0, e), r1 = load(1, e), r2 = load(2, e), r3 = load(3, e);
        const auto low01 = hn::InterleaveLower(d, r0, r1), low23 = hn::InterleaveLower(d, r2, r3);
        const auto high01 = hn::InterleaveUpper(d, r0, r1), high23 = hn::InterleaveUpper(d, r2, r3);
        T* const at = to + e * kTile + i;
        hn::Store(hn::ConcatLowerLower(d, low23, low01), d, at);
        hn::Store(hn::ConcatUpperUpper(d, low23, low01), d, at + kTile);
        hn::Store(hn::ConcatLowerLower(d, high23, high01), d, at + 2 * kTile);
        hn::Store(hn::ConcatUpperUpper(d, high23, high01), d, at + 3 * kTile);
      }
      for (; e < size; ++e)
        for (std::int64_t row = i; row < i + 4; ++row) turn_one(row, e);
    }
  }
#endif
  for (; i < count; ++i)
    for (std::int64_t e = 0; e < size; ++e) turn_one(i, e);
  for (std::int64_t e = 0; count < kTile && e < size; ++e)
    std::fill(to + e * kTile + count, to + (e + 1) * kTile, T(0));
}

// A tile of the mask: in place, or `lines`, where a bool that hides is 1.
template <typename T>
Rows<T> mask_rows(const AttentionHead& h, std::int64_t first_query, std::int64_t queries,
                  std::int64_t first_key, std::int64_t keys, T* lines) {
  const std::int64_t at = first_query * h.mask_row + first_key * h.mask_column;
  if (!h.is_bool_mask && h.mask_column == 1)
    return {static_cast<const T*>(h.mask) + at, h.mask_row};
  const auto copy = [&](const auto* from, auto value) {
    for (std::int64_t i = 0; i < (h.mask_row == 0 ? 1 : queries); ++i, from += h.mask_row) {
      T* const line = lines + i * kTile;
      if (h.mask_column == 1)
        for (std::int64_t j = 0; j < keys; ++j) line[j] = value(from[j]);
      else
        for (std::int64_t j = 0; j < keys; ++j) line[j] = value(from[j * h.mask_column]);
    }
  };
  if (h.is_bool_mask)
    copy(static_cast<const std::uint8_t*>(h.mask) + at,
         [](std::uint8_t shown) { return T(shown == 0); });
  else
    copy(static_cast<const T*>(h.mask) + at, [](T x) { return x; });
  return {lines, h.mask_row == 0 ? 0 : kTile};
}

template <class D, class V>
HWY_INLINE V masked_score(D d, V score, V mask, bool is_bool) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V hidden = hn::Set(d, -std::numeric_limits<hn::TFromD<D>>::infinity());
  return is_bool ? hn::IfThenElse(hn::Eq(mask, hn::Zero(d)), score, hidden)
                 : hn::Add(score, mask);
}

}  // namespace
}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
