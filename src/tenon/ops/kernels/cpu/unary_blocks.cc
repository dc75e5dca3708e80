// Element-wise functions of one dense block. Simple ones are plain loops that the compiler
// vectorises for each instruction set; transcendental ones have vector forms in unary_simd.cc.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/unary_blocks.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/half_loop-inl.h"
// clang-format on

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tenon/ops/kernels/cpu/blocks.h"
#include "tenon/ops/kernels/cpu/scalar_math.h"
#include "tenon/ops/kernels/cpu/simd_forms.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

template <typename T>
inline constexpr bool kIsComplex = std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>;
template <typename T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T>;
template <typename T>
inline constexpr bool kIsBool = std::is_same_v<T, bool>;
template <typename T>
inline constexpr bool kIsNumber = !kIsBool<T>;

// A function of x of type T and the numbers n, defined where `exists`.
#define TENON_FUNCTION(Name, exists, ...)                      \
  struct Name {                                                \
    template <typename T>                                      \
    static constexpr bool kExists = exists;                    \
    template <typename T>                                      \
    static auto apply(T x, [[maybe_unused]] const double* n) { \
      __VA_ARGS__                                              \
    }                                                          \
  };

// Of integers modulo 2^n: the smallest one stays as it is.
template <typename T>
T negated(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(0 - static_cast<std::uint64_t>(x));
  else
    return -x;
}

