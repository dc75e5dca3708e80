// Functions of two dense blocks of f32 and f64, with Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/binary_simd.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
#include "tenon/ops/kernels/cpu/power-inl.h"
// clang-format on

#include <cmath>
#include <limits>
#include <numbers>

#include "tenon/ops/kernels/cpu/scalar_math.h"
#include "tenon/ops/kernels/cpu/simd_forms.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

// Both halves of f32 vectors go through `f` as f64: what f rounds there cannot be seen in f32.
template <class D, class V, class F>
HWY_INLINE V in_f64(D d, V x, V y, F&& f) {
#if HWY_TARGET == HWY_SCALAR
  const hn::Rebind<double, D> wide;
  return hn::DemoteTo(d, f(wide, hn::PromoteTo(wide, x), hn::PromoteTo(wide, y)));
#else
  const hn::Half<D> half;
  const hn::Rebind<double, hn::Half<D> > wide;
  const auto low = f(wide, hn::PromoteTo(wide, hn::LowerHalf(half, x)),
                     hn::PromoteTo(wide, hn::LowerHalf(half, y)));
  const auto high = f(wide, hn::PromoteTo(wide, hn::UpperHalf(half, x)),
                      hn::PromoteTo(wide, hn::UpperHalf(half, y)));
  return hn::Combine(d, hn::DemoteTo(half, high), hn::DemoteTo(half, low));
#endif
}

template <class D, class V>
HWY_INLINE hn::Mask<D> is_within(D d, V x, hn::TFromD<D> low, hn::TFromD<D> high) {
  return hn::And(hn::Ge(x, hn::Set(d, low)), hn::Le(x, hn::Set(d, high)));
}
template <class D, class V>
HWY_INLINE hn::Mask<D> has_other_sign(D d, V x, V y) {
  return hn::Lt(hn::CopySignToAbs(hn::Set(d, hn::TFromD<D>(1)), hn::Xor(x, y)), hn::Zero(d));
}

// |x|^y, negated for negative x and odd y. A power of zero or of a subnormal number is left to the
// C library, and what overflows or underflows in f64.
struct Pow {
  template <class D, class V>
  static HWY_INLINE V of_size(D d, V x, V y) {
    if constexpr (sizeof(hn::TFromD<D>) == 4)
      return in_f64(d, x, y,
                    [](auto wide, auto a, auto b) { return short_power(wide, a, b); });
    else
      return power(d, x, y);
  }
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x, V y) {
    using T = hn::TFromD<D>;
    const V size = of_size(d, hn::Abs(x), y);
    const auto is_negative = hn::Lt(x, hn::Zero(d));
    if (HWY_LIKELY(hn::AllFalse(d, is_negative))) return size;
    const V half = hn::Mul(y, hn::Set(d, T(0.5)));
    const auto is_whole = hn::Eq(hn::Trunc(y), y);
    const auto is_even = hn::Eq(hn::Trunc(half), half);
    const V nan = hn::Set(d, std::numeric_limits<T>::quiet_NaN());
    const V of_negative =
        hn::IfThenElse(is_whole, hn::IfThenElse(is_even, size, hn::Neg(size)), nan);
    return hn::IfThenElse(is_negative, of_negative, size);
  }
  // |log2 |x|| is at most the distance of x's exponent from 0, plus one.
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x, V y) {
    using T = hn::TFromD<D>;
    constexpr int kMantissa = sizeof(T) == 4 ? 23 : 52;
    constexpr int kBias = sizeof(T) == 4 ? 127 : 1023;
    using Limits = std::numeric_limits<T>;
    const V size = hn::Abs(x);
    const auto usual = hn::And(hn::Ge(size, hn::Set(d, Limits::min())),
                               hn::Le(size, hn::Set(d, Limits::max())));
    if constexpr (sizeof(T) == 4)  // computed in f64, which has room for all results
      return hn::And(usual, hn::Le(hn::Abs(y), hn::Set(d, Limits::max())));
    const hn::RebindToSigned<D> di;
    using Bits = hn::TFromD<hn::RebindToSigned<D>>;
    const auto biased = hn::ShiftRight<kMantissa>(hn::BitCast(di, size));
    const V reach = hn::Abs(hn::ConvertTo(d, hn::Sub(biased, hn::Set(di, Bits{kBias}))));
    const V exponent = hn::Mul(hn::Abs(y), hn::Add(reach, hn::Set(d, T(1))));
    return hn::And(usual, hn::Le(exponent, hn::Set(d, T(kBias - 2))));
  }
  template <typename T>
  static T scalar(T x, T y) {
    return std::pow(x, y);
  }
};

// The angle in the first octant by the smaller over the larger, turned to where it belongs.
struct Atan2 {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V y, V x) {
    using T = hn::TFromD<D>;
    const V up = hn::Abs(y);
    const V along = hn::Abs(x);
    const auto is_steep = hn::Gt(up, along);
    const V angle = hn::Atan(d, hn::Div(hn::Min(up, along), hn::Max(up, along)));
    const V quarter = hn::Set(d, T(std::numbers::pi / 2));
    const V in_quarter = hn::IfThenElse(is_steep, hn::Sub(quarter, angle), angle);
    const V half = hn::Set(d, T(std::numbers::pi));
    const V turned = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Sub(half, in_quarter), in_quarter);
    return hn::CopySign(turned, y);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V y, V x) {
    using T = hn::TFromD<D>;
    const V larger = hn::Max(hn::Abs(x), hn::Abs(y));
    const auto finite = hn::Le(larger, hn::Set(d, std::numeric_limits<T>::max()));
    const auto known = hn::And(hn::Eq(x, x), hn::Eq(y, y));
    return hn::And(hn::And(finite, known),
                   hn::Ge(larger, hn::Set(d, std::numeric_limits<T>::min())));
  }
  template <typename T>
  static T scalar(T y, T x) {
    return std::atan2(y, x);
  }
};

