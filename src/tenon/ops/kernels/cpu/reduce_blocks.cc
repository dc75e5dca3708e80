// Reductions of dense blocks, for each instruction set: vectors of sums and of extremes, and plain
// loops over several independent lanes, which the compiler makes vectors of.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/reduce_blocks.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/reduce_steps-inl.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tenon/ops/kernels/cpu/reduce_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

// Calls body(number, vector) for the vectors of a row's elements, numbered 0 to 3 in turn, and
// rest(element) for what is left.
template <typename T, class Body, class Rest>
HWY_INLINE void each_vector(const T* x, std::int64_t count, const Body& body, const Rest& rest) {
  const hn::ScalableTag<Wide<T>> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    body(std::integral_constant<int, 0>(), load(d, x + i));
    body(std::integral_constant<int, 1>(), load(d, x + i + lanes));
    body(std::integral_constant<int, 2>(), load(d, x + i + 2 * lanes));
    body(std::integral_constant<int, 3>(), load(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) body(std::integral_constant<int, 0>(), load(d, x + i));
  for (; i < count; ++i) rest(x[i]);
}

// Whether a load leaves the memory of lanes that its mask excludes alone.
template <typename T>
constexpr bool kMaskedIsExact =
    HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && sizeof(T) >= 4);

// Enough vectors to hide the latency of an addition.
template <class V>
struct FourVectors {
  template <int kNumber>
  HWY_INLINE V& at(std::integral_constant<int, kNumber>) {
    if constexpr (kNumber == 0) return v0;
    if constexpr (kNumber == 1) return v1;
    if constexpr (kNumber == 2) return v2;
    if constexpr (kNumber == 3) return v3;
  }
  V v0, v1, v2, v3;
};

// What vectors do not hold, of rows that may be many and short, is gathered as it is in the end
// where a mask is dear, or where so many rows would lose digits in f32 lanes.
template <typename T, typename A = typename AccumulatorOf<T>::type>
HWY_INLINE A sum_of(const T* x, std::int64_t count, std::int64_t rows, std::int64_t row_elements) {
  constexpr std::int64_t kLong = 64;
  const hn::ScalableTag<Wide<T>> d;
  const auto zero = hn::Zero(d);
  FourVectors<hn::Vec<decltype(d)>> sums{zero, zero, zero, zero};
  const std::int64_t rest = count % static_cast<std::int64_t>(hn::Lanes(d));
  A others = 0;
  for (std::int64_t r = 0; r < rows; ++r, x += row_elements) {
    each_vector(
        x, count - rest, [&](auto n, auto v) { sums.at(n) = hn::Add(sums.at(n), v); }, [](T) {});
    if (rest > 0 && (rows == 1 || (kMaskedIsExact<T> && count >= kLong)))
      sums.v3 = hn::Add(sums.v3, load_first(d, x + count - rest, rest));
    else
      for (std::int64_t i = count - rest; i < count; ++i) others = Sum::take(others, x[i], 0);
  }
  const auto all = hn::Add(hn::Add(sums.v0, sums.v1), hn::Add(sums.v2, sums.v3));
  return Sum::combine(static_cast<A>(hn::GetLane(hn::SumOfLanes(d, all))), others);
}

// Elements of f32 or f64 as f64.
template <class D, class V>
HWY_INLINE hn::Vec<D> wide(D d, V v) {
  if constexpr (std::is_same_v<V, hn::Vec<D>>)
    return v;
  else
    return hn::PromoteTo(d, v);
}

