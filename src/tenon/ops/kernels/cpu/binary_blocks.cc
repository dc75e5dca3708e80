// Element-wise arithmetic of two dense blocks. Plain loops: compiled once for each instruction set,
// they are vectorised by the compiler.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/binary_blocks.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/half_loop-inl.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "tenon/ops/kernels/cpu/blocks.h"
#include "tenon/ops/kernels/cpu/scalar_math.h"
#include "tenon/ops/kernels/cpu/simd_forms.h"
#include "tenon/ops/kernels/cpu/wrap.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

template <typename T>
inline constexpr bool kIsComplex = std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>;
template <typename T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T>;

using cpu::Wrap;

struct Add {
  template <typename T>
  static constexpr bool kExists = true;
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrap<T>>(a) + static_cast<Wrap<T>>(b));
  }
};
struct Sub {
  template <typename T>
  static constexpr bool kExists = true;
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrap<T>>(a) - static_cast<Wrap<T>>(b));
  }
};
struct Mul {
  template <typename T>
  static constexpr bool kExists = true;
  template <typename T>
  static T apply(T a, T b) {
    // 16-bit operands would be promoted to int, whose overflow is undefined.
    if constexpr (std::is_integral_v<T> && sizeof(T) < 4)
      return static_cast<T>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
    else
      return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b));
  }
};
struct Div {
  template <typename T>
  static constexpr bool kExists = kIsFloat<T> || kIsComplex<T>;
  template <typename T>
  static T apply(T a, T b) {
    return a / b;
  }
};
struct Maximum {
  template <typename T>
  static constexpr bool kExists = !kIsComplex<T>;
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>)
      return a > b || a != a ? a : b;  // a NaN on either side is kept
    else
      return a > b ? a : b;
  }
};
struct Minimum {
  template <typename T>
  static constexpr bool kExists = !kIsComplex<T>;
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>)
      return a < b || a != a ? a : b;
    else
      return a < b ? a : b;
  }
};
struct Pow {
  template <typename T>
  static constexpr bool kExists = true;
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T> || kIsComplex<T>) {
      return std::pow(a, b);
    } else {
      // By squaring; a negative exponent leaves 1, -1 or 0.
      if constexpr (std::is_signed_v<T>)
        if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
      std::uint64_t result = 1;
      auto base = static_cast<std::uint64_t>(a);
      for (auto n = static_cast<std::uint64_t>(b); n != 0; n >>= 1, base *= base)
        if (n & 1) result *= base;
      return static_cast<T>(result);
    }
  }
};
struct Atan2 {
  template <typename T>
  static constexpr bool kExists = kIsFloat<T>;
  template <typename T>
  static T apply(T a, T b) {
    return std::atan2(a, b);
  }
};

