// Activation functions of dense blocks of f32 and f64, with Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/activation_simd.cc"
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

struct Sigmoid {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    using T = hn::TFromD<D>;
    const V one = hn::Set(d, T(1));
    return hn::Div(one, hn::Add(one, short_exp(d, hn::Neg(x))));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return hn::Le(hn::Abs(x), hn::Set(d, kShortExpLimit<hn::TFromD<D>>));
  }
  template <typename T>
  static T scalar(T x) {
    return scalar::sigmoid(x);
  }
};
struct Silu {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Mul(x, Sigmoid::apply(d, x));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return Sigmoid::holds(d, x);
  }
  template <typename T>
  static T scalar(T x) {
    return x * scalar::sigmoid(x);
  }
};
struct GeluTanh {
  template <class D, class V>
  static HWY_INLINE V inner(D d, V x) {
    using T = hn::TFromD<D>;
    const V cubic = hn::Mul(hn::Set(d, T(scalar::kGeluCubic)), hn::Mul(x, hn::Mul(x, x)));
    return hn::Mul(hn::Set(d, T(scalar::kGeluScale)), hn::Add(x, cubic));
  }
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    using T = hn::TFromD<D>;
    const V t = short_tanh(d, inner(d, x));
    return hn::Mul(hn::Mul(hn::Set(d, T(0.5)), x), hn::Add(hn::Set(d, T(1)), t));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return hn::Le(hn::Abs(inner(d, x)), hn::Set(d, kExpLimit<hn::TFromD<D>> / 2));
  }
  template <typename T>
  static T scalar(T x) {
    return scalar::gelu_tanh(x);
  }
};

// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)).
template <class D, class V>
HWY_INLINE V log1p_exp(D d, V x) {
  const V shrunk = short_exp(d, hn::Neg(hn::Abs(x)));
  return hn::Add(hn::Max(x, hn::Zero(d)), hn::Log1p(d, shrunk));
}
struct LogSigmoid {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Neg(log1p_exp(d, hn::Neg(x)));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return Sigmoid::holds(d, x);
  }
  template <typename T>
  static T scalar(T x) {
    return -scalar::log1p_exp(-x);
  }
};
// tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2) for e = exp(x); from 20 on it is 1.
struct Mish {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    using T = hn::TFromD<D>;
    const V two = hn::Set(d, T(2));
    const V e = short_exp(d, hn::Min(x, hn::Set(d, T(20))));
    const V n = hn::Mul(e, hn::Add(e, two));
    return hn::Mul(x, hn::Div(n, hn::Add(n, two)));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return Sigmoid::holds(d, x);
  }
  template <typename T>
  static T scalar(T x) {
    return x * std::tanh(scalar::log1p_exp(x));
  }
};

// Those with numbers.
struct Elu {
  explicit Elu(const double* numbers) : alpha(numbers[0]) {}
  template <class D, class V>
  HWY_INLINE V apply(D d, V x) const {
    using T = hn::TFromD<D>;
    const auto above = hn::Gt(x, hn::Zero(d));
    if (hn::AllTrue(d, above)) return x;
    const V grown = hn::Expm1(d, hn::Min(x, hn::Zero(d)));
    return hn::IfThenElse(above, x, hn::Mul(hn::Set(d, static_cast<T>(alpha)), grown));
  }
  template <class D, class V>
  HWY_INLINE hn::Mask<D> holds(D d, V x) const {
    return hn::Ge(x, hn::Set(d, -kExpLimit<hn::TFromD<D>>));
  }
  template <typename T>
  T scalar(T x) const {
    return x > 0 ? x : static_cast<T>(alpha) * std::expm1(x);
  }
  double alpha;
};
struct Softplus {
  explicit Softplus(const double* numbers) : beta(numbers[0]), threshold(numbers[1]) {}
  template <class D, class V>
  HWY_INLINE V apply(D d, V x) const {
    using T = hn::TFromD<D>;
    const V scale = hn::Set(d, static_cast<T>(beta));
    const V scaled = hn::Mul(x, scale);
    const V smooth = hn::Div(log1p_exp(d, scaled), scale);
    return hn::IfThenElse(hn::Gt(scaled, hn::Set(d, static_cast<T>(threshold))), x, smooth);
  }
  template <class D, class V>
  HWY_INLINE hn::Mask<D> holds(D d, V x) const {
    return Sigmoid::holds(d, hn::Mul(x, hn::Set(d, static_cast<hn::TFromD<D>>(beta))));
  }
  template <typename T>
  T scalar(T x) const {
    const T scaled = x * static_cast<T>(beta);
    return scaled > static_cast<T>(threshold) ? x
                                              : scalar::log1p_exp(scaled) / static_cast<T>(beta);
  }
  double beta, threshold;
};

template <class Op>
BlockFunction block_for(DType compute) {
  if (compute == DType::kF32) return &run_vectors<Op, float>;
  return compute == DType::kF64 ? &run_vectors<Op, double> : nullptr;
}

}  // namespace

BlockFunction activation_simd(Unary kind, DType compute) {
  switch (kind) {
    case Unary::kSigmoid:
      return block_for<Sigmoid>(compute);
    case Unary::kSilu:
      return block_for<Silu>(compute);
    case Unary::kLogSigmoid:
      return block_for<LogSigmoid>(compute);
    case Unary::kMish:
      return block_for<Mish>(compute);
    case Unary::kElu:
      return block_for<Elu>(compute);
    case Unary::kSoftplus:
      return block_for<Softplus>(compute);
    case Unary::kGeluTanh:
      return block_for<GeluTanh>(compute);
    default:
      return nullptr;
  }
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(activation_simd);

BlockFunction cpu::activation_simd(Unary kind, DType compute) {
  return HWY_DYNAMIC_DISPATCH(activation_simd)(kind, compute);
}

}  // namespace tenon::ops
#endif