// Squares of deviations are added up in f64, and products multiplied.
template <class Op, typename T>
HWY_NOINLINE double wide_of(const T* x, std::int64_t count, double shift, std::int64_t rows,
                            std::int64_t row_elements) {
  constexpr bool kProduct = std::is_same_v<Op, Product>;
  const hn::ScalableTag<double> d;
  const hn::Rebind<T, decltype(d)> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto minus = hn::Set(d, shift), neutral = hn::Set(d, Op::template start<double>());
  auto v0 = neutral, v1 = neutral, v2 = neutral, v3 = neutral;
  const auto with = [&](auto gathered, auto y) HWY_ATTR {
    if constexpr (kProduct) return hn::Mul(gathered, y);
    y = hn::Sub(y, minus);
    return hn::MulAdd(y, y, gathered);
  };
  const auto load = [&](const T* from) HWY_ATTR { return wide(d, hn::LoadU(narrow, from)); };
  for (std::int64_t r = 0; r < rows; ++r, x += row_elements) {
    std::int64_t i = 0;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      v0 = with(v0, load(x + i)), v1 = with(v1, load(x + i + lanes));
      v2 = with(v2, load(x + i + 2 * lanes)), v3 = with(v3, load(x + i + 3 * lanes));
    }
    for (; i + lanes <= count; i += lanes) v0 = with(v0, load(x + i));
    if (i == count) continue;
    const auto rest = hn::FirstN(d, static_cast<std::size_t>(count - i));
    v1 = hn::IfThenElse(rest, with(v1, wide(d, load_first(narrow, x + i, count - i))), v1);
  }
  HWY_ALIGN double found[hn::MaxLanes(d)];
  if constexpr (kProduct) {
    hn::Store(hn::Mul(hn::Mul(v0, v1), hn::Mul(v2, v3)), d, found);
    for (std::int64_t l = 1; l < lanes; ++l) found[0] *= found[l];
    return found[0];
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(v0, v1), hn::Add(v2, v3))));
}

// Of u8, eight of which become one number of 64 bits.
std::int64_t sum_of_bytes(const std::uint8_t* x, std::int64_t count, std::int64_t rows,
                          std::int64_t row_elements) {
  const hn::ScalableTag<std::uint8_t> d;
  const hn::Repartition<std::uint64_t, decltype(d)> words;
  auto sum = hn::Zero(words);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < rows; ++r, x += row_elements) {
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) sum = hn::Add(sum, hn::SumsOf8(hn::LoadU(d, x + i)));
    if (i < count) sum = hn::Add(sum, hn::SumsOf8(load_first(d, x + i, count - i)));
  }
  return static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(words, sum)));
}

// The extreme of numbers, which takes one comparison an element. False, and nothing done, where
// there may be a NaN: then the sum is one, or infinities of both signs met in it.
template <class Op, typename T>
bool extreme_of_numbers(T& found, const T* x, std::int64_t count, std::int64_t rows,
                        std::int64_t row_elements) {
  const hn::ScalableTag<T> d;
  const auto start = hn::Set(d, Op::template start<T>());
  FourVectors<hn::Vec<decltype(d)>> best{start, start, start, start};
  const auto zero = hn::Zero(d);
  FourVectors<hn::Vec<decltype(d)>> sum{zero, zero, zero, zero};
  found = Op::template start<T>();
  T rest = 0;
  for (std::int64_t r = 0; r < rows; ++r, x += row_elements)
    each_vector(
        x, count,
        [&](auto n, auto v) {
          best.at(n) = Op::of_vectors(best.at(n), v);
          if constexpr (std::is_floating_point_v<T>) sum.at(n) = hn::Add(sum.at(n), v);
        },
        [&](T element) {
          found = Op::of_numbers(found, element);
          if constexpr (std::is_floating_point_v<T>) rest += element;
        });
  const auto all =
      Op::of_vectors(Op::of_vectors(best.v0, best.v1), Op::of_vectors(best.v2, best.v3));
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  hn::Store(all, d, lanes);
  for (std::size_t l = 0; l < hn::Lanes(d); ++l) found = Op::of_numbers(found, lanes[l]);
  if constexpr (std::is_floating_point_v<T>) {
    const auto every = hn::Add(hn::Add(sum.v0, sum.v1), hn::Add(sum.v2, sum.v3));
    rest += hn::GetLane(hn::SumOfLanes(d, every));
    return rest == rest;
  }
  return true;
}

// In plain lanes, enough to hide the latency of an addition.
template <class Op, typename T, typename Lane>
HWY_NOINLINE Lane by_lanes(const T* x, std::int64_t count, double shift, std::int64_t rows,
                           std::int64_t row_elements) {
  constexpr int kLanes = 32;
  Lane lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = Op::template start<Lane>();
  for (std::int64_t r = 0; r < rows; ++r, x += row_elements) {
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (int l = 0; l < kLanes; ++l) lanes[l] = Op::take(lanes[l], x[i + l], shift);
    for (; i < count; ++i) lanes[i % kLanes] = Op::take(lanes[i % kLanes], x[i], shift);
  }
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lanes[l] = Op::combine(lanes[l], lanes[l + width]);
  return lanes[0];
}