// a / b towards zero. Integer division by zero gives 0, and the smallest integer by -1 itself: no
// trap. Integers of less than 64 bits are divided as floating-point numbers with more digits, which
// vectors can: a quotient that is no integer lies further from one than rounding moves it.
template <typename T>
T safe_quotient(T a, T b) {
  using Unsigned = std::make_unsigned_t<T>;
  const bool negates = std::is_signed_v<T> && b == static_cast<T>(-1);
  const T divisor = b == 0 || negates ? T(1) : b;
  T quotient;
  if constexpr (sizeof(T) < 8) {
    using Number = std::conditional_t<sizeof(T) == 4, double, float>;
    quotient = static_cast<T>(static_cast<std::int32_t>(static_cast<Number>(a) /
                                                        static_cast<Number>(divisor)));
  } else {
    quotient = a / divisor;
  }
  const T signed_quotient = negates ? static_cast<T>(-static_cast<Unsigned>(quotient)) : quotient;
  return b == 0 ? T(0) : signed_quotient;
}
// The same of integers that f64 has, which vectors can divide.
constexpr std::uint64_t kExact = std::uint64_t{1} << 52;
inline std::int64_t short_quotient(std::int64_t a, std::int64_t b) {
  const double quotient = static_cast<double>(a) / static_cast<double>(b == 0 ? 1 : b);
  return b == 0 ? 0 : static_cast<std::int64_t>(quotient);
}
// What that leaves, modulo 2^bits; 0 for a division by zero.
template <typename T>
T rest_of(T a, T b, T quotient) {
  using Wide = std::uint64_t;
  const T rest = static_cast<T>(static_cast<Wide>(a) - static_cast<Wide>(quotient) *
                                                           static_cast<Wide>(b));
  return b == 0 ? T(0) : rest;
}
// Each of integers is made of the quotient.
struct Fmod {
  template <typename T>
  static constexpr bool kExists = !kIsComplex<T>;
  template <typename T>
  static T of_quotient(T a, T b, T quotient) {
    return rest_of(a, b, quotient);
  }
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>)
      return std::fmod(a, b);
    else
      return of_quotient(a, b, safe_quotient(a, b));
  }
};
struct Remainder {
  template <typename T>
  static constexpr bool kExists = !kIsComplex<T>;
  template <typename T>
  static T of_quotient(T a, T b, T quotient) {
    const T rest = rest_of(a, b, quotient);
    return static_cast<T>(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
  }
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>)
      return scalar::remainder(a, b);
    else
      return of_quotient(a, b, safe_quotient(a, b));
  }
};
struct FloorDivide {
  template <typename T>
  static constexpr bool kExists = !kIsComplex<T>;
  template <typename T>
  static T of_quotient(T a, T b, T quotient) {
    const bool down = rest_of(a, b, quotient) != 0 && (a < 0) != (b < 0);
    return static_cast<T>(down ? quotient - 1 : quotient);
  }
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>)
      return scalar::floor_quotient(a, b);
    else
      return of_quotient(a, b, safe_quotient(a, b));
  }
};
struct BitwiseAnd {
  template <typename T>
  static constexpr bool kExists = std::is_integral_v<T>;
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct BitwiseOr {
  template <typename T>
  static constexpr bool kExists = std::is_integral_v<T>;
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct BitwiseXor {
  template <typename T>
  static constexpr bool kExists = std::is_integral_v<T>;
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

#define TENON_COMPARISON(Name, expression, exists) \
  struct Name {                                    \
    template <typename T>                          \
    static constexpr bool kExists = exists;        \
    template <typename T>                          \
    static bool apply(T a, T b) {                  \
      return expression;                           \
    }                                              \
  };
TENON_COMPARISON(Eq, a == b, true)
TENON_COMPARISON(Ne, a != b, true)
TENON_COMPARISON(Lt, a < b, !kIsComplex<T>)
TENON_COMPARISON(Le, a <= b, !kIsComplex<T>)
TENON_COMPARISON(Gt, a > b, !kIsComplex<T>)
TENON_COMPARISON(Ge, a >= b, !kIsComplex<T>)
#undef TENON_COMPARISON

template <typename Op, typename T>
void run_block(void* out, const void* const* in, std::int64_t count, const double*) {
  using Out = decltype(Op::apply(T(), T()));
  auto* result = static_cast<Out*>(out);
  const auto* a = static_cast<const T*>(in[0]);
  const auto* b = static_cast<const T*>(in[1]);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) result[i] = Op::apply(a[i], b[i]);
}

template <typename Op>
void run_divisions(void* out, const void* const* in, std::int64_t count, const double* numbers) {
  constexpr std::int64_t kSome = 64;
  auto* result = static_cast<std::int64_t*>(out);
  const auto* a = static_cast<const std::int64_t*>(in[0]);
  const auto* b = static_cast<const std::int64_t*>(in[1]);
  for (std::int64_t at = 0; at < count; at += kSome, result += kSome, a += kSome, b += kSome) {
    const std::int64_t some = std::min(kSome, count - at);
    std::uint64_t beyond = 0;  // has a bit above 52 where a number is not within kExact
    for (std::int64_t i = 0; i < some; ++i)
      beyond |= (static_cast<std::uint64_t>(a[i]) + kExact) |
                (static_cast<std::uint64_t>(b[i]) + kExact);
    if (beyond >> 53 != 0) {
      const void* const pair[] = {a, b};
      run_block<Op, std::int64_t>(result, pair, some, numbers);
      continue;
    }
#pragma GCC ivdep
    for (std::int64_t i = 0; i < some; ++i)
      result[i] = Op::of_quotient(a[i], b[i], short_quotient(a[i], b[i]));
  }
}

template <typename Op, typename T, bool kFirst>
void run_single(void* out, const void* const* in, std::int64_t count, const double*) {
  using Out = decltype(Op::apply(T(), T()));
  auto* result = static_cast<Out*>(out);
  const T one = *static_cast<const T*>(in[0]);
  const auto* others = static_cast<const T*>(in[1]);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i)
    result[i] = kFirst ? Op::apply(one, others[i]) : Op::apply(others[i], one);
}

enum class Form { kPairs, kFirstSingle, kSecondSingle };

// Of 16-bit floats. One element for all is f32: a number need not be one of theirs.
template <typename Op, typename T, Form kForm>
void run_half(void* out, const void* const* in, std::int64_t count, const double*) {
  if constexpr (kForm == Form::kPairs)
    return each_half<T, 2>(static_cast<T*>(out), in, count, [](const auto& x, std::size_t i) {
      return Op::apply(x[0][i], x[1][i]);
    });
  const float one = *static_cast<const float*>(in[0]);
  each_half<T, 1>(static_cast<T*>(out), in + 1, count, [=](const auto& x, std::size_t i) {
    return kForm == Form::kFirstSingle ? Op::apply(one, x[0][i]) : Op::apply(x[0][i], one);
  });
}

template <typename Op>
inline constexpr bool kCompares =
    std::is_same_v<Op, Eq> || std::is_same_v<Op, Ne> || std::is_same_v<Op, Lt> ||
    std::is_same_v<Op, Le> || std::is_same_v<Op, Gt> || std::is_same_v<Op, Ge>;
// What costs so little that repeating an element would show.
template <typename Op>
inline constexpr bool kIsCheap =
    std::is_same_v<Op, Add> || std::is_same_v<Op, Sub> || std::is_same_v<Op, Mul> ||
    std::is_same_v<Op, Div> || std::is_same_v<Op, Maximum> || std::is_same_v<Op, Minimum> ||
    kCompares<Op>;

// Of these no other operator gives the same of (b, a).
template <typename Op>
inline constexpr bool kHasOrder = std::is_same_v<Op, Sub> || std::is_same_v<Op, Div> ||
                                  std::is_same_v<Op, Maximum> || std::is_same_v<Op, Minimum>;

template <typename Op>
inline constexpr bool kDivides = std::is_same_v<Op, Fmod> || std::is_same_v<Op, Remainder> ||
                                 std::is_same_v<Op, FloorDivide>;

template <typename Op, typename T>
BlockFunction in_form(Form form) {
  if constexpr (Op::template kExists<T>) {
    if constexpr (kDivides<Op> && std::is_same_v<T, std::int64_t>)
      return form == Form::kPairs ? &run_divisions<Op> : nullptr;
    if (form == Form::kPairs) return &run_block<Op, T>;
    if constexpr (kIsCheap<Op> && !kIsComplex<T>) {
      if (form == Form::kSecondSingle) return &run_single<Op, T, false>;
      if constexpr (kHasOrder<Op>) return &run_single<Op, T, true>;
    }
  }
  return nullptr;
}

template <typename Op, typename T>
BlockFunction half_form(Form form) {
  if constexpr (kHasHalfLoops && kIsCheap<Op> && !kCompares<Op>) {
    if (form == Form::kPairs) return &run_half<Op, T, Form::kPairs>;
    if (form == Form::kSecondSingle) return &run_half<Op, T, Form::kSecondSingle>;
    if constexpr (kHasOrder<Op>) return &run_half<Op, T, Form::kFirstSingle>;
  }
  return nullptr;
}

template <typename Op>
BlockFunction block_for(DType compute, Form form) {
  switch (compute) {
#define TENON_CASE(dtype, T) \
  case DType::dtype:         \
    return in_form<Op, T>(form);
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
      return half_form<Op, Half>(form);
    case DType::kBF16:
      return half_form<Op, BFloat16>(form);
    default:
      return nullptr;
  }
}

// x to a power that is the same for all: what programs take powers of most, without logarithms.
// Each product rounds once, as x * x * x would.
template <int n, typename T>
T power(T x) {
  const T product = n == 1 || n == -1 ? x : n == 3 ? x * x * x : x * x;
  return n > 0 ? product : 1 / product;
}
template <int n, typename T>
void run_power(void* out, const void* const* in, std::int64_t count, const double*) {
  auto* result = static_cast<T*>(out);
  if constexpr (kIsHalf<T>) {
    each_half<T, 1>(result, in, count,
                    [](const auto& x, std::size_t i) { return power<n>(x[0][i]); });
  } else {
    const auto* a = static_cast<const T*>(in[0]);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) result[i] = power<n>(a[i]);
  }
}
template <typename T>
BlockFunction power_for(double exponent) {
  if constexpr (!kIsHalf<T> || kHasHalfLoops) {
    if (exponent == 2) return &run_power<2, T>;
    if (exponent == 3) return &run_power<3, T>;
    if (exponent == 1) return &run_power<1, T>;
    if (exponent == -1) return &run_power<-1, T>;
    if (exponent == -2) return &run_power<-2, T>;
  }
  return nullptr;
}

