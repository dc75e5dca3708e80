// The two 8-bit floating-point types of the Open Compute Project, as PyTorch converts them. Values:
// thread-safe while no thread writes them. O(1), and nothing throws.
#pragma once

#include <bit>
#include <cstdint>

#include "tenon/tensor/half.h"

namespace tenon {

namespace detail {

// A float's magnitude rounded to nearest even with kMantissa bits of mantissa and an exponent bias
// of kBias. Subnormal results: adding a float whose unit in the last place is the smallest
// subnormal lets the hardware round. Requires: the result's exponent fits.
template <int kMantissa, int kBias>
constexpr std::uint32_t float8_magnitude(std::uint32_t magnitude) {
  constexpr int kDropped = 23 - kMantissa;
  constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(127 - kBias + 1) << 23;
  constexpr std::uint32_t kRounder = static_cast<std::uint32_t>(127 - kBias + 1 + kDropped) << 23;
  if (magnitude < kSmallestNormal) {
    const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kRounder);
    return std::bit_cast<std::uint32_t>(shifted) - kRounder;
  }
  const std::uint32_t is_odd = magnitude >> kDropped & 1u;
  magnitude -= static_cast<std::uint32_t>(127 - kBias) << 23;
  return (magnitude + (1u << (kDropped - 1)) - 1u + is_odd) >> kDropped;
}

constexpr std::uint8_t e4m3_bits_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x43f00000u) return static_cast<std::uint8_t>(sign | 0x7fu);  // 480
  return static_cast<std::uint8_t>(sign | float8_magnitude<3, 7>(magnitude));
}

constexpr float float_from_e4m3_bits(std::uint8_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
  const std::uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8u) {  // subnormal: mantissa * 2^-9 is exact in float
    const float value = static_cast<float>(magnitude) * 0x1.0p-9f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

constexpr std::uint8_t e5m2_bits_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x47800000u) return static_cast<std::uint8_t>(sign | 0x7cu);  // 65536
  return static_cast<std::uint8_t>(sign | float8_magnitude<2, 15>(magnitude));
}

}  // namespace detail

// 4 exponent bits, 3 of mantissa. No infinities: what rounds beyond 448 is NaN. Arithmetic goes
// through float.
struct Float8E4M3 {
  std::uint8_t bits = 0;

  constexpr Float8E4M3() = default;
  // Rounds to nearest even.
  constexpr Float8E4M3(float value) : bits(detail::e4m3_bits_from_float(value)) {}
  // Exact.
  constexpr operator float() const { return detail::float_from_e4m3_bits(bits); }
  // The number that has these bits.
  static constexpr Float8E4M3 from_bits(std::uint8_t bits) {
    Float8E4M3 value;
    value.bits = bits;
    return value;
  }
};

// 5 exponent bits, 2 of mantissa: the upper half of a Half. What rounds beyond 57344 is infinite.
struct Float8E5M2 {
  std::uint8_t bits = 0;

  constexpr Float8E5M2() = default;
  // Rounds to nearest even.
  constexpr Float8E5M2(float value) : bits(detail::e5m2_bits_from_float(value)) {}
  // Exact.
  constexpr operator float() const {
    return detail::float_from_half_bits(static_cast<std::uint16_t>(bits << 8));
  }
  // The number that has these bits.
  static constexpr Float8E5M2 from_bits(std::uint8_t bits) {
    Float8E5M2 value;
    value.bits = bits;
    return value;
  }
};

}  // namespace tenon