// The quotient towards zero and what it leaves, of lanes that are a short division.
template <class V>
struct Division {
  V quotient, rest;
};

// Quotients below 2^24 of f32 are exact enough in f64: a / b is an integer there only if b divides
// a. One of f64 may have been rounded up to an integer: then the rest has not a's sign. A rest is
// exact, and a fused operation gives it.
template <class D, class V>
HWY_INLINE Division<V> divided(D d, V a, V b) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const V rest = in_f64(d, a, b, [](auto, auto x, auto y) {
      return hn::NegMulAdd(hn::Trunc(hn::Div(x, y)), y, x);
    });
    const V quotient =
        in_f64(d, a, b, [](auto, auto x, auto y) { return hn::Trunc(hn::Div(x, y)); });
    return {quotient, hn::CopySign(rest, a)};
  } else {
    const V one = hn::Set(d, 1.0), zero = hn::Zero(d);
    const V quotient = hn::Trunc(hn::Div(a, b));
    const V rest = hn::NegMulAdd(quotient, b, a);
    const auto too_large = hn::And(hn::Ne(rest, zero), has_other_sign(d, rest, a));
    return {hn::IfThenElse(too_large, hn::Sub(quotient, hn::CopySign(one, quotient)), quotient),
            hn::CopySign(hn::IfThenElse(too_large, hn::Sub(hn::Abs(b), hn::Abs(rest)), rest), a)};
  }
}
template <class D, class V>
HWY_INLINE hn::Mask<D> is_short_division(D d, V a, V b) {
  using T = hn::TFromD<D>;
  using Limits = std::numeric_limits<T>;
  constexpr T kMost = sizeof(T) == 4 ? T(8388608) : T(2251799813685248);
  return hn::And(is_within(d, hn::Abs(b), Limits::min(), Limits::max()),
                 hn::Lt(hn::Abs(hn::Div(a, b)), hn::Set(d, kMost)));
}
struct Fmod {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    return divided(d, a, b).rest;
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V a, V b) {
    return is_short_division(d, a, b);
  }
  template <typename T>
  static T scalar(T a, T b) {
    return std::fmod(a, b);
  }
};
struct Remainder {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    const V rest = Fmod::apply(d, a, b);
    const auto differ = hn::And(hn::Ne(rest, hn::Zero(d)), has_other_sign(d, rest, b));
    return hn::IfThenElse(differ, hn::Add(rest, b), rest);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V a, V b) {
    return is_short_division(d, a, b);
  }
  template <typename T>
  static T scalar(T a, T b) {
    return scalar::remainder(a, b);
  }
};
struct FloorDivide {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    if constexpr (sizeof(hn::TFromD<D>) == 4) {
      return in_f64(d, a, b, [](auto, auto x, auto y) { return hn::Floor(hn::Div(x, y)); });
    } else {
      const auto division = divided(d, a, b);
      const auto down =
          hn::And(hn::Ne(division.rest, hn::Zero(d)), has_other_sign(d, division.rest, b));
      return hn::IfThenElse(down, hn::Sub(division.quotient, hn::Set(d, 1.0)), division.quotient);
    }
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V a, V b) {
    return is_short_division(d, a, b);
  }
  template <typename T>
  static T scalar(T a, T b) {
    return scalar::floor_quotient(a, b);
  }
};

template <class Op>
BlockFunction f32_block(DType compute) {
  return compute == DType::kF32 ? &run_vector_pairs<Op, float> : nullptr;
}
template <class Op>
BlockFunction division_block(DType compute) {
#if HWY_NATIVE_FMA
  if (compute == DType::kF64) return &run_vector_pairs<Op, double>;
#endif
  return f32_block<Op>(compute);
}

}  // namespace

BlockFunction binary_simd(Binary kind, DType compute) {
  switch (kind) {
    case Binary::kPow:
#if HWY_NATIVE_FMA  // without it the C library is faster
      return compute == DType::kF64 ? &run_vector_pairs<Pow, double> : f32_block<Pow>(compute);
#else
      return nullptr;
#endif
    case Binary::kFmod:
      return division_block<Fmod>(compute);
    case Binary::kRemainder:
      return division_block<Remainder>(compute);
    case Binary::kFloorDivide:
      return division_block<FloorDivide>(compute);
    case Binary::kAtan2:
      return compute == DType::kF64 ? &run_vector_pairs<Atan2, double> : f32_block<Atan2>(compute);
    default:
      return nullptr;
  }
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(binary_simd);

BlockFunction cpu::binary_simd(Binary kind, DType compute) {
  return HWY_DYNAMIC_DISPATCH(binary_simd)(kind, compute);
}

}  // namespace tenon::ops
#endif
