// Alignment arithmetic. Every alignment is a power of two. Thread-safe, O(1), and nothing throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace tenon {

// Whether exactly one bit is set.
constexpr bool is_power_of_two(std::uint64_t value) {
  return value != 0 && (value & (value - 1)) == 0;
}

// Requires: `alignment` is a power of two and value + alignment - 1 does not overflow.
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

// The largest multiple of `alignment` that is not above `value`. Requires: a power of two.
constexpr std::uint64_t align_down(std::uint64_t value, std::uint64_t alignment) {
  return value & ~(alignment - 1);
}

// Whether `value` is a multiple of `alignment`. Requires: a power of two.
constexpr bool is_aligned(std::uint64_t value, std::uint64_t alignment) {
  return (value & (alignment - 1)) == 0;
}

// Rounds up to a multiple of any `unit` > 0, a power of two or not.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// The largest request that any allocator takes. Rounding up within it cannot overflow, so sizes
// are checked once, at the request.
inline constexpr std::uint64_t kMaxRequestBytes = std::uint64_t{1} << 47;

}  // namespace tenon
