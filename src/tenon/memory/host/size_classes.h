// The sizes that small blocks are rounded up to, and how many a thread takes at a time.
#pragma once

#include "tenon/memory/size_classes.h"

namespace tenon::host {

inline constexpr std::uint64_t kSmallestClass = 64;          // and the alignment of all classes
inline constexpr std::uint64_t kLargestClass = 64 * 1024;    // larger requests are no small blocks

using BlockClasses = SizeClasses<kSmallestClass, 3>;
inline constexpr int kClasses = BlockClasses::of(kLargestClass) + 1;
static_assert(BlockClasses::bytes(kClasses - 1) == kLargestClass);

// How much memory a thread takes at a time for blocks of a class: at least 4 blocks, at most 1024.
constexpr std::uint64_t span_bytes(int size_class) {
  const std::uint64_t block = BlockClasses::bytes(size_class);
  if (block <= 4 * 1024) return 64 * 1024;
  return block <= 16 * 1024 ? 128 * 1024 : 256 * 1024;
}

}  // namespace tenon::host
