// The sizes that pooled buffers come in.
#pragma once

#include <bit>
#include <cstdint>

#include "tenon/base/align.h"

namespace tenon::arena {

// Multiples of 256 bytes up to 2 KiB, and from there on eight sizes to the octave: rounding up
// costs less than an eighth.
//
//   class   0    1        7     8     9        15    16
//   bytes  256  512 ... 2048  2304  2560 ... 4096  4608 ...
inline constexpr std::uint64_t kClassUnitBytes = 256;
inline constexpr int kClassBits = 3;

// Requires: size_bytes > 0.
constexpr std::uint32_t size_class_of(std::uint64_t size_bytes) {
  const std::uint64_t units = (size_bytes - 1) / kClassUnitBytes;  // 0-based: n units give n - 1
  if (units < (1u << kClassBits)) return static_cast<std::uint32_t>(units);
  const auto shift = static_cast<std::uint32_t>(63 - std::countl_zero(units) - kClassBits);
  return (shift << kClassBits) + static_cast<std::uint32_t>(units >> shift);
}

constexpr std::uint64_t size_class_bytes(std::uint32_t size_class) {
  if (size_class < (1u << kClassBits)) return (size_class + 1) * kClassUnitBytes;
  const std::uint32_t shift = (size_class >> kClassBits) - 1;
  const std::uint64_t mantissa = (size_class & ((1u << kClassBits) - 1)) + (1u << kClassBits);
  return ((mantissa + 1) << shift) * kClassUnitBytes;
}

inline constexpr std::uint32_t kClasses = size_class_of(kMaxRequestBytes) + 1;

static_assert(size_class_bytes(size_class_of(1)) == 256);
static_assert(size_class_bytes(size_class_of(2048)) == 2048 && size_class_of(2048) == 7);
static_assert(size_class_bytes(size_class_of(2049)) == 2304 && size_class_of(2049) == 8);
static_assert(size_class_bytes(size_class_of(4096)) == 4096 && size_class_of(4097) == 16);
static_assert(size_class_bytes(size_class_of(4097)) == 4608);

}  // namespace tenon::arena
