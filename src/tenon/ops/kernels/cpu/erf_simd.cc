// erf, erfc and gelu of dense blocks of f32 and f64, with Highway.
//
// Coefficients: rational functions fitted by reweighted least squares at 50 digits towards the
// least largest relative error, which each says. Those of quotients are positive: no term cancels
// another.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/erf_simd.cc"
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

#include "tenon/ops/kernels/cpu/scalar_math.h"
#include "tenon/ops/kernels/cpu/simd_forms.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

// erf of f32 as gelu needs it, without exp: x P(x^2) / Q(x^2) up to 4 (2.1e-8), from there on 1.
template <class D, class V>
HWY_INLINE V short_erf(D d, V x) {
  static constexpr float kP[] = {1.1283791F,    0.19143735F,    0.052859258F,
                                 0.003802998F, 0.00028451855F, 2.0260684e-06F};
  static constexpr float kQ[] = {1.0F,          0.50298965F,   0.11451181F,
                                 0.015044763F, 0.0011693765F, 3.7824641e-05F};
  const V one = hn::Set(d, 1.0F);
  const V square = hn::Mul(x, x);
  const V ratio = hn::Div(hn::Mul(x, polynomial(d, square, kP)), polynomial(d, square, kQ));
  const V bounded = hn::Min(hn::Max(ratio, hn::Neg(one)), one);
  return hn::IfThenElse(hn::Lt(square, hn::Set(d, 16.0F)), bounded, hn::CopySign(one, x));
}

// exp(x^2) erfc(x) from 0 to 27 = P / Q: of f32 up to 10 (6.1e-9), of f64 (9.2e-19).
template <class D, class V>
HWY_INLINE V scaled_erfc(D d, V x) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    static constexpr float kP[] = {1.0F, 1.2382622F, 0.73142385F, 0.22912261F, 0.032772131F};
    static constexpr float kQ[] = {1.0F,       2.3666418F,  2.4018841F,
                                   1.3250276F, 0.40613562F, 0.058086392F};
    return hn::Div(polynomial(d, x, kP), polynomial(d, x, kQ));
  } else {
    static constexpr double kP[] = {
        1.0,                 2.340258196162692,    2.7152052812522562,    2.017928289270923,
        1.0539328514673525,  0.4023649330086458,   0.11356318735576448,   0.023426650495675928,
        0.0033932947365565747, 0.00031384365388950776, 1.4248648651771677e-05};
    static constexpr double kQ[] = {
        1.0,                 3.4686373632582046,   5.62914342016191,      5.653351867980181,
        3.9132059959978758,  1.9657143930200995,   0.73365646915515,      0.2042801102684373,
        0.041800793584781296, 0.006027085859077516, 0.0005562733929197407, 2.5255072173026095e-05};
    return hn::Div(polynomial(d, x, kP), polynomial(d, x, kQ));
  }
}

// exp(-x^2 scale), also where rounding x^2 would show: what the square leaves off goes in after it.
// A scale that is a power of two.
template <class D, class V>
HWY_INLINE V exp_of_square(D d, V x, double scale) {
  const V factor = hn::Set(d, static_cast<hn::TFromD<D>>(-scale));
  const V square = hn::Mul(x, x);
  const V rest = hn::Mul(product_rest(d, x, x), factor);
  const V power = short_exp_below(d, hn::Mul(square, factor));
  return hn::MulAdd(power, rest, power);
}

// Where erfc of f32 (f64) is a normal number.
template <typename T>
constexpr T kErfcLimit = sizeof(T) == 4 ? T(9.1) : T(26.5);
// Where it is 0.
template <typename T>
constexpr T kErfcZero = sizeof(T) == 4 ? T(10.1) : T(27.3);

struct Erfc {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    using T = hn::TFromD<D>;
    const V size = hn::Min(hn::Abs(x), hn::Set(d, kErfcZero<T>));
    const V above = hn::Mul(exp_of_square(d, size, 1), scaled_erfc(d, size));
    const V positive = hn::IfThenElseZero(hn::Lt(size, hn::Set(d, kErfcZero<T>)), above);
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Sub(hn::Set(d, T(2)), positive), positive);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    using T = hn::TFromD<D>;
    return hn::Or(hn::Le(x, hn::Set(d, kErfcLimit<T>)), hn::Ge(x, hn::Set(d, kErfcZero<T>)));
  }
  template <typename T>
  static T scalar(T x) {
    return std::erfc(x);
  }
};

