// The sizes that small blocks are rounded up to: eight to the octave.
#pragma once

#include <bit>
#include <cstdint>

namespace tenon::host {

inline constexpr std::uint64_t kSmallestClass = 64;          // and the alignment of all classes
inline constexpr std::uint64_t kLargestClass = 64 * 1024;    // larger requests are no small blocks
inline constexpr int kClasses = 64;

// Rounding wastes at most 1/9 of a block above 512 bytes.
//   class     0 ...   7    8 ...   15     16 ...   23  ...       63
//   bytes    64 ... 512  576 ... 1024   1152 ... 2048  ...   65,536
// Requires: 0 < size_bytes <= kLargestClass.
constexpr int size_class_of(std::uint64_t size_bytes) {
  const std::uint64_t units = (size_bytes - 1) / kSmallestClass;  // 0 ... 1023
  const int octave = 60 - std::countl_zero(units | 8);
  return octave * 8 + static_cast<int>(units >> octave);
}

constexpr std::uint64_t size_class_bytes(int size_class) {
  if (size_class < 8) return (static_cast<std::uint64_t>(size_class) + 1) * kSmallestClass;
  const int shift = size_class / 8 - 1;
  return (static_cast<std::uint64_t>(8 + size_class % 8 + 1) << shift) * kSmallestClass;
}

// How much memory a thread takes at a time for blocks of a class: at least 4 blocks, at most 1024.
constexpr std::uint64_t span_bytes(int size_class) {
  const std::uint64_t block = size_class_bytes(size_class);
  if (block <= 4 * 1024) return 64 * 1024;
  return block <= 16 * 1024 ? 128 * 1024 : 256 * 1024;
}

static_assert(size_class_of(kLargestClass) == kClasses - 1);
static_assert(size_class_bytes(kClasses - 1) == kLargestClass);

}  // namespace tenon::host