// What gives the same bits of bytes 0 and 1 as `kind` of truths; nothing where that does not exist.
std::optional<Binary> of_bytes(Binary kind) {
  switch (kind) {
    case Binary::kAdd:
    case Binary::kLogicalOr:
      return Binary::kBitwiseOr;
    case Binary::kMul:
    case Binary::kLogicalAnd:
      return Binary::kBitwiseAnd;
    case Binary::kLogicalXor:
      return Binary::kBitwiseXor;
    case Binary::kSub:
    case Binary::kDiv:
    case Binary::kPow:
    case Binary::kAtan2:
    case Binary::kFmod:
    case Binary::kRemainder:
    case Binary::kFloorDivide:
      return std::nullopt;
    default:
      return kind;
  }
}

// What gives the same bits of (b, a) as `kind` of (a, b). A maximum does not: of 0 and -0.
std::optional<Binary> swapped(Binary kind) {
  switch (kind) {
    case Binary::kAdd:
    case Binary::kMul:
    case Binary::kEq:
    case Binary::kNe:
      return kind;
    case Binary::kLt:
      return Binary::kGt;
    case Binary::kLe:
      return Binary::kGe;
    case Binary::kGt:
      return Binary::kLt;
    case Binary::kGe:
      return Binary::kLe;
    default:
      return std::nullopt;
  }
}

