#include <cmath>
#include <numbers>

#include "tenon/autograd/derivatives/fused.h"
#include "tenon/autograd/derivatives/install.h"

namespace tenon::autograd {
namespace {

using namespace ops;  // formulas read better

enum class Saves : std::uint8_t { kNothing, kInput, kResult };

constexpr double kLn2 = std::numbers::ln2;
constexpr double kLn10 = std::numbers::ln10;
constexpr double kTwoOverRootPi = 2 * std::numbers::inv_sqrtpi;

// What a derivative needs: formula(gradient, saved, numbers) by recorded operators, and where it
// pays, fused(gradient, saved, number, number) for one element or kBlocks, the function that
// cpu::activation_slope knows, and the same of a device. Numbers are those of the operator.
#define TENON_FORMULA(name, saves, expression)                                             \
  struct name {                                                                            \
    static constexpr const char* kName = #name;                                            \
    static constexpr Saves kSaves = Saves::saves;                                          \
    static Tensor formula(const Tensor& g, const Tensor& v, const UnaryNumbers& numbers) { \
      static_cast<void>(v), static_cast<void>(numbers);                                    \
      return expression;                                                                   \
    }                                                                                      \
  };
#define TENON_FUSED(name, saves, expression, device, element)                              \
  struct name {                                                                            \
    static constexpr const char* kName = #name;                                            \
    static constexpr Saves kSaves = Saves::saves;                                          \
    static constexpr DeviceFunction kOnDevice = DeviceFunction::device;                    \
    static Tensor formula(const Tensor& g, const Tensor& v, const UnaryNumbers& numbers) { \
      static_cast<void>(numbers);                                                          \
      return expression;                                                                   \
    }                                                                                      \
    template <typename T>                                                                  \
    static T fused(T g, T v, T first, T second) {                                          \
      static_cast<void>(first), static_cast<void>(second), static_cast<void>(v);           \
      return element;                                                                      \
    }                                                                                      \
  };
#define TENON_BLOCKS(name, blocks, expression)                                             \
  struct name {                                                                            \
    static constexpr const char* kName = #name;                                            \
    static constexpr Saves kSaves = Saves::kInput;                                         \
    static constexpr Unary kBlocks = Unary::blocks;                                        \
    static constexpr DeviceFunction kOnDevice = DeviceFunction::kNone;                     \
    static Tensor formula(const Tensor& g, const Tensor& v, const UnaryNumbers& numbers) { \
      static_cast<void>(numbers);                                                          \
      return expression;                                                                   \
    }                                                                                      \
  };

// Zero where the condition holds.
Tensor unless(const Tensor& condition, const Tensor& g) { return masked_fill(g, condition, 0); }

// z / |z|, and zero at zero.
Tensor direction(const Tensor& z) {
  const Tensor length = ops::abs(z);
  return z / masked_fill(length, eq(length, 0), 1);
}
Tensor abs_gradient(const Tensor& g, const Tensor& v) {
  return is_complex(v.dtype()) ? real(g) * direction(v) : g * sign(v);
}

TENON_FORMULA(neg, kNothing, ops::neg(g))
TENON_FUSED(abs, kInput, abs_gradient(g, v), kAbsBackward,
            g* static_cast<T>((v > 0) - (v < 0)))
TENON_FORMULA(nothing, kNothing, zeros_like(g))
TENON_FUSED(square, kInput, mul(g, v) * 2, kSquareBackward, g* v * 2)
TENON_FUSED(clamp, kInput, unless(logical_or(lt(v, numbers.first), gt(v, numbers.second)), g),
            kClampBackward, v<first || v> second ? T(0) : g)
TENON_FUSED(exp, kResult, g* v, kMul, g* v)
TENON_FORMULA(exp2, kResult, g* v* kLn2)
TENON_FORMULA(expm1, kResult, g*(v + 1))
TENON_FUSED(log, kInput, g / v, kDiv, g / v)
TENON_FORMULA(log2, kInput, g / (v * kLn2))
TENON_FORMULA(log10, kInput, g / (v * kLn10))
TENON_FORMULA(log1p, kInput, g / (v + 1))
TENON_FUSED(sqrt, kResult, g / (v * 2), kSqrtBackward, g / (v * 2))
TENON_FUSED(rsqrt, kResult, g* v* ops::square(v) * -0.5, kRsqrtBackward, g* v* v* v* T(-0.5))
TENON_FUSED(reciprocal, kResult, ops::neg(g) * ops::square(v), kReciprocalBackward, -g* v* v)
TENON_FORMULA(sin, kInput, g* ops::cos(v))
TENON_FORMULA(cos, kInput, ops::neg(g) * ops::sin(v))
TENON_FORMULA(tan, kResult, g*(ops::square(v) + 1))
TENON_FORMULA(asin, kInput, g* ops::rsqrt(1 - ops::square(v)))
TENON_FORMULA(acos, kInput, ops::neg(g) * ops::rsqrt(1 - ops::square(v)))
TENON_FORMULA(atan, kInput, g / (ops::square(v) + 1))
TENON_FORMULA(sinh, kInput, g* ops::cosh(v))
TENON_FORMULA(cosh, kInput, g* ops::sinh(v))
TENON_FUSED(tanh, kResult, g*(1 - ops::square(v)), kTanhBackward, g*(1 - v * v))
TENON_FORMULA(erf, kInput, g* ops::exp(ops::neg(ops::square(v))) * kTwoOverRootPi)
TENON_FORMULA(erfc, kInput, g* ops::exp(ops::neg(ops::square(v))) * -kTwoOverRootPi)
TENON_FUSED(sigmoid, kResult, g* v*(1 - v), kSigmoidBackward, g* v*(1 - v))
TENON_BLOCKS(log_sigmoid, kLogSigmoid, g* ops::sigmoid(ops::neg(v)))
TENON_FORMULA(hardsigmoid, kInput, unless(logical_or(le(v, -3), ge(v, 3)), g / 6))
TENON_FUSED(leaky_relu, kInput, where(gt(v, 0), g, g* numbers.first), kLeakyReluBackward,
            v > 0 ? g : g * first)
TENON_BLOCKS(elu, kElu, where(gt(v, 0), g, g* ops::exp(minimum(v, 0)) * numbers.first))
TENON_BLOCKS(softplus, kSoftplus,
             where(gt(v* numbers.first, numbers.second), g, g* ops::sigmoid(v* numbers.first)))
TENON_FUSED(hardtanh, kInput, unless(logical_or(le(v, numbers.first), ge(v, numbers.second)), g),
            kHardtanhBackward, v <= first || v >= second ? T(0) : g)
TENON_FUSED(hardswish, kInput, where(lt(v, 3), unless(le(v, -3), g*(v / 3 + 0.5)), g),
            kHardswishBackward, v <= -3 ? T(0)
            : v < 3 ? g * (v / 3 + T(0.5))
                    : g)
#undef TENON_FORMULA
#undef TENON_BLOCKS
#undef TENON_FUSED

struct silu {
  static constexpr const char* kName = "silu";
  static constexpr Saves kSaves = Saves::kInput;
  static constexpr Unary kBlocks = Unary::kSilu;
  static constexpr DeviceFunction kOnDevice = DeviceFunction::kSiluBackward;
  static Tensor formula(const Tensor& g, const Tensor& v, const UnaryNumbers&) {
    const Tensor s = ops::sigmoid(v);
    return g * s * (v * (1 - s) + 1);
  }
};

struct mish {
  static constexpr const char* kName = "mish";
  static constexpr Saves kSaves = Saves::kInput;
  static constexpr Unary kBlocks = Unary::kMish;
  static constexpr DeviceFunction kOnDevice = DeviceFunction::kNone;
  static Tensor formula(const Tensor& g, const Tensor& v, const UnaryNumbers&) {
    const Tensor t = ops::tanh(ops::softplus(v));
    return g * (t + v * ops::sigmoid(v) * (1 - ops::square(t)));
  }
};

// d/dx x Phi(x) = Phi(x) + x phi(x).
struct gelu {
  static constexpr const char* kName = "gelu";
  static constexpr Saves kSaves = Saves::kInput;
  static constexpr Unary kBlocks = Unary::kGelu;
  static constexpr DeviceFunction kOnDevice = DeviceFunction::kGeluBackward;
  static Tensor formula(const Tensor& g, const Tensor& v, const UnaryNumbers&) {
    const Tensor cdf = (ops::erf(v * std::numbers::sqrt2 / 2) + 1) * 0.5;
    const Tensor pdf = ops::exp(ops::square(v) * -0.5) * (kTwoOverRootPi / 2 / std::numbers::sqrt2);
    return g * (cdf + v * pdf);
  }
};

struct gelu_tanh {
  static constexpr const char* kName = "gelu_tanh";
  static constexpr Saves kSaves = Saves::kInput;
  static constexpr Unary kBlocks = Unary::kGeluTanh;
  static constexpr DeviceFunction kOnDevice = DeviceFunction::kGeluTanhBackward;
  static Tensor formula(const Tensor& g, const Tensor& v, const UnaryNumbers&) {
    constexpr double kScale = kTwoOverRootPi / std::numbers::sqrt2;
    constexpr double kCubic = 0.044715;
    const Tensor squared = ops::square(v);
    const Tensor t = ops::tanh(v * (squared * kCubic + 1) * kScale);
    const Tensor inner = (squared * (3 * kCubic) + 1) * kScale;
    return g * ((t + 1) * 0.5 + v * (1 - ops::square(t)) * inner * 0.5);
  }
};

template <typename F>
concept HasFused = requires { F::kOnDevice; };
template <typename F>
concept HasBlocks = requires { F::kBlocks; };

// Note [Complex gradients]. All of them but abs are holomorphic.
template <typename F, typename... Any>
inline constexpr bool kIsOneOf = (std::is_same_v<F, Any> || ...);
template <typename F>
inline constexpr bool kHasComplexGradient =
    kIsOneOf<F, neg, abs, square, exp, log, log10, sqrt, rsqrt, reciprocal, sin, cos, tan, asin,
             acos, atan, sinh, cosh, tanh>;

template <typename F, auto& op>
class UnaryNode final : public NodeOf<1> {
 public:
  static constexpr bool kTakesComplex = kHasComplexGradient<F>;
  const char* name() const override { return F::kName; }
  void save(std::uint32_t, const Tensor& a, const UnaryNumbers& numbers = {}) {
    if constexpr (F::kSaves == Saves::kInput) value_.save(a);
    numbers_ = numbers;
  }
  void save_result(const Tensor& result) requires(F::kSaves == Saves::kResult) {
    value_.save_result(result);
  }
  void release_saved() override { value_.release(); }
  int ready_recompute() override {
    // Others compute for longer than a pass over memory takes.
    constexpr int kPasses = kIsOneOf<F, abs, square, clamp, leaky_relu, hardtanh> ? 1 : 2;
    return F::kSaves == Saves::kInput ? kPasses + value_.ready_recompute() : kNoRecipe;
  }
  Tensor recompute() const override {
    const Tensor value = value_.get(*this);
    if constexpr (std::is_invocable_v<decltype(op), const Tensor&, const UnaryNumbers&>)
      return op(value, numbers_);
    else
      return op(value);
  }
  void backward(const BackwardCall& call) override {
    const Tensor value = F::kSaves == Saves::kNothing ? Tensor() : value_.get(*this);
    const bool is_fused = HasFused<F> && !formulas_recorded() && is_floating(value.dtype());
    // What has a formula of operators with a kernel each does not leave the device.
    if constexpr (HasBlocks<F>) {
      if (is_fused) call.out[0] = device_derivative(F::kOnDevice, call.grad(), value);
      if (call.out[0].defined()) return;
    }
    if constexpr (HasFused<F>) {
      if (is_fused && !(HasBlocks<F> && value.device().type == DeviceType::kVulkan)) {
        const double plain[2] = {numbers_.first, numbers_.second};
        call.out[0] = fused_derivative<F>(call.grad(), value, plain);
        return;
      }
    }
    if (is_holomorphic_call(call.grad()))
      call.out[0] = conjugated(F::formula(conjugated(call.grad()), value, numbers_));
    else
      call.out[0] = F::formula(call.grad(), value, numbers_);
  }
  // Each element depends on its own alone: the derivative of a real one is its own transpose.
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    Tensor in = tangents[0];
    if (is_complex(in.dtype())) return complex_tangent(in);
    Tensor out;
    backward({&in, &out, 1});
    return out;
  }

