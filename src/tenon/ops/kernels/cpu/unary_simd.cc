// Transcendental functions of dense blocks of f32 and f64, with Highway.
//
// Highway's functions have a range in which they are accurate to a few units in the last place.
// Vectors with a lane outside it (overflow, NaN, negative logarithms) are computed again by the C
// library: every result is right, and the usual ones are fast.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/unary_simd.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

#include <cmath>
#include <limits>
#include <numbers>

#include "tenon/ops/kernels/cpu/scalar_math.h"
#include "tenon/ops/kernels/cpu/unary_simd.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
constexpr T exp_limit() {
  return sizeof(T) == 4 ? T(88.0) : T(706.0);
}

// Each: the vector form, where it holds, and the scalar form.
struct Exp {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Exp(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return hn::Le(x, hn::Set(d, exp_limit<hn::TFromD<D>>()));  // false for NaN
  }
  template <typename T>
  static T scalar(T x) {
    return std::exp(x);
  }
};
struct Expm1 {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Expm1(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return hn::Le(hn::Abs(x), hn::Set(d, exp_limit<hn::TFromD<D>>()));
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
    return hn::Sin(d, x);
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
    return hn::Cos(d, x);
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
struct Tanh {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    return hn::Tanh(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return hn::Le(hn::Abs(x), hn::Set(d, exp_limit<hn::TFromD<D>>() / 2));
  }
  template <typename T>
  static T scalar(T x) {
    return std::tanh(x);
  }
};
struct Sigmoid {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    const V one = hn::Set(d, hn::TFromD<D>(1));
    return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Neg(x))));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return hn::Le(hn::Abs(x), hn::Set(d, exp_limit<hn::TFromD<D>>()));
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
    const V t = hn::Tanh(d, inner(d, x));
    return hn::Mul(hn::Mul(hn::Set(d, T(0.5)), x), hn::Add(hn::Set(d, T(1)), t));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return Tanh::holds(d, inner(d, x));
  }
  template <typename T>
  static T scalar(T x) {
    return scalar::gelu_tanh(x);
  }
};


// Of f32 alone. Below 1 a polynomial in x^2, times x; above it 1 - exp of a polynomial in |x|,
// where from 4 on the difference from 1 cannot be seen. Coefficients: weighted least squares on
// Chebyshev nodes, reweighted towards the least largest relative error (1.2e-9 and 1.1e-9).
struct Erf {
  template <class D, class V>
  static HWY_INLINE V polynomial(D d, V x, const float (&c)[7]) {
    V sum = hn::Set(d, c[6]);
    for (int i = 5; i >= 0; --i) sum = hn::MulAdd(sum, x, hn::Set(d, c[i]));
    return sum;
  }
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    static constexpr float kSmall[7] = {1.1283791F,    -0.37612626F,    0.11283585F, -0.026853811F,
                                        0.0051883249F, -0.00080101681F, 7.8537763e-05F};
    static constexpr float kLarge[7] = {-0.00034127955F, -1.1270902F,    -0.63814312F,
                                        -0.10310831F,    0.021838831F,   -0.0029478562F,
                                        0.00018639999F};
    const V size = hn::Abs(x);
    const V small = hn::Mul(x, polynomial(d, hn::Mul(x, x), kSmall));
    const V reach = hn::Min(size, hn::Set(d, 4.0F));
    const V large = hn::Sub(hn::Set(d, 1.0F), hn::Exp(d, polynomial(d, reach, kLarge)));
    return hn::IfThenElse(hn::Lt(size, hn::Set(d, 1.0F)), small, hn::CopySign(large, x));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D, V x) {
    return hn::Eq(x, x);  // false for NaN
  }
  static float scalar(float x) { return std::erf(x); }
};
struct Gelu {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    const V half = hn::Mul(hn::Set(d, 0.5F), x);
    const V scaled = hn::Mul(x, hn::Set(d, static_cast<float>(std::numbers::sqrt2 / 2)));
    return hn::MulAdd(half, Erf::apply(d, scaled), half);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> holds(D d, V x) {
    return hn::Le(hn::Abs(x), hn::Set(d, std::numeric_limits<float>::max()));
  }
  static float scalar(float x) { return scalar::gelu(x); }
};

// Computes up to one vector: what is missing at the end is filled with ones.
template <class Op, class D>
HWY_INLINE void one_vector(D d, const hn::TFromD<D>* in, hn::TFromD<D>* out, std::size_t lanes) {
  using T = hn::TFromD<D>;
  const std::size_t full = hn::Lanes(d);
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  if (lanes < full) {
    for (std::size_t i = 0; i < full; ++i) buffer[i] = i < lanes ? in[i] : T(1);
    in = buffer;
  }
  const auto x = hn::LoadU(d, in);
  if (HWY_LIKELY(hn::AllTrue(d, Op::holds(d, x)))) {
    if (lanes == full) return hn::StoreU(Op::apply(d, x), d, out);
    hn::Store(Op::apply(d, x), d, buffer);
    for (std::size_t i = 0; i < lanes; ++i) out[i] = buffer[i];
    return;
  }
  // Lane by lane, each by the form that holds for it, so that a lane's result does not depend on
  // its neighbours.
  HWY_ALIGN T vector_form[hn::MaxLanes(d)];
  HWY_ALIGN T values[hn::MaxLanes(d)];
  HWY_ALIGN T held[hn::MaxLanes(d)];
  hn::Store(x, d, values);
  hn::Store(Op::apply(d, x), d, vector_form);
  hn::Store(hn::IfThenElseZero(Op::holds(d, x), hn::Set(d, T(1))), d, held);
  for (std::size_t i = 0; i < lanes; ++i)
    out[i] = held[i] != 0 ? vector_form[i] : Op::scalar(values[i]);
}

template <class Op, typename T>
void run_block(void* out, const void* const* in, std::int64_t count, const double*) {
  const hn::ScalableTag<T> d;
  const auto* a = static_cast<const T*>(in[0]);
  auto* result = static_cast<T*>(out);
  const std::size_t step = hn::Lanes(d);
  const auto n = static_cast<std::size_t>(count);
  std::size_t i = 0;
  for (; i + step <= n; i += step) one_vector<Op>(d, a + i, result + i, step);
  if (i < n) one_vector<Op>(d, a + i, result + i, n - i);
}

template <class Op>
BlockFunction block_for(DType compute) {
  if (compute == DType::kF32) return &run_block<Op, float>;
  return compute == DType::kF64 ? &run_block<Op, double> : nullptr;
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
    case Unary::kTanh:
      return block_for<Tanh>(compute);
    case Unary::kSigmoid:
      return block_for<Sigmoid>(compute);
    case Unary::kSilu:
      return block_for<Silu>(compute);
    case Unary::kGeluTanh:
      return block_for<GeluTanh>(compute);
    case Unary::kErf:
      return compute == DType::kF32 ? &run_block<Erf, float> : nullptr;
    case Unary::kGelu:
      return compute == DType::kF32 ? &run_block<Gelu, float> : nullptr;
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
  return HWY_DYNAMIC_DISPATCH(unary_simd)(kind, compute);
}

}  // namespace tenon::ops
#endif
