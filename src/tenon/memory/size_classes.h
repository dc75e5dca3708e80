// Sizes that small requests are rounded up to: so many to the octave.
#pragma once

#include <bit>
#include <cstdint>

namespace tenon {

// Multiples of a unit up to 2^kBits of them, and from there on as many sizes to the octave. With
// eight, rounding up costs less than an eighth.
//
//   class   0    1        7     8     9        15    16
//   bytes  256  512 ... 2048  2304  2560 ... 4096  4608 ...      in units of 256, of 3 bits
template <std::uint64_t kUnitBytes, int kBits>
struct SizeClasses {
  static constexpr int kToOctave = 1 << kBits;

  // Requires: size_bytes > 0.
  static constexpr int of(std::uint64_t size_bytes) {
    const std::uint64_t units = (size_bytes - 1) / kUnitBytes;  // 0-based: n units give n - 1
    const int octave = 63 - kBits - std::countl_zero(units | kToOctave);
    return octave * kToOctave + static_cast<int>(units >> octave);
  }
  static constexpr std::uint64_t bytes(int size_class) {
    const int shift = size_class / kToOctave - 1;
    const auto place = static_cast<std::uint64_t>(size_class % kToOctave + 1);
    return (shift < 0 ? place : (kToOctave + place) << shift) * kUnitBytes;
  }
};

static_assert(SizeClasses<256, 3>::bytes(SizeClasses<256, 3>::of(1)) == 256);
static_assert(SizeClasses<256, 3>::of(2048) == 7 && SizeClasses<256, 3>::bytes(7) == 2048);
static_assert(SizeClasses<256, 3>::of(2049) == 8 && SizeClasses<256, 3>::bytes(8) == 2304);
static_assert(SizeClasses<256, 3>::of(4096) == 15 && SizeClasses<256, 3>::of(4097) == 16);

}  // namespace tenon