// f32 is gathered in f32 lanes over short stretches, whose results go into the f64 accumulator.
template <class Op, typename T, typename Lane>
HWY_INLINE void stretch(typename AccumulatorOf<T>::type& accumulator, const T* x,
                        std::int64_t count, double shift, std::int64_t rows,
                        std::int64_t row_elements) {
  using A = typename AccumulatorOf<T>::type;
  const auto found = [&] {
    if constexpr (std::is_same_v<Op, Sum> && std::is_same_v<Wide<T>, Lane> && !kIsComplex<T>)
      return sum_of(x, count, rows, row_elements);
    else if constexpr (std::is_same_v<Op, Sum> && std::is_same_v<T, std::uint8_t>)
      return sum_of_bytes(x, count, rows, row_elements);
    else if constexpr (std::is_same_v<A, double> &&
                       (std::is_same_v<Op, SumOfSquares> || std::is_same_v<Op, Product>))
      return wide_of<Op>(x, count, shift, rows, row_elements);
    else
      return by_lanes<Op, T, Lane>(x, count, shift, rows, row_elements);
  };
  accumulator = Op::combine(accumulator, static_cast<A>(found()));
}

template <class Op, typename T>
HWY_INLINE void gather_rows(void* accumulator, const void* block, std::int64_t count,
                            double shift, std::int64_t rows, std::int64_t row_elements) {
  using A = typename AccumulatorOf<T>::type;
  // Sums of deviations keep their digits only in f64.
  constexpr bool kInFloat =
      std::is_same_v<Wide<T>, float> && !std::is_same_v<Op, SumOfSquares> &&
      !std::is_same_v<Op, Product>;
  using Lane = std::conditional_t<kInFloat, float, A>;
  A& total = *static_cast<A*>(accumulator);
  const T* x = static_cast<const T*>(block);
  if constexpr (kIsExtreme<Op> && !kIsComplex<T>) {
    T found;
    if (extreme_of_numbers<Op>(found, x, count, rows, row_elements)) {
      total = Op::combine(total, static_cast<A>(found));
      return;
    }
    if constexpr (std::is_integral_v<T>) return;
  }
  // 32 elements to a lane of sum_of: more of them would cost f32 digits.
  const auto most = static_cast<std::int64_t>(128 * hn::Lanes(hn::ScalableTag<float>()));
  if (rows == 1 && count <= most) return stretch<Op, T, Lane>(total, x, count, shift, 1, 0);
  const std::int64_t together = std::max<std::int64_t>(1, most / (count + 1));
  for (std::int64_t r = 0; r < rows; r += together)
    for (std::int64_t at = 0; at < count; at += most)
      stretch<Op, T, Lane>(total, x + r * row_elements + at, std::min(most, count - at), shift,
                           std::min(together, rows - r), row_elements);
}

template <class Op, typename T>
void row(void* accumulator, const void* block, std::int64_t count, double shift, std::int64_t rows,
         std::int64_t row_elements) {
  gather_rows<Op, T>(accumulator, block, count, shift, rows, row_elements);
}

template <class Op, typename T>
void each_row(void* accumulators, const void* block, std::int64_t count, const double* shifts,
              std::int64_t rows, std::int64_t row_elements) {
  auto* totals = static_cast<typename AccumulatorOf<T>::type*>(accumulators);
  const T* x = static_cast<const T*>(block);
  for (std::int64_t r = 0; r < rows; ++r)
    gather_rows<Op, T>(totals + r, x + r * row_elements, count,
                       shifts == nullptr ? 0 : shifts[r], 1, 0);
}

