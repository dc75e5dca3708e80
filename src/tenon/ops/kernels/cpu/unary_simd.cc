// Transcendental functions of dense blocks of f32 and f64, with Highway.
//
// Each says where its vector form holds; vector_loop-inl.h sees to the rest.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/unary_simd.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
#include "tenon/ops/kernels/cpu/elementary-inl.h"
// clang-format on

#include <cmath>
#include <limits>
#include <numbers>

#include "tenon/ops/kernels/cpu/simd_forms.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

// Of lanes that short_exp is not for. Apart, so that the loop around the usual case stays small.
template <class D, class V>
HWY_NOINLINE V long_exp(D d, V x) {
  return hn::Exp(d, x);
}

// Each: the vector form, where it holds, and the scalar form.
struct Exp {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    const auto is_short = hn::Le(hn::Abs(x), hn::Set(d, kShortExpLimit<hn::TFromD<D>>));
    const V usual = short_exp(d, x);
    if (HWY_LIKELY(hn::AllTrue(d, is_short))) return usual;
    return hn::IfThenElse(is_short, usual, long_exp(d, x));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return hn::Le(x, hn::Set(d, kExpLimit<hn::TFromD<D>>));  // false for NaN
  }
  template <typename T>
  static T scalar(T x) {
    return std::exp(x);
  }
};

// f(x), and exactly `at_zero` where x is 0: Highway's functions lose the sign of -0, and its cosine
// of 0 in f64 is below 1.
template <class D, class V>
HWY_INLINE V with_zero(D d, V x, V at_zero, V of_x) {
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), at_zero, of_x);
}

struct Expm1 {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return with_zero(d, x, x, hn::Expm1(d, x));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return hn::Le(hn::Abs(x), hn::Set(d, kExpLimit<hn::TFromD<D>>));
  }
  template <typename T>
  static T scalar(T x) {
    return std::expm1(x);
  }
};

template <class D, class V>
HWY_INLINE hn::Mask<D> is_positive_finite(D d, V x) {
  using T = hn::TFromD<D>;
  return hn::And(hn::Ge(x, hn::Set(d, std::numeric_limits<T>::min())),
                 hn::Le(x, hn::Set(d, std::numeric_limits<T>::max())));
}

struct Log {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Log(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return is_positive_finite(d, x);
  }
  template <typename T>
  static T scalar(T x) {
    return std::log(x);
  }
};
struct Log2 {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Log2(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return is_positive_finite(d, x);
  }
  template <typename T>
  static T scalar(T x) {
    return std::log2(x);
  }
};
struct Log10 {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Log10(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return is_positive_finite(d, x);
  }
  template <typename T>
  static T scalar(T x) {
    return std::log10(x);
  }
};
struct Log1p {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Log1p(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    using T = hn::TFromD<D>;
    return hn::And(hn::Ge(x, hn::Zero(d)),
                   hn::Le(x, hn::Set(d, std::numeric_limits<T>::max() / 2)));
  }
  template <typename T>
  static T scalar(T x) {
    return std::log1p(x);
  }
};

template <class D, class V>
HWY_INLINE hn::Mask<D> is_small_angle(D d, V x) {
  return hn::Le(hn::Abs(x), hn::Set(d, hn::TFromD<D>(30000)));
}
struct Sin {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return with_zero(d, x, x, hn::Sin(d, x));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return is_small_angle(d, x);
  }
  template <typename T>
  static T scalar(T x) {
    return std::sin(x);
  }
};
struct Cos {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return with_zero(d, x, hn::Set(d, hn::TFromD<D>(1)), hn::Cos(d, x));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return is_small_angle(d, x);
  }
  template <typename T>
  static T scalar(T x) {
    return std::cos(x);
  }
};
struct Tan {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return with_zero(d, x, x, hn::Div(hn::Sin(d, x), hn::Cos(d, x)));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return is_small_angle(d, x);
  }
  template <typename T>
  static T scalar(T x) {
    return std::tan(x);
  }
};
struct Tanh {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return short_tanh(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D, V x) {
    return hn::Eq(x, x);  // false for NaN
  }
  template <typename T>
  static T scalar(T x) {
    return std::tanh(x);
  }
};

