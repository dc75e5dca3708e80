// Derivatives of activation functions, times the gradient that comes in: of dense blocks of f32 and
// f64, with Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/activation_slopes.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
#include "tenon/ops/kernels/cpu/elementary-inl.h"
// clang-format on

#include "tenon/ops/kernels/cpu/scalar_math.h"
#include "tenon/ops/kernels/cpu/simd_forms.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

// exp(x); 0 and a large number where that would leave the normal numbers. NaN stays.
template <class D, class V>
HWY_INLINE V bounded_exp(D d, V x) {
  const V limit = hn::Set(d, kShortExpLimit<hn::TFromD<D>>);
  const V near = hn::Max(hn::Min(x, limit), hn::Neg(limit));
  const V e = short_exp(d, near);
  return hn::IfThenElse(hn::Ge(x, hn::Neg(limit)), e, hn::IfThenElseZero(hn::IsNaN(x), x));
}
// 1 / (1 + exp(-x)) in the same way.
template <class D, class V>
HWY_INLINE V bounded_sigmoid(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  return hn::Div(one, hn::Add(one, bounded_exp(d, hn::Neg(x))));
}

// What all have: the numbers of the function, and that they hold everywhere.
struct Slope {
  explicit Slope(const double* numbers)
      : first(numbers == nullptr ? 0 : numbers[0]), second(numbers == nullptr ? 0 : numbers[1]) {}
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V, V) {
    return hn::FirstN(d, hn::Lanes(d));
  }
  template <typename T>
  static T scalar(T g, T) {
    return g;  // is not called
  }
  double first, second;
};

// g s (1 + x (1 - s)), s the sigmoid.
struct SiluSlope : Slope {
  using Slope::Slope;
  template <class D, class V>
  HWY_INLINE V apply(D d, V g, V x) const {
    const V one = hn::Set(d, hn::TFromD<D>(1));
    const V s = bounded_sigmoid(d, x);
    return hn::Mul(hn::Mul(g, s), hn::MulAdd(x, hn::Sub(one, s), one));
  }
};
struct LogSigmoidSlope : Slope {
  using Slope::Slope;
  template <class D, class V>
  HWY_INLINE V apply(D d, V g, V x) const {
    return hn::Mul(g, bounded_sigmoid(d, hn::Neg(x)));
  }
};
struct SoftplusSlope : Slope {
  using Slope::Slope;
  template <class D, class V>
  HWY_INLINE V apply(D d, V g, V x) const {
    using T = hn::TFromD<D>;
    const V scaled = hn::Mul(x, hn::Set(d, static_cast<T>(first)));
    return hn::IfThenElse(hn::Gt(scaled, hn::Set(d, static_cast<T>(second))), g,
                          hn::Mul(g, bounded_sigmoid(d, scaled)));
  }
};
struct EluSlope : Slope {
  using Slope::Slope;
  template <class D, class V>
  HWY_INLINE V apply(D d, V g, V x) const {
    const V grown = hn::Mul(hn::Set(d, static_cast<hn::TFromD<D>>(first)), bounded_exp(d, x));
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), g, hn::Mul(g, grown));
  }
};
// g (t + x s (1 - t^2)) with t as in Mish.
struct MishSlope : Slope {
  using Slope::Slope;
  template <class D, class V>
  HWY_INLINE V apply(D d, V g, V x) const {
    using T = hn::TFromD<D>;
    const V one = hn::Set(d, T(1)), two = hn::Set(d, T(2)), most = hn::Set(d, T(20));
    const V e = bounded_exp(d, hn::IfThenElse(hn::Gt(x, most), most, x));
    const V n = hn::Mul(e, hn::Add(e, two));
    const V t = hn::Div(n, hn::Add(n, two));
    const V rest = hn::Mul(hn::Mul(x, bounded_sigmoid(d, x)), hn::NegMulAdd(t, t, one));
    return hn::Mul(g, hn::Add(t, rest));
  }
};
// With z = k (x + c x^3), t = tanh(z):  0.5 (1 + t) + 0.5 x (1 - t^2) k (1 + 3 c x^2).
struct GeluTanhSlope : Slope {
  using Slope::Slope;
  template <class D, class V>
  HWY_INLINE V apply(D d, V g, V x) const {
    using T = hn::TFromD<D>;
    const V one = hn::Set(d, T(1)), scale = hn::Set(d, T(scalar::kGeluScale));
    const V square = hn::Mul(x, x);
    const V cubic = hn::MulAdd(hn::Set(d, T(scalar::kGeluCubic)), square, one);
    const V z = hn::Mul(scale, hn::Mul(x, cubic));
    // tanh(z) = 1 - 2 / (exp(2 z) + 1).
    const V e = bounded_exp(d, hn::Add(z, z));
    const V t = hn::Sub(one, hn::Div(hn::Set(d, T(2)), hn::Add(e, one)));
    const V inner =
        hn::Mul(scale, hn::MulAdd(hn::Set(d, T(3 * scalar::kGeluCubic)), square, one));
    const V slope = hn::Mul(hn::Mul(x, hn::NegMulAdd(t, t, one)), inner);
    return hn::Mul(g, hn::Mul(hn::Set(d, T(0.5)), hn::Add(hn::Add(one, t), slope)));
  }
};

template <class Op>
BlockFunction block_for(DType compute) {
  if (compute == DType::kF32) return &run_vector_pairs<Op, float>;
  return compute == DType::kF64 ? &run_vector_pairs<Op, double> : nullptr;
}

}  // namespace

BlockFunction activation_slope(Unary kind, DType compute) {
  switch (kind) {
    case Unary::kSilu:
      return block_for<SiluSlope>(compute);
    case Unary::kLogSigmoid:
      return block_for<LogSigmoidSlope>(compute);
    case Unary::kMish:
      return block_for<MishSlope>(compute);
    case Unary::kElu:
      return block_for<EluSlope>(compute);
    case Unary::kSoftplus:
      return block_for<SoftplusSlope>(compute);
    case Unary::kGeluTanh:
      return block_for<GeluTanhSlope>(compute);
    default:
      return nullptr;
  }
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(activation_slope);

BlockFunction cpu::activation_slope(Unary kind, DType compute) {
  if (kind == Unary::kGelu) return gelu_slope(compute);
  return HWY_DYNAMIC_DISPATCH(activation_slope)(kind, compute);
}

}  // namespace tenon::ops
#endif