TENON_FUNCTION(Neg, kIsNumber<T>, return negated(x);)
TENON_FUNCTION(Abs, true, {
  if constexpr (kIsBool<T> || std::is_unsigned_v<T>)
    return x;
  else if constexpr (std::is_integral_v<T>)
    return x < 0 ? negated(x) : x;
  else
    return std::abs(x);
})
TENON_FUNCTION(Sign, true, {
  if constexpr (kIsComplex<T>)
    return x == T(0) ? T(0) : x / std::abs(x);
  else if constexpr (kIsBool<T>)
    return x;
  else if constexpr (kIsFloat<T>)
    return x != x ? x : static_cast<T>((x > 0) - (x < 0));
  else
    return static_cast<T>((x > 0) - (x < 0));
})
TENON_FUNCTION(Square, kIsNumber<T>, {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(x));
  else
    return x * x;
})
TENON_FUNCTION(Relu, kIsNumber<T> && !kIsComplex<T>, return x < 0 ? T(0) : x;)
TENON_FUNCTION(LogicalNot, kIsBool<T>, return !x;)
TENON_FUNCTION(BitwiseNot, std::is_integral_v<T>, {
  if constexpr (kIsBool<T>)
    return !x;
  else
    return static_cast<T>(~x);
})
TENON_FUNCTION(Clamp, kIsFloat<T>, {
  const T low = static_cast<T>(n[0]);
  const T high = static_cast<T>(n[1]);
  const T raised = x < low ? low : x;
  return raised > high ? high : raised;
})
TENON_FUNCTION(Floor, !kIsComplex<T>, {
  if constexpr (kIsFloat<T>)
    return std::floor(x);
  else
    return x;
})
TENON_FUNCTION(Ceil, !kIsComplex<T>, {
  if constexpr (kIsFloat<T>)
    return std::ceil(x);
  else
    return x;
})
TENON_FUNCTION(Round, !kIsComplex<T>, {
  if constexpr (kIsFloat<T>)
    return std::nearbyint(x);  // halves to even
  else
    return x;
})
TENON_FUNCTION(Trunc, !kIsComplex<T>, {
  if constexpr (kIsFloat<T>)
    return std::trunc(x);
  else
    return x;
})
TENON_FUNCTION(Exp, kIsFloat<T> || kIsComplex<T>, return std::exp(x);)
TENON_FUNCTION(Exp2, kIsFloat<T>, return std::exp2(x);)
TENON_FUNCTION(Expm1, kIsFloat<T>, return std::expm1(x);)
TENON_FUNCTION(Log, kIsFloat<T> || kIsComplex<T>, return std::log(x);)
TENON_FUNCTION(Log2, kIsFloat<T>, return std::log2(x);)
TENON_FUNCTION(Log10, kIsFloat<T> || kIsComplex<T>, return std::log10(x);)
TENON_FUNCTION(Log1p, kIsFloat<T>, return std::log1p(x);)
TENON_FUNCTION(Sqrt, kIsFloat<T> || kIsComplex<T>, return std::sqrt(x);)
TENON_FUNCTION(Rsqrt, kIsFloat<T> || kIsComplex<T>, return T(1) / std::sqrt(x);)
TENON_FUNCTION(Reciprocal, kIsFloat<T> || kIsComplex<T>, return T(1) / x;)
TENON_FUNCTION(Sin, kIsFloat<T> || kIsComplex<T>, return std::sin(x);)
TENON_FUNCTION(Cos, kIsFloat<T> || kIsComplex<T>, return std::cos(x);)
TENON_FUNCTION(Tan, kIsFloat<T> || kIsComplex<T>, return std::tan(x);)
TENON_FUNCTION(Asin, kIsFloat<T> || kIsComplex<T>, return std::asin(x);)
TENON_FUNCTION(Acos, kIsFloat<T> || kIsComplex<T>, return std::acos(x);)
TENON_FUNCTION(Atan, kIsFloat<T> || kIsComplex<T>, return std::atan(x);)
TENON_FUNCTION(Sinh, kIsFloat<T> || kIsComplex<T>, return std::sinh(x);)
TENON_FUNCTION(Cosh, kIsFloat<T> || kIsComplex<T>, return std::cosh(x);)
TENON_FUNCTION(Tanh, kIsFloat<T> || kIsComplex<T>, return std::tanh(x);)
TENON_FUNCTION(Erf, kIsFloat<T>, return std::erf(x);)
TENON_FUNCTION(Erfc, kIsFloat<T>, return std::erfc(x);)
TENON_FUNCTION(Sigmoid, kIsFloat<T>, return scalar::sigmoid(x);)
TENON_FUNCTION(LogSigmoid, kIsFloat<T>, return -scalar::log1p_exp(-x);)
TENON_FUNCTION(Silu, kIsFloat<T>, return x * scalar::sigmoid(x);)
TENON_FUNCTION(Mish, kIsFloat<T>, return x * std::tanh(scalar::log1p_exp(x));)
TENON_FUNCTION(Gelu, kIsFloat<T>, return scalar::gelu(x);)
TENON_FUNCTION(GeluTanh, kIsFloat<T>, return scalar::gelu_tanh(x);)
TENON_FUNCTION(LeakyRelu, kIsFloat<T>, {
  const T below = x * static_cast<T>(n[0]);
  return x > 0 ? x : below;
})
TENON_FUNCTION(Elu, kIsFloat<T>, return x > 0 ? x : static_cast<T>(n[0]) * std::expm1(x);)
TENON_FUNCTION(Softplus, kIsFloat<T>, {
  const T beta = static_cast<T>(n[0]);
  return x * beta > static_cast<T>(n[1]) ? x : scalar::log1p_exp(x * beta) / beta;
})
TENON_FUNCTION(Hardtanh, kIsFloat<T>, {
  const T low = static_cast<T>(n[0]);
  const T high = static_cast<T>(n[1]);
  const T raised = x < low ? low : x;
  return raised > high ? high : raised;
})
TENON_FUNCTION(Hardsigmoid, kIsFloat<T>, {
  const T y = x / 6 + T(0.5);
  return y < 0 ? T(0) : y > 1 ? T(1) : y;
})
TENON_FUNCTION(Hardswish, kIsFloat<T>, {
  const T y = x * T(1.0 / 6) + T(0.5);
  return x * (y < 0 ? T(0) : y > 1 ? T(1) : y);
})
TENON_FUNCTION(IsNan, true, return x != x;)
TENON_FUNCTION(IsInf, true, {
  if constexpr (kIsComplex<T>)
    return std::isinf(x.real()) || std::isinf(x.imag());
  else if constexpr (kIsFloat<T>)
    return std::isinf(x);
  else
    return false;
})
TENON_FUNCTION(IsFinite, true, {
  if constexpr (kIsComplex<T>)
    return std::isfinite(x.real()) && std::isfinite(x.imag());
  else if constexpr (kIsFloat<T>)
    return std::isfinite(x);
  else
    return true;
})
#undef TENON_FUNCTION