 private:
  static bool is_holomorphic_call(const Tensor& g) {
    return kTakesComplex && !std::is_same_v<F, abs> && is_complex(g.dtype());
  }
  Tensor complex_tangent(const Tensor& t) const {
    const Tensor value = F::kSaves == Saves::kNothing ? Tensor() : value_.get(*this);
    if constexpr (std::is_same_v<F, abs>) return real(t * conj(direction(value)));
    return F::formula(t, value, numbers_);
  }

  SavedTensor value_;
  UnaryNumbers numbers_;
};

}  // namespace

void install_unary() {
#define TENON_SET(name, formula)                                      \
  set_derivative<ops::op::name, UnaryNode<formula, ops::op::name>>(); \
  set_into_derivative<ops::op::name##_into, UnaryNode<formula, ops::op::name>>();
  TENON_SET(neg, neg)
  TENON_SET(abs, abs)
  TENON_SET(sign, nothing)
  TENON_SET(square, square)
  TENON_SET(floor, nothing)
  TENON_SET(ceil, nothing)
  TENON_SET(round, nothing)
  TENON_SET(trunc, nothing)
  TENON_SET(exp, exp)
  TENON_SET(exp2, exp2)
  TENON_SET(expm1, expm1)
  TENON_SET(log, log)
  TENON_SET(log2, log2)
  TENON_SET(log10, log10)
  TENON_SET(log1p, log1p)
  TENON_SET(sqrt, sqrt)
  TENON_SET(rsqrt, rsqrt)
  TENON_SET(reciprocal, reciprocal)
  TENON_SET(sin, sin)
  TENON_SET(cos, cos)
  TENON_SET(tan, tan)
  TENON_SET(asin, asin)
  TENON_SET(acos, acos)
  TENON_SET(atan, atan)
  TENON_SET(sinh, sinh)
  TENON_SET(cosh, cosh)
  TENON_SET(tanh, tanh)
  TENON_SET(erf, erf)
  TENON_SET(erfc, erfc)
  TENON_SET(sigmoid, sigmoid)
  TENON_SET(log_sigmoid, log_sigmoid)
  TENON_SET(silu, silu)
  TENON_SET(mish, mish)
  TENON_SET(hardsigmoid, hardsigmoid)
  TENON_SET(hardswish, hardswish)
  TENON_SET(gelu_none, gelu)
  TENON_SET(gelu_tanh, gelu_tanh)
#undef TENON_SET
  // Steps: writing them over a tensor ends its history.
#define TENON_SET(name) \
  set_into_derivative<ops::op::name##_into, UnaryNode<nothing, ops::op::name>>();
  TENON_SET(logical_not)
  TENON_SET(isnan)
  TENON_SET(isinf)
  TENON_SET(isfinite)
#undef TENON_SET
  set_derivative<ops::op::leaky_relu, UnaryNode<leaky_relu, ops::op::leaky_relu>>();
  set_derivative<ops::op::elu, UnaryNode<elu, ops::op::elu>>();
  set_derivative<ops::op::softplus, UnaryNode<softplus, ops::op::softplus>>();
  set_derivative<ops::op::hardtanh, UnaryNode<hardtanh, ops::op::hardtanh>>();
  set_derivative<ops::op::clamp, UnaryNode<clamp, ops::op::clamp>>();
}

}  // namespace tenon::autograd
