// Pools of planes: down the columns of each row of windows, then along the row that is left.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/pool_planes.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
// clang-format on

#include <algorithm>
#include <limits>
#include <vector>

#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/pool_planes.h"

#ifndef TENON_OPS_POOL_RUN
#define TENON_OPS_POOL_RUN
namespace tenon::ops::cpu {

// Places [first, last) whose windows have one width and begin `stride` apart: all but those that
// padding cuts. None of windows that differ.
struct EvenPlaces {
  explicit EvenPlaces(const std::vector<PoolWork::Span>& spans) {
    const auto width_at = [&](std::size_t i) { return spans[i].end - spans[i].begin; };
    for (std::size_t i = 0; i < spans.size(); ++i) width = std::max(width, width_at(i));
    std::size_t begin = 0, end = spans.size();
    while (width_at(begin) != width) ++begin;
    while (width_at(end - 1) != width) --end;
    if (end - begin > 1) stride = spans[begin + 1].begin - spans[begin].begin;
    for (std::size_t i = begin + 1; i < end; ++i)
      if (width_at(i) != width || spans[i].begin - spans[i - 1].begin != stride) return;
    first = static_cast<std::int64_t>(begin);
    last = static_cast<std::int64_t>(end);
  }
  std::int64_t first = 0, last = 0, stride = 1, width = 0;
};

// Rows of the result [begin, end), counted through all planes.
using PoolRows = void (*)(const PoolWork& work, const EvenPlaces& even, void* out, const void* in,
                          std::int64_t begin, std::int64_t end);

}  // namespace tenon::ops::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

using cpu::EvenPlaces;
using cpu::PoolWork;

// Elements behind a row that vectors may read.
constexpr std::int64_t kSlack = 3 * 16;

template <bool kSum, class V>
HWY_INLINE V taken(V found, V x) {
  if constexpr (kSum) return hn::Add(found, x);
  return hn::IfThenElse(hn::Or(hn::Gt(x, found), hn::IsNaN(x)), x, found);  // NaN stays
}
template <bool kSum, typename T>
constexpr T kStart = kSum ? T(0) : -std::numeric_limits<T>::infinity();

// to[x] = of from[x], from[x + width], ..., `rows` of them.
template <bool kSum, typename T>
void reduce_down(T* to, const T* from, std::int64_t rows, std::int64_t width) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (rows == 0) std::fill_n(to, width, kStart<kSum, T>);
  if (rows == 0) return;
  std::int64_t x = 0;
  for (; x + 4 * lanes <= width; x += 4 * lanes) {
    const T* at = from + x;
    V a = hn::LoadU(d, at), b = hn::LoadU(d, at + lanes);
    V c = hn::LoadU(d, at + 2 * lanes), e = hn::LoadU(d, at + 3 * lanes);
    for (std::int64_t row = 1; row < rows; ++row) {
      at += width;
      a = taken<kSum>(a, hn::LoadU(d, at));
      b = taken<kSum>(b, hn::LoadU(d, at + lanes));
      c = taken<kSum>(c, hn::LoadU(d, at + 2 * lanes));
      e = taken<kSum>(e, hn::LoadU(d, at + 3 * lanes));
    }
    hn::StoreU(a, d, to + x);
    hn::StoreU(b, d, to + x + lanes);
    hn::StoreU(c, d, to + x + 2 * lanes);
    hn::StoreU(e, d, to + x + 3 * lanes);
  }
  for (; x < width; x += lanes) {
    V found = load_some(d, from + x, width - x);
    for (std::int64_t row = 1; row < rows; ++row)
      found = taken<kSum>(found, load_some(d, from + row * width + x, width - x));
    store_some(d, found, to + x, width - x);
  }
}