// The rows side by side do not wait for each other.
template <class Op, int kRows, typename T>
void some_short_rows(typename AccumulatorOf<T>::type* totals, const T* x, std::int64_t length,
                     const double* shifts) {
  using A = typename AccumulatorOf<T>::type;
  if constexpr (kIsExtreme<Op> && !kIsComplex<T>) {
    T found[kRows], sums[kRows] = {}, all = 0;
    for (int r = 0; r < kRows; ++r) found[r] = x[r * length];
    for (std::int64_t i = 0; i < length; ++i)
      for (int r = 0; r < kRows; ++r) {
        found[r] = Op::of_numbers(found[r], x[r * length + i]);
        if constexpr (std::is_floating_point_v<T>) sums[r] += x[r * length + i];
      }
    for (int r = 0; r < kRows; ++r) all += sums[r];
    if (all == all) {
      for (int r = 0; r < kRows; ++r) totals[r] = Op::combine(totals[r], static_cast<A>(found[r]));
      return;
    }
    if constexpr (std::is_integral_v<T>) return;
  }
  A gathered[kRows];
  for (int r = 0; r < kRows; ++r) gathered[r] = totals[r];
  for (std::int64_t i = 0; i < length; ++i)
    for (int r = 0; r < kRows; ++r)
      gathered[r] = Op::take(gathered[r], x[r * length + i], shifts == nullptr ? 0 : shifts[r]);
  for (int r = 0; r < kRows; ++r) totals[r] = gathered[r];
}
template <class Op, typename T>
void short_rows(void* accumulators, const void* block, std::int64_t length, const double* shifts,
                std::int64_t rows) {
  constexpr int kRows = 4;
  auto* totals = static_cast<typename AccumulatorOf<T>::type*>(accumulators);
  const T* x = static_cast<const T*>(block);
  const auto shift = [&](std::int64_t r) { return shifts == nullptr ? shifts : shifts + r; };
  std::int64_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    some_short_rows<Op, kRows>(totals + r, x + r * length, length, shift(r));
  for (; r < rows; ++r) some_short_rows<Op, 1>(totals + r, x + r * length, length, shift(r));
}

// Some columns in registers, in their own dtype. NaN is found by what it does to a sum, which is
// looked at again.
template <class Op, int kVectors, typename T, typename A>
HWY_NOINLINE void extreme_strip(A* accumulators, const T* x, std::int64_t width, std::int64_t rows,
                                std::int64_t row_elements) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto start = hn::Set(d, Op::template start<T>()), zero = hn::Zero(d);
  FourVectors<hn::Vec<decltype(d)>> best{start, start, start, start};
  FourVectors<hn::Vec<decltype(d)>> sum{zero, zero, zero, zero};
  const auto take = [&](auto n, auto v) HWY_ATTR {
    best.at(n) = Op::of_vectors(best.at(n), v);
    if constexpr (std::is_floating_point_v<T>) sum.at(n) = hn::Add(sum.at(n), v);
  };
  const T* row = x;
  for (std::int64_t r = 0; r < rows; ++r, row += row_elements)
    if constexpr (kVectors > 1)
      each_vector(row, kVectors * lanes, take, [](T) {});
    else
      take(std::integral_constant<int, 0>(),
           width == lanes ? hn::LoadU(d, row) : load_first(d, row, width));
  HWY_ALIGN T found[4 * hn::MaxLanes(d)], sums[4 * hn::MaxLanes(d)];
  hn::Store(best.v0, d, found), hn::Store(best.v1, d, found + lanes);
  hn::Store(best.v2, d, found + 2 * lanes), hn::Store(best.v3, d, found + 3 * lanes);
  hn::Store(sum.v0, d, sums), hn::Store(sum.v1, d, sums + lanes);
  hn::Store(sum.v2, d, sums + 2 * lanes), hn::Store(sum.v3, d, sums + 3 * lanes);
  const auto all = hn::Add(hn::Add(sum.v0, sum.v1), hn::Add(sum.v2, sum.v3));
  if (std::is_integral_v<T> || hn::AllTrue(d, hn::Eq(all, all))) {
    for (std::int64_t c = 0; c < width; ++c)
      accumulators[c] = Op::of_numbers(accumulators[c], static_cast<A>(found[c]));
    return;
  }
  for (std::int64_t c = 0; c < width; ++c) {
    if (sums[c] == sums[c])
      accumulators[c] = Op::combine(accumulators[c], static_cast<A>(found[c]));
    else
      for (std::int64_t r = 0; r < rows; ++r)
        accumulators[c] = Op::take(accumulators[c], x[r * row_elements + c], 0);
  }
}
template <class Op, typename T, typename A>
void extreme_columns(A* accumulators, const T* x, std::int64_t count, std::int64_t rows,
                     std::int64_t row_elements) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  std::int64_t first = 0;
  for (; first + 4 * lanes <= count; first += 4 * lanes)
    extreme_strip<Op, 4>(accumulators + first, x + first, 4 * lanes, rows, row_elements);
  for (; first < count; first += lanes)
    extreme_strip<Op, 1>(accumulators + first, x + first, std::min(lanes, count - first), rows,
                         row_elements);
}