// Scaled by 2^n for the nearest integer n: what is left of x is exact. n comes out of the lowest
// bits of x + 1.5 * 2^m, m being the mantissa's length.
struct Exp2 {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    using T = hn::TFromD<D>;
    constexpr int kMantissa = sizeof(T) == 4 ? 23 : 52;
    constexpr int kBias = sizeof(T) == 4 ? 127 : 1023;
    const hn::RebindToUnsigned<D> bits;
    using Bits = hn::TFromD<hn::RebindToUnsigned<D>>;
    const V shifter = hn::Set(d, T(1.5) * static_cast<T>(Bits{1} << kMantissa));
    const V shifted = hn::Add(x, shifter);
    const V rest = hn::Sub(x, hn::Sub(shifted, shifter));
    if constexpr (sizeof(T) == 4) return power_of_two(d, shifted, rest);
    const auto exponent = hn::Add(hn::BitCast(bits, shifted), hn::Set(bits, Bits{kBias}));
    const V power = hn::BitCast(d, hn::ShiftLeft<kMantissa>(exponent));
    const V natural = hn::Mul(rest, hn::Set(d, T(std::numbers::ln2)));
    return hn::Mul(polynomial(d, natural, kShortExp), power);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    using T = hn::TFromD<D>;
    return hn::Le(hn::Abs(x), hn::Set(d, sizeof(T) == 4 ? T(126) : T(1022)));
  }
  template <typename T>
  static T scalar(T x) {
    return std::exp2(x);
  }
};
struct Sinh {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Sinh(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return hn::Le(hn::Abs(x), hn::Set(d, kExpLimit<hn::TFromD<D>>));
  }
  template <typename T>
  static T scalar(T x) {
    return std::sinh(x);
  }
};
struct Cosh {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    using T = hn::TFromD<D>;
    const V grown = short_exp(d, hn::Abs(x));
    return hn::Mul(hn::Set(d, T(0.5)), hn::Add(grown, hn::Div(hn::Set(d, T(1)), grown)));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return Sinh::holds(d, x);
  }
  template <typename T>
  static T scalar(T x) {
    return std::cosh(x);
  }
};

template <class D, class V>
HWY_INLINE hn::Mask<D> is_at_most_one(D d, V x) {
  return hn::Le(hn::Abs(x), hn::Set(d, hn::TFromD<D>(1)));
}
struct Asin {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Asin(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return is_at_most_one(d, x);
  }
  template <typename T>
  static T scalar(T x) {
    return std::asin(x);
  }
};
struct Acos {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Acos(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return is_at_most_one(d, x);
  }
  template <typename T>
  static T scalar(T x) {
    return std::acos(x);
  }
};
struct Atan {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Atan(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return hn::Le(hn::Abs(x), hn::Set(d, std::numeric_limits<hn::TFromD<D>>::max()));
  }
  template <typename T>
  static T scalar(T x) {
    return std::atan(x);
  }
};

template <class Op>
BlockFunction block_for(DType compute) {
  if (compute == DType::kF32) return &run_vectors<Op, float>;
  return compute == DType::kF64 ? &run_vectors<Op, double> : nullptr;
}

}  // namespace

BlockFunction unary_simd(Unary kind, DType compute) {
  switch (kind) {
    case Unary::kExp:
      return block_for<Exp>(compute);
    case Unary::kExpm1:
      return block_for<Expm1>(compute);
    case Unary::kLog:
      return block_for<Log>(compute);
    case Unary::kLog2:
      return block_for<Log2>(compute);
    case Unary::kLog10:
      return block_for<Log10>(compute);
    case Unary::kLog1p:
      return block_for<Log1p>(compute);
    case Unary::kSin:
      return block_for<Sin>(compute);
    case Unary::kCos:
      return block_for<Cos>(compute);
    case Unary::kTan:
      return block_for<Tan>(compute);
    case Unary::kTanh:
      return block_for<Tanh>(compute);
    case Unary::kExp2:
      return block_for<Exp2>(compute);
    case Unary::kSinh:
      return block_for<Sinh>(compute);
    case Unary::kCosh:
      return block_for<Cosh>(compute);
    case Unary::kAsin:
      return block_for<Asin>(compute);
    case Unary::kAcos:
      return block_for<Acos>(compute);
    case Unary::kAtan:
      return block_for<Atan>(compute);
    default:
      return nullptr;
  }
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(unary_simd);

BlockFunction cpu::unary_simd(Unary kind, DType compute) {
  if (const BlockFunction activation = activation_simd(kind, compute)) return activation;
  if (const BlockFunction of_erf = erf_simd(kind, compute)) return of_erf;
  return HWY_DYNAMIC_DISPATCH(unary_simd)(kind, compute);
}

}  // namespace tenon::ops
#endif