// to[i] = of from[i stride, i stride + width), for strides up to kMostStride. Reads up to kSlack
// elements behind the last window.
constexpr std::int64_t kMostStride = 3;
template <bool kSum, int kStride, typename T>
void reduce_along(T* to, const T* from, std::int64_t count, std::int64_t width) {
  each_vector<T>(count, [&](auto d, std::int64_t i, std::int64_t some) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    const T* const at = from + i * kStride;
    V found = hn::Set(d, kStart<kSum, T>);
    for (std::int64_t x = 0; x < width; x += kStride) {
      V first, second, third;
      if constexpr (kStride == 1) first = hn::LoadU(d, at + x);
      if constexpr (kStride == 2) hn::LoadInterleaved2(d, at + x, first, second);
      if constexpr (kStride == 3) hn::LoadInterleaved3(d, at + x, first, second, third);
      found = taken<kSum>(found, first);
      if (kStride > 1 && x + 1 < width) found = taken<kSum>(found, second);
      if (kStride > 2 && x + 2 < width) found = taken<kSum>(found, third);
    }
    store_some(d, found, to + i, some);
  });
}

template <bool kSum, typename T>
HWY_INLINE T reduce_one(const T* from, std::int64_t width) {
  T found = kStart<kSum, T>;
  for (std::int64_t x = 0; x < width; ++x) {
    if constexpr (kSum)
      found += from[x];
    else
      found = from[x] > found || from[x] != from[x] ? from[x] : found;
  }
  return found;
}

template <bool kSum, typename T>
void one_row(const PoolWork& work, const EvenPlaces& even, T* to, const T* row) {
  const auto one_by_one = [&](std::int64_t place, std::int64_t end) {
    for (; place < end; ++place) {
      const PoolWork::Span& s = work.columns[static_cast<std::size_t>(place)];
      to[place] = reduce_one<kSum>(row + s.begin, s.end - s.begin);
    }
  };
  const auto places = static_cast<std::int64_t>(work.columns.size());
  const std::int64_t count = even.last - even.first;
  // Windows that are as wide as the row all begin at its first element.
  if (count == 0 || even.stride < 1 || even.stride > kMostStride) return one_by_one(0, places);
  one_by_one(0, even.first);
  const T* const from = row + work.columns[static_cast<std::size_t>(even.first)].begin;
  const auto run = even.stride == 1   ? &reduce_along<kSum, 1, T>
                   : even.stride == 2 ? &reduce_along<kSum, 2, T>
                                      : &reduce_along<kSum, 3, T>;
  run(to + even.first, from, count, even.width);
  one_by_one(even.last, places);
}

template <bool kSum, typename T>
void some_rows(const PoolWork& work, const EvenPlaces& even, void* out, const void* in,
               std::int64_t begin, std::int64_t end) {
  const auto height = static_cast<std::int64_t>(work.rows.size());
  const auto width = static_cast<std::int64_t>(work.columns.size());
  std::vector<T> row(static_cast<std::size_t>(work.width + kSlack));
  std::vector<T> counts(static_cast<std::size_t>(kSum ? width : 0));
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<T>(work.columns[i].count);
  for (std::int64_t i = begin; i < end; ++i) {
    const PoolWork::Span& y = work.rows[static_cast<std::size_t>(i % height)];
    const T* const from = static_cast<const T*>(in) + (i / height * work.height + y.begin) *
                                                          work.width;
    T* const to = static_cast<T*>(out) + i * width;
    reduce_down<kSum>(row.data(), from, y.end - y.begin, work.width);
    one_row<kSum>(work, even, to, row.data());
    const T rows = static_cast<T>(y.count);
    if constexpr (kSum)
      for (std::int64_t x = 0; x < width; ++x)
        to[x] /= rows * counts[static_cast<std::size_t>(x)];
  }
}

template <typename T>
cpu::PoolRows rows_of(bool is_average) {
  return is_average ? &some_rows<true, T> : &some_rows<false, T>;
}

}  // namespace

cpu::PoolRows pool_rows(bool is_average, DType dtype) {
  return dtype == DType::kF64 ? rows_of<double>(is_average) : rows_of<float>(is_average);
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(pool_rows);

void cpu::pool_planes(const PoolWork& work, void* out, const void* in, std::int64_t planes) {
  const PoolRows run = HWY_DYNAMIC_DISPATCH(pool_rows)(work.is_average, work.dtype);
  const EvenPlaces even(work.columns);
  const auto height = static_cast<std::int64_t>(work.rows.size());
  const std::int64_t taken = work.height / height * work.width + 1;  // for a row
  parallel_for(0, planes * height, even_grain(planes * height, 16384 / taken),
               [&](std::int64_t begin, std::int64_t end) { run(work, even, out, in, begin, end); });
}

}  // namespace tenon::ops
#endif
