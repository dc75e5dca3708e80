// Reductions of dense blocks: plain loops over several independent lanes, which the compiler keeps
// in vector registers for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/reduce_blocks.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tenon/ops/kernels/cpu/reduce_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

// Each: the accumulator of no elements, how one takes in an element (x, already shifted where that
// applies), and how two become one.
struct Sum {
  template <typename A>
  static A start() {
    return A(0);
  }
  template <typename A, typename T>
  static A take(A a, T x, double) {
    return a + static_cast<A>(x);
  }
  template <typename A>
  static A combine(A a, A b) {
    return a + b;
  }
};
struct Product {
  template <typename A>
  static A start() {
    return A(1);
  }
  template <typename A, typename T>
  static A take(A a, T x, double) {
    return a * static_cast<A>(x);
  }
  template <typename A>
  static A combine(A a, A b) {
    return a * b;
  }
};
struct Largest {
  template <typename A>
  static A start() {
    return std::is_floating_point_v<A> ? -std::numeric_limits<A>::infinity()
                                       : std::numeric_limits<A>::lowest();
  }
  template <typename A, typename T>
  static A take(A a, T x, double) {
    const A y = static_cast<A>(x);
    return y > a || y != y ? y : a;
  }
  template <typename A>
  static A of_numbers(A a, A y) {
    return y > a ? y : a;
  }
  template <typename A>
  static A combine(A a, A b) {
    return b > a || b != b ? b : a;
  }
};
struct Smallest {
  template <typename A>
  static A start() {
    return std::is_floating_point_v<A> ? std::numeric_limits<A>::infinity()
                                       : std::numeric_limits<A>::max();
  }
  template <typename A, typename T>
  static A take(A a, T x, double) {
    const A y = static_cast<A>(x);
    return y < a || y != y ? y : a;
  }
  template <typename A>
  static A of_numbers(A a, A y) {
    return y < a ? y : a;
  }
  template <typename A>
  static A combine(A a, A b) {
    return b < a || b != b ? b : a;
  }
};
struct SumOfSquares {
  template <typename A>
  static A start() {
    return A(0);
  }
  template <typename A, typename T>
  static A take(A a, T x, double shift) {
    if constexpr (std::is_floating_point_v<A>) {
      const A y = static_cast<A>(x) - static_cast<A>(shift);
      return a + y * y;
    } else {
      return a + static_cast<A>(x) * static_cast<A>(x);
    }
  }
  template <typename A>
  static A combine(A a, A b) {
    return a + b;
  }
};
struct SumOfExponentials {
  template <typename A>
  static A start() {
    return A(0);
  }
  template <typename A, typename T>
  static A take(A a, T x, double shift) {
    if constexpr (std::is_floating_point_v<A>)
      return a + std::exp(static_cast<A>(x) - static_cast<A>(shift));
    else
      return a;
  }
  template <typename A>
  static A combine(A a, A b) {
    return a + b;
  }
};

template <typename T>
struct AccumulatorOf {
  using type = T;
};
template <>
struct AccumulatorOf<float> {
  using type = double;
};
template <>
struct AccumulatorOf<std::int32_t> {
  using type = std::int64_t;
};

template <class Op>
constexpr bool kIsExtreme = std::is_same_v<Op, Largest> || std::is_same_v<Op, Smallest>;

// The extreme of numbers, which takes one comparison an element. False, and nothing done, where
// there may be a NaN: then the sum is one, or infinities of both signs met in it.
template <class Op, typename T>
bool extreme_of_numbers(T& found, const T* x, std::int64_t count) {
  constexpr int kLanes = 64 / sizeof(T) * 2;
  T lanes[kLanes], sums[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = Op::template start<T>();
  for (int l = 0; l < kLanes; ++l) sums[l] = T(0);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int l = 0; l < kLanes; ++l) {
      lanes[l] = Op::of_numbers(lanes[l], x[i + l]);
      if constexpr (std::is_floating_point_v<T>) sums[l] += x[i + l];
    }
  for (int l = 0; i < count; ++i, ++l) {
    lanes[l] = Op::of_numbers(lanes[l], x[i]);
    if constexpr (std::is_floating_point_v<T>) sums[l] += x[i];
  }
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) {
      lanes[l] = Op::of_numbers(lanes[l], lanes[l + width]);
      sums[l] += sums[l + width];
    }
  found = lanes[0];
  return sums[0] == sums[0];
}

