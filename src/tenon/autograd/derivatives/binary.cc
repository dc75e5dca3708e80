#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"

namespace tenon::autograd {
namespace {

using namespace ops;

// Shapes and dtypes of two operands, kept only where they differ: most are alike.
class PairShapes {
 public:
  void save(const Tensor& a, const Tensor& b) {
    if (a.sizes() == b.sizes() && a.dtype() == b.dtype()) return;
    shapes_ = std::make_unique<std::pair<InputShape, InputShape>>();
    shapes_->first.save(a);
    shapes_->second.save(b);
  }
  Tensor match_first(Tensor g) const { return shapes_ ? shapes_->first.match(g) : g; }
  Tensor match_second(Tensor g) const { return shapes_ ? shapes_->second.match(g) : g; }

 private:
  std::unique_ptr<std::pair<InputShape, InputShape>> shapes_;
};

// Note [Complex gradients].
enum class Complex : std::uint8_t { kRefused, kLinear, kHolomorphic };
template <typename F>
inline constexpr Complex kComplex = Complex::kRefused;

// A derivative of two operands: first(g, a, b) and second(g, a, b) before what was broadcast is
// summed. kSavesFirst: for whose gradient a is needed (1: a's, 2: b's, 3: either); kSavesSecond
// likewise for b.
template <typename F, auto& op>
class BinaryNode final : public NodeOf<2> {
 public:
  static constexpr bool kSavesInputs = F::kSavesFirst != 0 || F::kSavesSecond != 0;
  static constexpr bool kTakesComplex = kComplex<F> != Complex::kRefused;
  const char* name() const override { return F::kName; }
  void save(std::uint32_t needs, const Tensor& a, const Tensor& b) {
    const auto keep = [&](SavedTensor& to, const Tensor& t, std::uint32_t of) {
      (needs & of) != 0 ? to.save(t) : to.note(t);
    };
    keep(a_, a, F::kSavesFirst);
    keep(b_, b, F::kSavesSecond);
    needs_ = needs;
    shapes_.save(a, b);
  }
  int ready_recompute() override { return 1 + a_.ready_recompute() + b_.ready_recompute(); }
  Tensor recompute() const override { return op(a_.get(*this), b_.get(*this)); }
  void release_saved() override {
    a_.release();
    b_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor a = saved(a_, F::kSavesFirst), b = saved(b_, F::kSavesSecond);
    if constexpr (kComplex<F> == Complex::kHolomorphic)
      if (is_complex(call.grad().dtype())) [[unlikely]]
        return complex_backward(call, a, b);
    const Tensor& g = call.grad();
    if (call.wants(0)) call.out[0] = shapes_.match_first(F::first(g, a, b));
    if (call.wants(1)) call.out[1] = shapes_.match_second(F::second(g, a, b));
  }
  // Element by element, the derivative is its own transpose.
  Tensor tangent(std::span<const Tensor> tangents, const Tensor& result) override {
    const Tensor a = saved(a_, F::kSavesFirst), b = saved(b_, F::kSavesSecond);
    Tensor sum;
    if (tangents[0].defined()) sum = F::first(wide(tangents[0], result), a, b);
    if (tangents[1].defined()) {
      const Tensor other = F::second(wide(tangents[1], result), a, b);
      sum = sum.defined() ? ops::add(sum, other) : other;
    }
    return sum;
  }

 private:
  // Undefined unless its values are needed here.
  Tensor saved(const SavedTensor& t, std::uint32_t of) const {
    return (needs_ & of) != 0 ? t.get(*this) : Tensor();
  }
  void complex_backward(const BackwardCall& call, const Tensor& a, const Tensor& b) {
    const Tensor g = conjugated(call.grad());
    if (call.wants(0)) call.out[0] = shapes_.match_first(conjugated(F::first(g, a, b)));
    if (call.wants(1)) call.out[1] = shapes_.match_second(conjugated(F::second(g, a, b)));
  }
  static Tensor wide(const Tensor& t, const Tensor& result) {
    return to(t.sizes() == result.sizes() ? t : t.expand(result.sizes()), result.dtype());
  }

