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

// log(x) = exponent log(2) + log(m) for m of [sqrt(1/2), sqrt(2)), of f32: log(1 + f) is
// f - f^2 / 2 + f^3 P(f) (Cephes, logf; 5e-9).
template <class V>
struct LogParts {
  V exponent, of_rest;
};
template <class D, class V>
HWY_INLINE LogParts<V> log_parts(D d, V x) {
  static constexpr float kP[] = {3.3333331174E-1F,  -2.4999993993E-1F, 2.0000714765E-1F,
                                 -1.6668057665E-1F, 1.4249322787E-1F,  -1.2420140846E-1F,
                                 1.1676998740E-1F,  -1.1514610310E-1F, 7.0376836292E-2F};
  const hn::RebindToSigned<D> integers;
  const auto bits = hn::BitCast(integers, x);
  const auto exponent = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(integers, 0x3f3504f3)));
  const auto m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent)));
  const V f = hn::Sub(m, hn::Set(d, 1.0F)), square = hn::Mul(f, f);
  const V tail = hn::Mul(hn::Mul(square, f), polynomial(d, f, kP));
  const V of_rest = hn::Add(f, hn::NegMulAdd(square, hn::Set(d, 0.5F), tail));
  return {hn::ConvertTo(d, exponent), of_rest};
}
// By the base of which `unit` is the logarithm of e, and `two` + `two_rest` that of 2.
template <class D, class V>
HWY_INLINE V log_by(D d, V x, float unit, float two, float two_rest) {
  const LogParts<V> parts = log_parts(d, x);
  const V rest = hn::MulAdd(parts.exponent, hn::Set(d, two_rest),
                            hn::Mul(parts.of_rest, hn::Set(d, unit)));
  return hn::MulAdd(parts.exponent, hn::Set(d, two), rest);
}