// f32 is gathered in f32 lanes over short stretches, whose results go into the f64 accumulator.
template <class Op, typename T, typename Lane>
void stretch(typename AccumulatorOf<T>::type& accumulator, const T* x, std::int64_t count,
             double shift) {
  constexpr int kLanes = 32;  // enough to hide the latency of an addition
  Lane lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = Op::template start<Lane>();
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] = Op::take(lanes[l], x[i + l], shift);
  for (; i < count; ++i) lanes[i % kLanes] = Op::take(lanes[i % kLanes], x[i], shift);
  using A = typename AccumulatorOf<T>::type;
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lanes[l] = Op::combine(lanes[l], lanes[l + width]);
  accumulator = Op::combine(accumulator, static_cast<A>(lanes[0]));
}

template <class Op, typename T>
void row(void* accumulator, const void* block, std::int64_t count, double shift) {
  using A = typename AccumulatorOf<T>::type;
  // Sums of deviations keep their digits only in f64.
  constexpr bool kInFloat =
      std::is_same_v<T, float> && !std::is_same_v<Op, SumOfSquares> && !std::is_same_v<Op, Product>;
  using Lane = std::conditional_t<kInFloat, float, A>;
  A& total = *static_cast<A*>(accumulator);
  const T* x = static_cast<const T*>(block);
  if constexpr (kIsExtreme<Op> && !std::is_same_v<T, Complex128>) {
    T found;
    if (extreme_of_numbers<Op>(found, x, count)) {
      total = Op::combine(total, static_cast<A>(found));
      return;
    }
  }
  constexpr std::int64_t kStretch = 2048;
  for (std::int64_t at = 0; at < count; at += kStretch)
    stretch<Op, T, Lane>(total, x + at, std::min(kStretch, count - at), shift);
}

// Some columns at a time in registers, in their own dtype. NaN is found by what it does to a sum,
// which is looked at again.
template <class Op, typename T, typename A>
void extreme_columns(A* accumulators, const T* x, std::int64_t count, std::int64_t rows,
                     std::int64_t row_elements) {
  constexpr std::int64_t kStrip = 32;
  for (std::int64_t first = 0; first < count; first += kStrip) {
    const std::int64_t width = std::min(kStrip, count - first);
    T found[kStrip], sums[kStrip];
    for (std::int64_t c = 0; c < kStrip; ++c) found[c] = Op::template start<T>(), sums[c] = T(0);
    const auto take_rows = [&](auto columns) {
      const T* row = x + first;
      for (std::int64_t r = 0; r < rows; ++r, row += row_elements)
        for (std::int64_t c = 0; c < columns; ++c) {
          found[c] = Op::of_numbers(found[c], row[c]);
          if constexpr (std::is_floating_point_v<T>) sums[c] += row[c];
        }
    };
    width == kStrip ? take_rows(std::integral_constant<std::int64_t, kStrip>())
                    : take_rows(width);
    for (std::int64_t c = 0; c < width; ++c) {
      A& to = accumulators[first + c];
      const T* column = x + first + c;
      if (sums[c] == sums[c]) {
        to = Op::combine(to, static_cast<A>(found[c]));
        continue;
      }
      for (std::int64_t r = 0; r < rows; ++r) to = Op::take(to, column[r * row_elements], 0);
    }
  }
}

// Four rows at a time, so that accumulators are loaded and stored once for four.
template <class Op, typename T>
void columns(void* accumulators, const void* block, std::int64_t count, const double* shifts,
             std::int64_t rows, std::int64_t row_elements) {
  using A = typename AccumulatorOf<T>::type;
  A* a = static_cast<A*>(accumulators);
  const T* x = static_cast<const T*>(block);
  std::int64_t r = 0;
  if constexpr (kIsExtreme<Op> && sizeof(T) == 4)
    if (rows > 1) return extreme_columns<Op>(a, x, count, rows, row_elements);
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
  return {&row<Op, T>, &columns<Op, T>, &combine<Op, A>, &start<Op, A>};
}

template <class Op, bool kOrdered>
cpu::ReduceBlocks of(DType input) {
  switch (input) {
    case DType::kF32:
      return of_type<Op, float>();
    case DType::kF64:
      return of_type<Op, double>();
    case DType::kI64:
      return of_type<Op, std::int64_t>();
    case DType::kI32:
      return of_type<Op, std::int32_t>();
    default:
      break;
  }
  if constexpr (!kOrdered)
    if (input == DType::kC128) return of_type<Op, Complex128>();
  return {};
}

}  // namespace

cpu::ReduceBlocks reduce_blocks(Gather gather, DType input) {
  switch (gather) {
    case Gather::kSum:
      return of<Sum, false>(input);
    case Gather::kProduct:
      return of<Product, false>(input);
    case Gather::kLargest:
      return of<Largest, true>(input);
    case Gather::kSmallest:
      return of<Smallest, true>(input);
    case Gather::kSumOfSquares:
      return of<SumOfSquares, true>(input);
    case Gather::kSumOfExponentials:
      return of<SumOfExponentials, true>(input);
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