  SavedTensor a_, b_;
  std::uint32_t needs_ = 0;
  PairShapes shapes_;
};

#define TENON_FORMULAS(name, saves_first, saves_second, by_first, by_second)  \
  struct name {                                                               \
    static constexpr const char* kName = #name;                               \
    static constexpr std::uint32_t kSavesFirst = saves_first;                 \
    static constexpr std::uint32_t kSavesSecond = saves_second;               \
    static Tensor first(const Tensor& g, const Tensor& a, const Tensor& b) {  \
      static_cast<void>(a), static_cast<void>(b);                             \
      return by_first;                                                        \
    }                                                                         \
    static Tensor second(const Tensor& g, const Tensor& a, const Tensor& b) { \
      static_cast<void>(a), static_cast<void>(b);                             \
      return by_second;                                                       \
    }                                                                         \
  };

// The gradient of the larger one goes to it, to equal ones by halves.
Tensor of_larger(const Tensor& g, const Tensor& larger, const Tensor& smaller) {
  return masked_fill(where(eq(larger, smaller), g * 0.5, g), lt(larger, smaller), 0);
}

// t / (a^2 + b^2), and t where that is zero: of (0, 0), which has no angle, the gradient is zero.
Tensor over_length(const Tensor& t, const Tensor& a, const Tensor& b) {
  const Tensor length = square(a) + square(b);
  return ops::div(t, masked_fill(length, eq(length, 0), 1));
}

TENON_FORMULAS(add, 0, 0, g, g)
TENON_FORMULAS(sub, 0, 0, g, neg(g))
TENON_FORMULAS(mul, 2, 1, ops::mul(g, b), ops::mul(g, a))
TENON_FORMULAS(div, 2, 3, ops::div(g, b), neg(ops::div(ops::mul(g, ops::div(a, b)), b)))
TENON_FORMULAS(maximum, 3, 3, of_larger(g, a, b), of_larger(g, b, a))
TENON_FORMULAS(minimum, 3, 3, of_larger(g, neg(a), neg(b)), of_larger(g, neg(b), neg(a)))
TENON_FORMULAS(atan2, 3, 3, ops::mul(g, over_length(b, a, b)),
               ops::mul(g, neg(over_length(a, a, b))))
TENON_FORMULAS(fmod, 2, 2, g, neg(ops::mul(g, trunc(ops::div(a, b)))))
TENON_FORMULAS(remainder, 2, 2, g, neg(ops::mul(g, floor(ops::div(a, b)))))
TENON_FORMULAS(nothing, 0, 0, zeros_like(g), zeros_like(g))
#undef TENON_FORMULAS

// b a^(b - 1), and a^b log a; zero where the exponent is, and where the base is zero and the power
// is, so that 0 * infinity gives no NaN.
struct pow {
  static constexpr const char* kName = "pow";
  static constexpr std::uint32_t kSavesFirst = 3;
  static constexpr std::uint32_t kSavesSecond = 3;
  static Tensor first(const Tensor& g, const Tensor& a, const Tensor& b) {
    // One exponent for all is looked at here.
    const bool is_number = b.dim() == 0 && b.device() == Device{} && !is_complex(b.dtype());
    if (is_number && b.item<double>() == 0) return zeros_like(g);
    const Tensor slope = ops::mul(g, ops::mul(b, ops::pow(a, b - 1)));
    if (is_number) return slope;
    return where(eq(b, 0), zeros({}, slope.dtype(), slope.device()), slope);
  }
  static Tensor second(const Tensor& g, const Tensor& a, const Tensor& b) {
    const Tensor flat = logical_and(eq(a, 0), ge(real(b), 0));
    const Tensor safe = where(flat, ones({}, a.dtype(), a.device()), a);
    const Tensor slope = ops::mul(g, ops::mul(ops::pow(a, b), log(safe)));
    return where(flat, zeros({}, slope.dtype(), slope.device()), slope);
  }
};

template <>
inline constexpr Complex kComplex<add> = Complex::kLinear;
template <>
inline constexpr Complex kComplex<sub> = Complex::kLinear;
template <>
inline constexpr Complex kComplex<mul> = Complex::kHolomorphic;
template <>
inline constexpr Complex kComplex<div> = Complex::kHolomorphic;
template <>
inline constexpr Complex kComplex<pow> = Complex::kHolomorphic;

}  // namespace

void install_binary() {
#define TENON_SET(name, formula)                                       \
  set_derivative<ops::op::name, BinaryNode<formula, ops::op::name>>(); \
  set_into_derivative<ops::op::name##_into, BinaryNode<formula, ops::op::name>>();
  TENON_SET(add, add)
  TENON_SET(sub, sub)
  TENON_SET(mul, mul)
  TENON_SET(div, div)
  TENON_SET(maximum, maximum)
  TENON_SET(minimum, minimum)
  TENON_SET(pow, pow)
  TENON_SET(atan2, atan2)
  TENON_SET(fmod, fmod)
  TENON_SET(remainder, remainder)
#undef TENON_SET
  // Steps: writing them over a tensor ends its history.
#define TENON_SET(name) \
  set_into_derivative<ops::op::name##_into, BinaryNode<nothing, ops::op::name>>();
  TENON_SET(floor_divide)
  TENON_SET(eq)
  TENON_SET(ne)
  TENON_SET(lt)
  TENON_SET(le)
  TENON_SET(gt)
  TENON_SET(ge)
  TENON_SET(logical_and)
  TENON_SET(logical_or)
  TENON_SET(logical_xor)
#undef TENON_SET
}

}  // namespace tenon::autograd
