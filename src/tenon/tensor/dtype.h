// The element types. Thread-safe: pure functions of values. O(1), except parse_dtype (O(names)).
#pragma once

#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tenon/tensor/float8.h"
#include "tenon/tensor/half.h"

namespace tenon {

// The element types.
enum class DType : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,   // two f32
  kC128,  // two f64
  // --- Stored, copied, cast and compared; operators refuse them: is_storage_only().
  kU16,
  kU32,
  kU64,
  kF8E4M3,  // float8_e4m3fn
  kF8E5M2,
  kQI8,  // int8 with a scale and a zero point: quantized.h
};
inline constexpr int kDTypeCount = 18;
inline constexpr DType kLastComputedDType = DType::kC128;

// Two f32; two f64.
using Complex64 = std::complex<float>;
using Complex128 = std::complex<double>;

// Bytes of an element.
constexpr std::size_t item_size(DType dtype) {
  constexpr std::uint8_t kBytes[kDTypeCount] = {1, 1, 1, 2, 4, 8, 2, 2, 4,
                                                8, 8, 16, 2, 4, 8, 1, 1, 1};
  return kBytes[static_cast<std::size_t>(dtype)];
}

// log2 of the item size.
constexpr int item_shift(DType dtype) { return std::countr_zero(item_size(dtype)); }

// Operators compute nothing with it: no kernel has loops for it but those that copy and cast.
constexpr bool is_storage_only(DType dtype) { return dtype > kLastComputedDType; }
// Two real numbers.
constexpr bool is_complex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }
// One of the two.
constexpr bool is_float8(DType dtype) {
  return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
}
// Real floating point.
constexpr bool is_floating(DType dtype) {
  return (dtype >= DType::kF16 && dtype <= DType::kF64) || is_float8(dtype);
}
// Unsigned integers wider than a byte.
constexpr bool is_wide_unsigned(DType dtype) {
  return dtype >= DType::kU16 && dtype <= DType::kU64;
}
// Integers, bool not among them.
constexpr bool is_integral(DType dtype) {
  return (dtype >= DType::kU8 && dtype <= DType::kI64) || is_wide_unsigned(dtype);
}
// Has numbers below zero.
constexpr bool is_signed(DType dtype) {
  return dtype != DType::kBool && dtype != DType::kU8 && !is_wide_unsigned(dtype);
}

// "float32", as PyTorch and NumPy say.
std::string_view dtype_name(DType dtype);
// Takes that name and the short ones ("f32", "F32", "half", "long"). Throws InvalidArgument,
// listing the names.
DType parse_dtype(std::string_view name);

// --- The C++ type of each.
template <typename T>
inline constexpr int kDTypeOf = -1;
template <>
inline constexpr int kDTypeOf<bool> = static_cast<int>(DType::kBool);
template <>
inline constexpr int kDTypeOf<std::uint8_t> = static_cast<int>(DType::kU8);
template <>
inline constexpr int kDTypeOf<std::int8_t> = static_cast<int>(DType::kI8);
template <>
inline constexpr int kDTypeOf<std::int16_t> = static_cast<int>(DType::kI16);
template <>
inline constexpr int kDTypeOf<std::int32_t> = static_cast<int>(DType::kI32);
template <>
inline constexpr int kDTypeOf<std::int64_t> = static_cast<int>(DType::kI64);
template <>
inline constexpr int kDTypeOf<Half> = static_cast<int>(DType::kF16);
template <>
inline constexpr int kDTypeOf<BFloat16> = static_cast<int>(DType::kBF16);
template <>
inline constexpr int kDTypeOf<float> = static_cast<int>(DType::kF32);
template <>
inline constexpr int kDTypeOf<double> = static_cast<int>(DType::kF64);
template <>
inline constexpr int kDTypeOf<Complex64> = static_cast<int>(DType::kC64);
template <>
inline constexpr int kDTypeOf<Complex128> = static_cast<int>(DType::kC128);
template <>
inline constexpr int kDTypeOf<std::uint16_t> = static_cast<int>(DType::kU16);
template <>
inline constexpr int kDTypeOf<std::uint32_t> = static_cast<int>(DType::kU32);
template <>
inline constexpr int kDTypeOf<std::uint64_t> = static_cast<int>(DType::kU64);
template <>
inline constexpr int kDTypeOf<Float8E4M3> = static_cast<int>(DType::kF8E4M3);
template <>
inline constexpr int kDTypeOf<Float8E5M2> = static_cast<int>(DType::kF8E5M2);

