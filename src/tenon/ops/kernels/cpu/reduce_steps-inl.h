// What reductions do with one element, and with two results. Included once for each instruction
// set, so without a plain include guard.
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/wide_load-inl.h"
#include "tenon/ops/kernels/cpu/wrap.h"
#include "tenon/tensor/dtype.h"

#if defined(TENON_OPS_REDUCE_STEPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_OPS_REDUCE_STEPS_INL_H
#undef TENON_OPS_REDUCE_STEPS_INL_H
#else
#define TENON_OPS_REDUCE_STEPS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

using cpu::Wrap;

// Each: the accumulator of no elements, how one takes in an element (x, already shifted where that
// applies), and how two become one.
struct Sum {
  template <typename A>
  static A start() {
    return A(0);
  }
  template <typename A, typename T>
  static A take(A a, T x, double) {
    return combine(a, static_cast<A>(x));
  }
  template <typename A>
  static A combine(A a, A b) {
    return static_cast<A>(static_cast<Wrap<A>>(a) + static_cast<Wrap<A>>(b));
  }
};
struct Product {
  template <typename A>
  static A start() {
    return A(1);
  }
  template <typename A, typename T>
  static A take(A a, T x, double) {
    return combine(a, static_cast<A>(x));
  }
  template <typename A>
  static A combine(A a, A b) {
    return static_cast<A>(static_cast<Wrap<A>>(a) * static_cast<Wrap<A>>(b));
  }
};
template <bool kLargest>
struct Extreme {
  template <typename A>
  static A start() {
    using Limits = std::numeric_limits<A>;
    if constexpr (std::is_floating_point_v<A>)
      return kLargest ? -Limits::infinity() : Limits::infinity();
    else
      return kLargest ? Limits::lowest() : Limits::max();
  }
  template <typename A, typename T>
  static A take(A a, T x, double) {
    return combine(a, static_cast<A>(x));
  }
  template <typename A>
  static A of_numbers(A a, A y) {
    return (kLargest ? y > a : y < a) ? y : a;
  }
  template <class V>
  static V of_vectors(V a, V y) {
    if constexpr (kLargest)
      return hwy::HWY_NAMESPACE::Max(a, y);
    else
      return hwy::HWY_NAMESPACE::Min(a, y);
  }
  template <typename A>
  static A combine(A a, A b) {
    return (kLargest ? b > a : b < a) || b != b ? b : a;
  }
};
using Largest = Extreme<true>;
using Smallest = Extreme<false>;
struct SumOfSquares : Sum {
  template <typename A, typename T>
  static A take(A a, T x, double shift) {
    if constexpr (std::is_floating_point_v<A>) {
      const A y = static_cast<A>(x) - static_cast<A>(shift);
      return a + y * y;
    } else {
      return a + static_cast<A>(x) * static_cast<A>(x);
    }
  }
};
struct SumOfExponentials : Sum {
  template <typename A, typename T>
  static A take(A a, T x, double shift) {
    if constexpr (std::is_floating_point_v<A>)
      return a + std::exp(static_cast<A>(x) - static_cast<A>(shift));
    else
      return a;
  }
};

template <typename T>
struct AccumulatorOf {
  using type = T;
};
template <typename T>
  requires std::is_same_v<T, float> || kIsHalf<T>
struct AccumulatorOf<T> {
  using type = double;
};
template <typename T>
  requires std::is_integral_v<T>
struct AccumulatorOf<T> {
  using type = std::int64_t;
};

template <typename T>
constexpr bool kIsComplex = std::is_same_v<T, Complex128>;
template <class Op>
constexpr bool kIsExtreme = std::is_same_v<Op, Largest> || std::is_same_v<Op, Smallest>;

}  // namespace
}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