// Whether the bits of the result are the same for signed and unsigned elements.
bool is_signless(Binary kind) {
  return kind == Binary::kAdd || kind == Binary::kSub || kind == Binary::kMul ||
         kind == Binary::kEq || kind == Binary::kNe ||
         (kind >= Binary::kBitwiseAnd && kind <= Binary::kBitwiseXor);
}

BlockFunction in_form(Binary kind, DType compute, Form form) {
  switch (kind) {
    case Binary::kAdd:
      return block_for<Add>(compute, form);
    case Binary::kSub:
      return block_for<Sub>(compute, form);
    case Binary::kMul:
      return block_for<Mul>(compute, form);
    case Binary::kDiv:
      return block_for<Div>(compute, form);
    case Binary::kMaximum:
      return block_for<Maximum>(compute, form);
    case Binary::kMinimum:
      return block_for<Minimum>(compute, form);
    case Binary::kPow:
      return block_for<Pow>(compute, form);
    case Binary::kAtan2:
      return block_for<Atan2>(compute, form);
    case Binary::kFmod:
      return block_for<Fmod>(compute, form);
    case Binary::kRemainder:
      return block_for<Remainder>(compute, form);
    case Binary::kFloorDivide:
      return block_for<FloorDivide>(compute, form);
    case Binary::kBitwiseAnd:
      return block_for<BitwiseAnd>(compute, form);
    case Binary::kBitwiseOr:
      return block_for<BitwiseOr>(compute, form);
    case Binary::kBitwiseXor:
      return block_for<BitwiseXor>(compute, form);
    case Binary::kEq:
      return block_for<Eq>(compute, form);
    case Binary::kNe:
      return block_for<Ne>(compute, form);
    case Binary::kLt:
      return block_for<Lt>(compute, form);
    case Binary::kLe:
      return block_for<Le>(compute, form);
    case Binary::kGt:
      return block_for<Gt>(compute, form);
    case Binary::kGe:
      return block_for<Ge>(compute, form);
    default:
      return nullptr;
  }
}

// The fewest functions that give all forms of all dtypes.
BlockFunction shared_form(Binary kind, DType compute, Form form) {
  if (compute == DType::kBool) {
    const std::optional<Binary> same = of_bytes(kind);
    return same ? shared_form(*same, DType::kU8, form) : nullptr;
  }
  if (compute == DType::kI8 && is_signless(kind)) compute = DType::kU8;
  if (form == Form::kFirstSingle)
    if (const std::optional<Binary> same = swapped(kind))
      return in_form(*same, compute, Form::kSecondSingle);
  return in_form(kind, compute, form);
}

}  // namespace

BlockFunction power_block(double exponent, DType compute) {
  switch (compute) {
    case DType::kF32:
      return power_for<float>(exponent);
    case DType::kF64:
      return power_for<double>(exponent);
    case DType::kF16:
      return power_for<Half>(exponent);
    case DType::kBF16:
      return power_for<BFloat16>(exponent);
    default:
      return nullptr;
  }
}

BlockFunction binary_block(Binary kind, DType compute) {
  return shared_form(kind, compute, Form::kPairs);
}

std::array<BlockFunction, 2> binary_singles(Binary kind, DType compute) {
  return {shared_form(kind, compute, Form::kFirstSingle),
          shared_form(kind, compute, Form::kSecondSingle)};
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(binary_block);
HWY_EXPORT(binary_singles);
HWY_EXPORT(power_block);

std::array<BlockFunction, 2> cpu::binary_singles(Binary kind, DType compute) {
  return HWY_DYNAMIC_DISPATCH(binary_singles)(kind, compute);
}

BlockFunction cpu::power_block(double exponent, DType compute) {
  if (exponent == 0.5)
    return is_floating(compute) ? unary_block(Unary::kSqrt, compute) : nullptr;
  return HWY_DYNAMIC_DISPATCH(power_block)(exponent, compute);
}

BlockFunction cpu::binary_block(Binary kind, DType compute) {
  if (kind >= Binary::kPow && kind <= Binary::kFloorDivide)
    if (const BlockFunction vector_form = binary_simd(kind, compute)) return vector_form;
  return HWY_DYNAMIC_DISPATCH(binary_block)(kind, compute);
}

}  // namespace tenon::ops
#endif