template <typename T>
concept Element = kDTypeOf<T>
>= 0;

// The dtype of a C++ type.
template <Element T>
constexpr DType dtype_of() {
  return static_cast<DType>(kDTypeOf<T>);
}

// Throws InvalidArgument: what was to be done computes, and `dtype` is for storage.
[[noreturn]] void refuse_storage_only(DType dtype);

// Calls visit's call operator with the C++ type of `dtype`:
//
//     visit_dtype(t.dtype(), [&]<typename T>() { ... });
//
// Throws InvalidArgument for a dtype that is for storage only.
template <typename Visit>
decltype(auto) visit_dtype(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::kBool:
      return visit.template operator()<bool>();
    case DType::kU8:
      return visit.template operator()<std::uint8_t>();
    case DType::kI8:
      return visit.template operator()<std::int8_t>();
    case DType::kI16:
      return visit.template operator()<std::int16_t>();
    case DType::kI32:
      return visit.template operator()<std::int32_t>();
    case DType::kI64:
      return visit.template operator()<std::int64_t>();
    case DType::kF16:
      return visit.template operator()<Half>();
    case DType::kBF16:
      return visit.template operator()<BFloat16>();
    case DType::kF32:
      return visit.template operator()<float>();
    case DType::kF64:
      return visit.template operator()<double>();
    case DType::kC64:
      return visit.template operator()<Complex64>();
    case DType::kC128:
      return visit.template operator()<Complex128>();
    default:
      refuse_storage_only(dtype);
  }
}

// The same for storage-only dtypes, too; not for quantised ones, whose elements mean nothing by
// themselves.
template <typename Visit>
decltype(auto) visit_any_dtype(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::kU16:
      return visit.template operator()<std::uint16_t>();
    case DType::kU32:
      return visit.template operator()<std::uint32_t>();
    case DType::kU64:
      return visit.template operator()<std::uint64_t>();
    case DType::kF8E4M3:
      return visit.template operator()<Float8E4M3>();
    case DType::kF8E5M2:
      return visit.template operator()<Float8E5M2>();
    default:
      return visit_dtype(dtype, std::forward<Visit>(visit));
  }
}

// Floating-point types narrower than float, which C++ knows nothing of.
template <typename T>
inline constexpr bool kIsNarrowFloat = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16> ||
                                       std::is_same_v<T, Float8E4M3> ||
                                       std::is_same_v<T, Float8E5M2>;

// From one element type to another, as PyTorch casts: to bool by comparison with zero, complex to
// real by its real part, floating point to integers towards zero. What no int64 (to uint64: no
// uint64) can hold, NaN too, counts as the smallest int64: the result never depends on undefined
// behaviour.
template <Element To, Element From>
constexpr To convert_element(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, Complex64> || std::is_same_v<From, Complex128>) {
    if constexpr (std::is_same_v<To, Complex64> || std::is_same_v<To, Complex128>)
      return To(static_cast<typename To::value_type>(value.real()),
                static_cast<typename To::value_type>(value.imag()));
    else if constexpr (std::is_same_v<To, bool>)
      return value.real() != 0 || value.imag() != 0;
    else
      return convert_element<To>(value.real());
  } else if constexpr (kIsNarrowFloat<From>) {
    return convert_element<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_same_v<To, Complex64> || std::is_same_v<To, Complex128>) {
    return To(static_cast<typename To::value_type>(value));
  } else if constexpr (kIsNarrowFloat<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From kLimit = static_cast<From>(9223372036854775808.0);
    if constexpr (std::is_same_v<To, std::uint64_t>)
      if (value >= kLimit && value < 2 * kLimit) return static_cast<To>(value);
    // Chosen without a branch, so that loops over elements have vectors.
    const bool fits = static_cast<bool>(static_cast<int>(value >= -kLimit) &
                                        static_cast<int>(value < kLimit));
    return static_cast<To>(static_cast<std::int64_t>(fits ? value : -kLimit));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace tenon