// Sums of some columns at a time in registers: of f32 and less in f32 over stretches so short that
// what it rounds is seen in no sum.
template <typename T, typename A>
void sum_columns(A* accumulators, const T* x, std::int64_t count, std::int64_t rows,
                 std::int64_t row_elements) {
  constexpr std::int64_t kStretch = std::is_same_v<T, A> ? 64 : kIsHalf<T> ? 32 : 8;
  const hn::ScalableTag<Wide<T>> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t strip = 4 * lanes;
  for (std::int64_t begin = 0; begin < rows; begin += kStretch, x += kStretch * row_elements) {
    const std::int64_t some = std::min(kStretch, rows - begin);
    std::int64_t first = 0;
    HWY_ALIGN Wide<T> sums[4 * hn::MaxLanes(d)];
    for (; first + strip <= count; first += strip) {
      const auto zero = hn::Zero(d);
      auto s0 = zero, s1 = zero, s2 = zero, s3 = zero;
      const T* from = x + first;
      for (std::int64_t r = 0; r < some; ++r, from += row_elements) {
        s0 = hn::Add(s0, load(d, from)), s1 = hn::Add(s1, load(d, from + lanes));
        s2 = hn::Add(s2, load(d, from + 2 * lanes));
        s3 = hn::Add(s3, load(d, from + 3 * lanes));
      }
      hn::Store(s0, d, sums), hn::Store(s1, d, sums + lanes);
      hn::Store(s2, d, sums + 2 * lanes), hn::Store(s3, d, sums + 3 * lanes);
      for (std::int64_t c = 0; c < strip; ++c) accumulators[first + c] += static_cast<A>(sums[c]);
    }
    for (; first < count; first += lanes) {
      const std::int64_t width = std::min(lanes, count - first);
      auto s = hn::Zero(d);
      const T* from = x + first;
      for (std::int64_t r = 0; r < some; ++r, from += row_elements)
        s = hn::Add(s, width == lanes ? load(d, from) : load_first(d, from, width));
      hn::Store(s, d, sums);
      for (std::int64_t c = 0; c < width; ++c) accumulators[first + c] += static_cast<A>(sums[c]);
    }
  }
}

// Rows that lie one after the other and fill no four vectors are gathered several at a time, as if
// they were one.
template <class Op, typename T>
void columns(void* accumulators, const void* block, std::int64_t count, const double* shifts,
             std::int64_t rows, std::int64_t row_elements);
template <class Op, typename T>
std::int64_t narrow_columns(typename AccumulatorOf<T>::type* a, const T* x, std::int64_t count,
                            std::int64_t rows) {
  using A = typename AccumulatorOf<T>::type;
  constexpr std::int64_t kMost = 256;
  const std::int64_t together = kMost / count, groups = together < 2 ? 0 : rows / together;
  if (groups < 8) return 0;
  A wide[kMost];
  for (std::int64_t i = 0; i < together * count; ++i) wide[i] = Op::template start<A>();
  columns<Op, T>(wide, x, together * count, nullptr, groups, together * count);
  for (std::int64_t r = 0; r < together; ++r)
    for (std::int64_t i = 0; i < count; ++i) a[i] = Op::combine(a[i], wide[r * count + i]);
  return groups * together;
}

