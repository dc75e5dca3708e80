// Places of extremes, for each instruction set. The extreme of a stretch comes in vectors; then the
// best stretch is looked through for it while it is in the first-level cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/arg_extreme.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <algorithm>
#include <type_traits>

#include "tenon/ops/kernels/cpu/arg_extreme.h"
#include "tenon/tensor/half_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kStretch = 2048;

template <bool kLargest, typename T>
bool beats(T a, T b) {
  return kLargest ? a > b : a < b;
}

// The extreme of a stretch, or its first NaN.
template <typename T>
struct Found {
  T extreme;
  std::int64_t nan = -1;  // its place, or -1
};

// The last vector overlaps the one before. Requires: count is a vector's at least.
template <bool kLargest, class D, typename T = hn::TFromD<D>>
HWY_INLINE Found<T> look(D d, const T* x, std::int64_t count) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto better = [](auto a, auto b) HWY_ATTR {
    return kLargest ? hn::Max(a, b) : hn::Min(a, b);
  };
  const auto unordered = [&](auto v) HWY_ATTR {  // Ne is ordered
    if constexpr (std::is_floating_point_v<T>)
      return hn::IsNaN(v);
    else
      return hn::Ne(v, v);
  };
  auto best = hn::LoadU(d, x), other = best;
  auto is_nan = unordered(best);
  const auto take = [&](auto& into, std::int64_t at) HWY_ATTR {
    const auto v = hn::LoadU(d, x + at);
    into = better(into, v);
    if constexpr (std::is_floating_point_v<T>) is_nan = hn::Or(is_nan, unordered(v));
  };
  std::int64_t i = lanes;
  for (; i + 2 * lanes <= count; i += 2 * lanes) take(best, i), take(other, i + lanes);
  for (; i < count; i += lanes) take(best, std::min(i, count - lanes));
  if (std::is_floating_point_v<T> && !hn::AllFalse(d, is_nan))
    for (i = 0; i < count; ++i)
      if (x[i] != x[i]) return {x[i], i};
  HWY_ALIGN T found[hn::MaxLanes(d)];
  hn::Store(better(best, other), d, found);
  T extreme = found[0];
  for (std::int64_t l = 1; l < lanes; ++l)
    if (beats<kLargest>(found[l], extreme)) extreme = found[l];
  return {extreme};
}

// The first place of an element that is there.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE std::int64_t place_of(D d, T element, const T* x, std::int64_t count) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0;; i += lanes) {
    const std::int64_t at = std::min(i, count - lanes);
    const auto place = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + at), hn::Set(d, element)));
    if (place >= 0) return at + place;
  }
}

// Short rows, several at a time: turned into columns, of which the compiler makes vectors.
// Requires: fewer elements in a row than a vector has, so that their places fit into bytes.
template <bool kLargest, typename T>
HWY_NOINLINE void turned_rows(std::int64_t* places, const T* x, std::int64_t rows,
                              std::int64_t count) {
  using Place = hwy::MakeSigned<T>;  // as wide as an element, so that one mask chooses both
  constexpr int kRows = 64;
  for (std::int64_t first = 0; first < rows; first += kRows, x += kRows * count) {
    const std::int64_t some = std::min<std::int64_t>(kRows, rows - first);
    T best[kRows] = {}, y[kRows] = {};
    Place place[kRows] = {};
    for (std::int64_t r = 0; r < some; ++r) best[r] = x[r * count];
    for (std::int64_t i = 1; i < count; ++i) {
      for (std::int64_t r = 0; r < some; ++r) y[r] = x[r * count + i];
      for (int r = 0; r < kRows; ++r) {
        const bool is_first_nan = (y[r] != y[r]) & (best[r] == best[r]);
        const bool better = beats<kLargest>(y[r], best[r]) | is_first_nan;
        best[r] = better ? y[r] : best[r];
        place[r] = better ? static_cast<Place>(i) : place[r];
      }
    }
    for (std::int64_t r = 0; r < some; ++r) places[first + r] = place[r];
  }
}

// `stretch(at, count)`: elements in the dtype of the comparisons.
template <bool kLargest, class D, typename Stretch>
std::int64_t in_vectors(D d, std::int64_t count, const Stretch& stretch) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::TFromD<D> best{};
  std::int64_t begin = 0, best_count = 0;
  for (std::int64_t at = 0, length; at < count; at += length) {
    // What is left over would be less than a vector: it goes with what is before it.
    length = count - at < kStretch + lanes ? count - at : kStretch;
    const auto found = look<kLargest>(d, stretch(at, length), length);
    if (found.nan >= 0) return at + found.nan;
    if (at == 0 || beats<kLargest>(found.extreme, best))
      best = found.extreme, begin = at, best_count = length;
  }
  return begin + place_of(d, best, stretch(begin, best_count), best_count);
}

template <bool kLargest, typename T>
void of_rows(std::int64_t* places, const void* rows, std::int64_t row_count, std::int64_t count) {
  const auto* x = static_cast<const T*>(rows);
  const hn::ScalableTag<T> d;
  if (count < static_cast<std::int64_t>(hn::Lanes(d)))
    return turned_rows<kLargest>(places, x, row_count, count);
  for (std::int64_t r = 0; r < row_count; ++r, x += count)
    places[r] = in_vectors<kLargest>(
        d, count, [x](std::int64_t at, std::int64_t) { return x + at; });
}

// In f32, which has all numbers of 16 bits.
template <bool kLargest, typename T>
void of_narrow_rows(std::int64_t* places, const void* rows, std::int64_t row_count,
                    std::int64_t count) {
  const auto* x = static_cast<const T*>(rows);
  const hn::ScalableTag<float> d;
  alignas(64) float wide[kStretch + hn::MaxLanes(d)];
  if (count <= kStretch / 4) {
    const std::int64_t together = kStretch / count;
    for (std::int64_t r = 0; r < row_count; r += together) {
      const std::int64_t some = std::min(together, row_count - r);
      tenon::detail::convert_dense(wide, x + r * count, some * count);
      of_rows<kLargest, float>(places + r, wide, some, count);
    }
    return;
  }
  for (std::int64_t r = 0; r < row_count; ++r, x += count)
    places[r] = in_vectors<kLargest>(d, count, [&](std::int64_t at, std::int64_t length) {
      tenon::detail::convert_dense(wide, x + at, length);
      return static_cast<const float*>(wide);
    });
}

template <bool kLargest>
cpu::ArgExtreme of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return &of_rows<kLargest, float>;
    case DType::kF64:
      return &of_rows<kLargest, double>;
    case DType::kF16:
      return &of_narrow_rows<kLargest, Half>;
    case DType::kBF16:
      return &of_narrow_rows<kLargest, BFloat16>;
    case DType::kI64:
      return &of_rows<kLargest, std::int64_t>;
    case DType::kI32:
      return &of_rows<kLargest, std::int32_t>;
    case DType::kI16:
      return &of_rows<kLargest, std::int16_t>;
    case DType::kI8:
      return &of_rows<kLargest, std::int8_t>;
    case DType::kU8:
    case DType::kBool:
      return &of_rows<kLargest, std::uint8_t>;
    default:
      return nullptr;
  }
}

}  // namespace

cpu::ArgExtreme arg_extreme(bool largest, DType dtype) {
  return largest ? of<true>(dtype) : of<false>(dtype);
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(arg_extreme);

cpu::ArgExtreme cpu::arg_extreme(bool largest, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(arg_extreme)(largest, dtype);
}

}  // namespace tenon::ops
#endif
