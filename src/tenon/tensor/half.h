// The two 16-bit floating-point types, as values that convert to and from float. Values:
// thread-safe while no thread writes them. O(1), and nothing throws.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace tenon {

namespace detail {

// IEEE 754 binary16 from binary32, rounding to nearest even; overflow gives infinity. Works on the
// bits: a normal half has 13 mantissa bits fewer and an exponent bias smaller by 112. For subnormal
// results, adding a float whose unit in the last place is 2^-24 lets the hardware round.
constexpr std::uint16_t half_bits_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  magnitude += 0xc8000fffu + ((magnitude >> 13) & 1u);  // the bias, and half a unit to round
  return static_cast<std::uint16_t>(sign | (magnitude >> 13));
}

constexpr float float_from_half_bits(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude < 0x400u) {  // subnormal: mantissa * 2^-24 is exact in float
    const float value = static_cast<float>(magnitude) * 0x1.0p-24f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

constexpr std::uint16_t bfloat_bits_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace detail

// IEEE 754 binary16. Arithmetic goes through float.
struct Half {
  std::uint16_t bits = 0;

  constexpr Half() = default;
  constexpr Half(float value) : bits(detail::half_bits_from_float(value)) {}
  // Exact.
  constexpr operator float() const { return detail::float_from_half_bits(bits); }
  // The number that has these bits.
  static constexpr Half from_bits(std::uint16_t bits) {
    Half half;
    half.bits = bits;
    return half;
  }
};

// The upper half of a float (8 exponent bits, 7 of mantissa), rounded to nearest even.
struct BFloat16 {
  std::uint16_t bits = 0;

  constexpr BFloat16() = default;
  constexpr BFloat16(float value) : bits(detail::bfloat_bits_from_float(value)) {}
  // Exact.
  constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  // The number that has these bits.
  static constexpr BFloat16 from_bits(std::uint16_t bits) {
    BFloat16 value;
    value.bits = bits;
    return value;
  }
};

// Whether T is one of them.
template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

}  // namespace tenon