template <typename F, typename T>
void run_block(void* out, const void* const* in, std::int64_t count, const double* numbers) {
  using Out = decltype(F::apply(T(), numbers));
  auto* result = static_cast<Out*>(out);
  const auto* a = static_cast<const T*>(in[0]);
  // Copies: what is written to a byte might be one of the originals.
  const double n[2] = {numbers == nullptr ? 0 : numbers[0], numbers == nullptr ? 0 : numbers[1]};
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) result[i] = F::apply(a[i], n);
}

// -x and |x| of 16-bit floats change the sign's bit alone.
template <bool kClear>
void change_sign(void* out, const void* const* in, std::int64_t count, const double*) {
  auto* result = static_cast<std::uint16_t*>(out);
  const auto* bits = static_cast<const std::uint16_t*>(in[0]);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i)
    result[i] = static_cast<std::uint16_t>(kClear ? bits[i] & 0x7fff : bits[i] ^ 0x8000);
}

// Of 16-bit floats what costs so little that a pass for each conversion would show.
template <typename F>
inline constexpr bool kIsCheap =
    std::is_same_v<F, Square> || std::is_same_v<F, Relu> || std::is_same_v<F, Clamp> ||
    std::is_same_v<F, Floor> || std::is_same_v<F, Ceil> || std::is_same_v<F, Round> ||
    std::is_same_v<F, Trunc> || std::is_same_v<F, Sqrt> || std::is_same_v<F, Rsqrt> ||
    std::is_same_v<F, Reciprocal> || std::is_same_v<F, LeakyRelu> ||
    std::is_same_v<F, Hardsigmoid> || std::is_same_v<F, Hardswish>;

template <typename F, typename T>
void run_half(void* out, const void* const* in, std::int64_t count, const double* numbers) {
  const double n[2] = {numbers == nullptr ? 0 : numbers[0], numbers == nullptr ? 0 : numbers[1]};
  each_half<T, 1>(static_cast<T*>(out), in, count,
                  [&](const auto& x, std::size_t i) { return F::apply(x[0][i], n); });
}
template <typename F, typename T>
constexpr BlockFunction half_function() {
  if constexpr (std::is_same_v<F, Neg>)
    return &change_sign<false>;
  else if constexpr (std::is_same_v<F, Abs>)
    return &change_sign<true>;
  else if constexpr (std::is_same_v<F, Hardtanh>)
    return half_function<Clamp, T>();
  else if constexpr (kHasHalfLoops && kIsCheap<F>)
    return &run_half<F, T>;
  else
    return nullptr;
}

// A bound beyond the integers of a type is the nearest of them.
template <typename T>
T bound(double value) {
  using Limits = std::numeric_limits<T>;
  if (!(value > static_cast<double>(Limits::min()))) return Limits::min();
  return value >= static_cast<double>(Limits::max()) ? Limits::max() : static_cast<T>(value);
}
template <typename T>
void clamp_integers(void* out, const void* const* in, std::int64_t count, const double* numbers) {
  auto* result = static_cast<T*>(out);
  const auto* a = static_cast<const T*>(in[0]);
  const T low = bound<T>(numbers[0]), high = bound<T>(numbers[1]);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const T raised = a[i] < low ? low : a[i];
    result[i] = raised > high ? high : raised;
  }
}
// As bytes, of which the compiler makes vectors.
void invert_bools(void* out, const void* const* in, std::int64_t count, const double*) {
  auto* result = static_cast<unsigned char*>(out);
  const auto* a = static_cast<const unsigned char*>(in[0]);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) result[i] = a[i] ^ 1U;
}