struct Erf {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    using T = hn::TFromD<D>;
    const V one = hn::Set(d, T(1));
    if constexpr (sizeof(T) == 4) {
      // x P(x^2) up to 1 (1.2e-9), from there on 1 - exp(P(|x|)) (1.1e-9), which is 1 from 4 on.
      static constexpr float kSmall[] = {1.1283791F,    -0.37612626F,  0.11283585F,
                                         -0.026853811F, 0.0051883249F, -0.00080101681F,
                                         7.8537763e-05F};
      static constexpr float kLarge[] = {-0.00034127955F, -1.1270902F,  -0.63814312F,
                                         -0.10310831F,    0.021838831F, -0.0029478562F,
                                         0.00018639999F};
      const V size = hn::Abs(x);
      const V small = hn::Mul(x, polynomial(d, hn::Mul(x, x), kSmall));
      const V reach = hn::Min(size, hn::Set(d, 4.0F));
      const V large = hn::Sub(one, short_exp(d, polynomial(d, reach, kLarge)));
      return hn::IfThenElse(hn::Lt(size, one), small, hn::CopySign(large, x));
    } else {
      // x + x P(x^2) up to 1 (7.2e-18), from there on 1 - exp(P(|x|)) (6.7e-18), which is 1 from 6
      // on.
      static constexpr double kSmall[] = {
          0.12837916709551256, -0.3761263890318352, 0.1128379167094419,
          -0.026866170643113307, 0.005223977606139822, -0.0008548325930565164,
          0.00012055293619505767, -1.4924713197306457e-05, 1.6447143348361977e-06,
          -1.6206408258810873e-07, 1.3711403439337528e-08, -7.780278435476316e-10};
      static constexpr double kLarge[] = {
          -5.05389797738026e-07, -1.128374065256228, -0.6366437353094635,
          -0.1027031469103162, 0.018989627666876552, 0.0004113883004996262,
          -0.001916738741754602, 0.0007712874837599752, -0.00013545940495818782,
          -2.0061991407094084e-05, 2.2741801985514224e-05, -8.642234145683515e-06,
          2.1297175987771555e-06, -3.722233817949297e-07, 4.6279819468685366e-08,
          -3.921186772808707e-09, 2.0376089513144772e-10, -4.909446917321562e-12};
      const V size = hn::Abs(x);
      const V small = hn::MulAdd(x, polynomial_by_pairs(d, hn::Mul(x, x), kSmall), x);
      const V reach = hn::Min(size, hn::Set(d, 6.0));
      const V large = hn::Sub(one, short_exp(d, polynomial_by_pairs(d, reach, kLarge)));
      return hn::IfThenElse(hn::Lt(size, one), small, hn::CopySign(large, x));
    }
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D, V x) {
    return hn::Eq(x, x);  // false for NaN
  }
  template <typename T>
  static T scalar(T x) {
    return std::erf(x);
  }
};

// x erfc(-x / sqrt(2)) / 2; of f32 x (1 + erf(x / sqrt(2))) / 2, which is right to 1.5e-7 |x| where
// the result is far below |x|.
struct Gelu {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    using T = hn::TFromD<D>;
    const V scaled = hn::Mul(x, hn::Set(d, static_cast<T>(std::numbers::sqrt2 / 2)));
    const V half = hn::Set(d, T(0.5));
    if constexpr (sizeof(T) == 4) {
      const V halved = hn::Mul(half, x);
      return hn::MulAdd(halved, short_erf(d, scaled), halved);
    } else {
      const V size = hn::Abs(scaled);
      const V tail = hn::Mul(half, hn::Mul(exp_of_square(d, x, 0.5), scaled_erfc(d, size)));
      const V one = hn::Set(d, T(1));
      return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail)));
    }
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    using T = hn::TFromD<D>;
    return hn::Le(hn::Abs(x), hn::Set(d, sizeof(T) == 4 ? std::numeric_limits<T>::max() : T(37)));
  }
  template <typename T>
  static T scalar(T x) {
    return scalar::gelu(x);
  }
};

// g (Phi(x) + x phi(x)), Phi the distribution function and phi the density: the density is Phi's
// tail where the tail is far out.
struct GeluSlope {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V g, V x) {
    using T = hn::TFromD<D>;
    const V scaled = hn::Mul(x, hn::Set(d, static_cast<T>(std::numbers::sqrt2 / 2)));
    const V half = hn::Set(d, T(0.5));
    const V density_scale =
        hn::Set(d, static_cast<T>(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2));
    V below, power;
    if constexpr (sizeof(T) == 4) {
      power = short_exp_below(d, hn::Neg(hn::Mul(scaled, scaled)));
      below = hn::MulAdd(half, short_erf(d, scaled), half);
    } else {
      power = exp_of_square(d, x, 0.5);
      const V tail = hn::Mul(half, hn::Mul(power, scaled_erfc(d, hn::Abs(scaled))));
      below = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, T(1)), tail));
    }
    return hn::Mul(g, hn::MulAdd(x, hn::Mul(density_scale, power), below));
  }
  // Where exp(-x^2 / 2) is a normal number.
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V, V x) {
    using T = hn::TFromD<D>;
    return hn::Le(hn::Abs(x), hn::Set(d, sizeof(T) == 4 ? T(13) : T(37)));
  }
  template <typename T>
  static T scalar(T g, T x) {
    const T below = T(0.5) * (1 + std::erf(x * static_cast<T>(std::numbers::sqrt2 / 2)));
    const T power = std::exp(T(-0.5) * x * x);
    return g * (below + x * power *
                            static_cast<T>(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2));
  }
};

template <class Op>
BlockFunction block_for(DType compute) {
  if (compute == DType::kF32) return &run_vectors<Op, float>;
  return compute == DType::kF64 ? &run_vectors<Op, double> : nullptr;
}

}  // namespace

BlockFunction gelu_slope(DType compute) {
  if (compute == DType::kF32) return &run_vector_pairs<GeluSlope, float>;
  return compute == DType::kF64 ? &run_vector_pairs<GeluSlope, double> : nullptr;
}

BlockFunction erf_simd(Unary kind, DType compute) {
  switch (kind) {
    case Unary::kErf:
      return block_for<Erf>(compute);
    case Unary::kErfc:
      return block_for<Erfc>(compute);
    case Unary::kGelu:
      return block_for<Gelu>(compute);
    default:
      return nullptr;
  }
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(erf_simd);
HWY_EXPORT(gelu_slope);

BlockFunction cpu::gelu_slope(DType compute) { return HWY_DYNAMIC_DISPATCH(gelu_slope)(compute); }

BlockFunction cpu::erf_simd(Unary kind, DType compute) {
  return HWY_DYNAMIC_DISPATCH(erf_simd)(kind, compute);
}

}  // namespace tenon::ops
#endif