struct Log {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    if constexpr (sizeof(hn::TFromD<D>) == 4)
      return log_by(d, x, 1, 0.693359375F, -2.12194440e-4F);
    else
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
    if constexpr (sizeof(hn::TFromD<D>) == 4)
      return log_by(d, x, 1.44269504F, 1, 0);
    else
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
    if constexpr (sizeof(hn::TFromD<D>) == 4)
      return log_by(d, x, 0.434294482F, 0.301025391F, 4.60503897e-6F);
    else
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
// The logarithm of what 1 + x is rounded to, and its derivative times what that lost.
struct Log1p {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    const V one = hn::Set(d, hn::TFromD<D>(1)), sum = hn::Add(x, one);
    const V lost = hn::Sub(x, hn::Sub(sum, one));
    return with_zero(d, x, x, hn::Add(Log::apply(d, sum), hn::Div(lost, sum)));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    using T = hn::TFromD<D>;
    return hn::And(hn::Gt(x, hn::Set(d, T(-1))),
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
// tan(x) from sin and cos of what is left of x after the nearest multiple n of pi / 2, at most
// pi / 4 (Cephes, sinf and sin). For odd n it is -cos / sin. The parts of pi / 2 have few enough
// digits that products of all but the last with n are exact.
struct Tan {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    using T = hn::TFromD<D>;
    constexpr bool kShort = sizeof(T) == 4;
    static constexpr float kSin32[] = {-1.6666654611E-1F, 8.3321608736E-3F, -1.9515295891E-4F};
    static constexpr float kCos32[] = {4.166664568298827E-2F, -1.388731625493765E-3F,
                                       2.443315711809948E-5F};
    static constexpr double kSin64[] = {-1.66666666666666307295E-1, 8.33333333332211858878E-3,
                                        -1.98412698295895385996E-4, 2.75573136213857245213E-6,
                                        -2.50507477628578072866E-8, 1.58962301576546568060E-10};
    static constexpr double kCos64[] = {4.16666666666665929218E-2,  -1.38888888888730564116E-3,
                                        2.48015872888517045348E-5,  -2.75573141792967388112E-7,
                                        2.08757008419747316778E-9, -1.13585365213876817300E-11};
    static constexpr T kParts[] = {
        kShort ? T(1.5703125) : T(1.5707963109016418457),
        kShort ? T(4.8351287841796875e-4) : T(1.5893254712295856735e-8),
        kShort ? T(3.13855707645416259765e-7) : T(6.1232339320535942510e-17),
        kShort ? T(6.0771006282767103812e-11) : T(6.3683171635109499e-25)};
    const V shifter = hn::Set(d, kShort ? T(kToInteger) : T(1.5 * 0x1p52));
    const V shifted = hn::MulAdd(x, hn::Set(d, T(2 / std::numbers::pi)), shifter);
    const V n = hn::Sub(shifted, shifter);
    V rest = x;
    for (const T part : kParts) rest = hn::NegMulAdd(n, hn::Set(d, part), rest);
    const V square = hn::Mul(rest, rest);
    V sine, cosine;
    if constexpr (kShort)
      sine = polynomial(d, square, kSin32), cosine = polynomial(d, square, kCos32);
    else
      sine = polynomial(d, square, kSin64), cosine = polynomial(d, square, kCos64);
    sine = hn::MulAdd(hn::Mul(square, rest), sine, rest);
    cosine = hn::MulAdd(hn::Mul(square, square), cosine,
                        hn::NegMulAdd(square, hn::Set(d, T(0.5)), hn::Set(d, T(1))));
    const hn::RebindToUnsigned<D> bits;
    const auto odd = hn::ShiftLeft<8 * sizeof(T) - 1>(hn::BitCast(bits, shifted));
    const auto is_odd = hn::MaskFromVec(
        hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(hn::RebindToSigned<D>(), odd))));
    const V over = hn::IfThenElse(is_odd, cosine, sine);
    const V under = hn::IfThenElse(is_odd, sine, cosine);
    return with_zero(d, x, x, hn::Div(hn::Xor(over, hn::BitCast(d, odd)), under));
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

#if HWY_TARGET == HWY_AVX3
HWY_INLINE auto rough_rsqrt(hn::Vec512<float> x) {
  return hn::Vec512<float>{_mm512_rsqrt14_ps(x.raw)};
}
HWY_INLINE auto rough_rsqrt(hn::Vec512<double> x) {
  return hn::Vec512<double>{_mm512_rsqrt14_pd(x.raw)};
}
#endif

// Newton's steps from 14 bits, and a last one by the exact remainder, take less time than the
// instruction and round as it does (Markstein, IBM J. Res. Dev. 34, 1990). Not near the ends of the
// exponents, where a remainder is subnormal.
struct Sqrt {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
#if HWY_TARGET == HWY_AVX3
    using T = hn::TFromD<D>;
    constexpr T kSmallest = sizeof(T) == 4 ? T(0x1p-90) : T(0x1p-900);
    const V half_of_one = hn::Set(d, T(0.5));
    const auto is_usual =
        hn::And(hn::Ge(x, hn::Set(d, kSmallest)), hn::Le(x, hn::Set(d, 1 / kSmallest)));
    if (HWY_UNLIKELY(!hn::AllTrue(d, is_usual))) return hn::Sqrt(x);
    const V rough = rough_rsqrt(x);
    V root = hn::Mul(x, rough), half = hn::Mul(half_of_one, rough);
    for (int step = 0; step < (sizeof(T) == 4 ? 1 : 2); ++step) {
      const V error = hn::NegMulAdd(root, half, half_of_one);
      root = hn::MulAdd(root, error, root);
      half = hn::MulAdd(half, error, half);
    }
    return hn::MulAdd(hn::NegMulAdd(root, root, x), half, root);
#else
    static_cast<void>(d);
    return hn::Sqrt(x);
#endif
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V) {
    return hn::MaskFromVec(hn::BitCast(d, hn::Set(hn::RebindToSigned<D>(), -1)));
  }
  template <typename T>
  static T scalar(T x) {
    return std::sqrt(x);
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
    case Unary::kSqrt:
      return block_for<Sqrt>(compute);
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