template <typename F, typename T>
constexpr BlockFunction function_for() {
  constexpr bool is_inverse = std::is_same_v<F, LogicalNot> || std::is_same_v<F, BitwiseNot>;
  if constexpr (is_inverse && kIsBool<T>)
    return &invert_bools;
  else if constexpr (std::is_same_v<F, Clamp> && std::is_integral_v<T> && !kIsBool<T>)
    return &clamp_integers<T>;
  else if constexpr (F::template kExists<T>)
    return &run_block<F, T>;
  else
    return nullptr;
}

template <typename F>
BlockFunction block_for(DType compute) {
  switch (compute) {
#define TENON_CASE(dtype, T) \
  case DType::dtype:         \
    return function_for<F, T>();
    TENON_CASE(kBool, bool)
    TENON_CASE(kU8, std::uint8_t)
    TENON_CASE(kI8, std::int8_t)
    TENON_CASE(kI16, std::int16_t)
    TENON_CASE(kI32, std::int32_t)
    TENON_CASE(kI64, std::int64_t)
    TENON_CASE(kF32, float)
    TENON_CASE(kF64, double)
    TENON_CASE(kC64, Complex64)
    TENON_CASE(kC128, Complex128)
#undef TENON_CASE
    case DType::kF16:
      return half_function<F, Half>();
    case DType::kBF16:
      return half_function<F, BFloat16>();
    default:
      return nullptr;
  }
}

}  // namespace

BlockFunction unary_block(Unary kind, DType compute) {
  switch (kind) {
#define TENON_CASE(Name) \
  case Unary::k##Name:   \
    return block_for<Name>(compute);
    TENON_CASE(Neg)
    TENON_CASE(Abs)
    TENON_CASE(Sign)
    TENON_CASE(Square)
    TENON_CASE(Relu) TENON_CASE(LogicalNot) TENON_CASE(BitwiseNot) TENON_CASE(Clamp)
        TENON_CASE(Floor) TENON_CASE(Ceil) TENON_CASE(Round) TENON_CASE(Trunc) TENON_CASE(Exp)
            TENON_CASE(Exp2) TENON_CASE(Expm1) TENON_CASE(Log) TENON_CASE(Log2) TENON_CASE(Log10)
                TENON_CASE(Log1p) TENON_CASE(Sqrt) TENON_CASE(Rsqrt) TENON_CASE(Reciprocal)
                    TENON_CASE(Sin) TENON_CASE(Cos) TENON_CASE(Tan) TENON_CASE(Asin)
                        TENON_CASE(Acos) TENON_CASE(Atan) TENON_CASE(Sinh) TENON_CASE(Cosh)
                            TENON_CASE(Tanh) TENON_CASE(Erf) TENON_CASE(Erfc) TENON_CASE(Sigmoid)
                                TENON_CASE(LogSigmoid) TENON_CASE(Silu) TENON_CASE(Mish)
                                    TENON_CASE(Gelu) TENON_CASE(GeluTanh) TENON_CASE(LeakyRelu)
                                        TENON_CASE(Elu) TENON_CASE(Softplus) TENON_CASE(Hardtanh)
                                            TENON_CASE(Hardsigmoid) TENON_CASE(Hardswish)
                                                TENON_CASE(IsNan) TENON_CASE(IsInf)
                                                    TENON_CASE(IsFinite)
#undef TENON_CASE
  }
  return nullptr;
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(unary_block);

BlockFunction cpu::unary_block(Unary kind, DType compute) {
  if (const BlockFunction vector_form = unary_simd(kind, compute)) return vector_form;
  return HWY_DYNAMIC_DISPATCH(unary_block)(kind, compute);
}

}  // namespace tenon::ops
#endif
