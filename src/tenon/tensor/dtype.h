// The element types.
#pragma once

#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

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
};
inline constexpr int kDTypeCount = 12;

// Two f32; two f64.
using Complex64 = std::complex<float>;
using Complex128 = std::complex<double>;

// Bytes of an element.
constexpr std::size_t item_size(DType dtype) {
  constexpr std::uint8_t kBytes[kDTypeCount] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
  return kBytes[static_cast<std::size_t>(dtype)];
}

// log2 of the item size.
constexpr int item_shift(DType dtype) { return std::countr_zero(item_size(dtype)); }

// Two real numbers.
constexpr bool is_complex(DType dtype) { return dtype >= DType::kC64; }
// Real floating point.
constexpr bool is_floating(DType dtype) { return dtype >= DType::kF16 && dtype <= DType::kF64; }
// Integers, bool not among them.
constexpr bool is_integral(DType dtype) { return dtype >= DType::kU8 && dtype <= DType::kI64; }
constexpr bool is_signed(DType dtype) { return dtype != DType::kBool && dtype != DType::kU8; }

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

template <typename T>
concept Element = kDTypeOf<T>
>= 0;

// The dtype of a C++ type.
template <Element T>
constexpr DType dtype_of() {
  return static_cast<DType>(kDTypeOf<T>);
}

// Calls visit's call operator with the C++ type of `dtype`:
//
//     visit_dtype(t.dtype(), [&]<typename T>() { ... });
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
      break;
  }
  return visit.template operator()<Complex128>();
}

// From one element type to another, as PyTorch casts: to bool by comparison with zero, complex to
// real by its real part, floating point to integers towards zero. What no int64 can hold, NaN
// too, counts as the smallest int64: the result never depends on undefined behaviour.
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
  } else if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>) {
    return convert_element<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_same_v<To, Complex64> || std::is_same_v<To, Complex128>) {
    return To(static_cast<typename To::value_type>(value));
  } else if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From kLimit = static_cast<From>(9223372036854775808.0);
    if (!(value >= -kLimit && value < kLimit)) return static_cast<To>(INT64_MIN);
    return static_cast<To>(static_cast<std::int64_t>(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace tenon