// Four rows at a time, so that accumulators are loaded and stored once for four.
template <class Op, typename T>
void columns(void* accumulators, const void* block, std::int64_t count, const double* shifts,
             std::int64_t rows, std::int64_t row_elements) {
  using A = typename AccumulatorOf<T>::type;
  A* a = static_cast<A*>(accumulators);
  const T* x = static_cast<const T*>(block);
  if (shifts == nullptr && row_elements == count) {
    const std::int64_t done = narrow_columns<Op>(a, x, count, rows);
    x += done * count, rows -= done;
  }
  std::int64_t r = 0;
  if constexpr (kIsExtreme<Op>) return extreme_columns<Op>(a, x, count, rows, row_elements);
  constexpr bool kHasVectors = std::is_floating_point_v<Wide<T>> || sizeof(T) == 8;
  if constexpr (std::is_same_v<Op, Sum> && kHasVectors && !kIsComplex<T>)
    if (rows > 4 || kIsHalf<T>) return sum_columns(a, x, count, rows, row_elements);
  for (; shifts == nullptr && r + 4 <= rows; r += 4) {
    const T* x0 = x + r * row_elements;
    const T* x1 = x0 + row_elements;
    const T* x2 = x1 + row_elements;
    const T* x3 = x2 + row_elements;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i)
      a[i] = Op::take(Op::take(Op::take(Op::take(a[i], x0[i], 0), x1[i], 0), x2[i], 0), x3[i], 0);
  }
  for (; r < rows; ++r) {
    const T* row_of_x = x + r * row_elements;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i)
      a[i] = Op::take(a[i], row_of_x[i], shifts == nullptr ? 0 : shifts[i]);
  }
}

template <class Op, typename A>
void combine(void* accumulator, const void* other) {
  A& a = *static_cast<A*>(accumulator);
  a = Op::combine(a, *static_cast<const A*>(other));
}

template <class Op, typename A>
void start(void* accumulator) {
  *static_cast<A*>(accumulator) = Op::template start<A>();
}

template <class Op, typename T>
cpu::ReduceBlocks of_type() {
  using A = typename AccumulatorOf<T>::type;
  return {&row<Op, T>,     &each_row<Op, T>,  &short_rows<Op, T>,
          &columns<Op, T>, &combine<Op, A>, &start<Op, A>};
}

template <class Op>
cpu::ReduceBlocks of_numbers(DType input) {
  switch (input) {
    case DType::kF32:
      return of_type<Op, float>();
    case DType::kF64:
      return of_type<Op, double>();
    case DType::kI64:
      return of_type<Op, std::int64_t>();
    case DType::kI32:
      return of_type<Op, std::int32_t>();
    case DType::kI16:
      return of_type<Op, std::int16_t>();
    case DType::kI8:
      return of_type<Op, std::int8_t>();
    case DType::kU8:
      return of_type<Op, std::uint8_t>();
    default:
      return {};
  }
}

}  // namespace

cpu::ReduceBlocks reduce_blocks(Gather gather, DType input) {
  const bool is_complex = input == DType::kC128;
  switch (gather) {
    case Gather::kSum:
      if (input == DType::kBF16) return of_type<Sum, BFloat16>();
      if (input == DType::kF16) return of_type<Sum, Half>();
      return is_complex ? of_type<Sum, Complex128>() : of_numbers<Sum>(input);
    case Gather::kProduct:
      if (is_complex) return of_type<Product, Complex128>();
      if (input == DType::kF32) return of_type<Product, float>();
      return input == DType::kF64 ? of_type<Product, double>() : of_type<Product, std::int64_t>();
    case Gather::kLargest:
      return of_numbers<Largest>(input);
    case Gather::kSmallest:
      return of_numbers<Smallest>(input);
    case Gather::kSumOfSquares:
      if (input == DType::kF32) return of_type<SumOfSquares, float>();
      if (input == DType::kF64) return of_type<SumOfSquares, double>();
      break;
    case Gather::kSumOfExponentials:
      if (input == DType::kF64) return of_type<SumOfExponentials, double>();
  }
  return {};
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(reduce_blocks);

cpu::ReduceBlocks cpu::reduce_blocks(Gather gather, DType input) {
  return HWY_DYNAMIC_DISPATCH(reduce_blocks)(gather, input);
}

}  // namespace tenon::ops
#endif
