// How large a heap is made for a request: the sizes of PyTorch's MPS allocator, or by shares.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/memory/growth_share.h"

namespace tenon::unified {

inline constexpr std::uint64_t kMaxScalarBytes = 8;
inline constexpr std::uint64_t kMaxSmallBytes = kMiB;       // small buffers are pooled apart
inline constexpr std::uint64_t kMinHugeBytes = 10 * kMiB;   // from here on, 1 GiB heaps
inline constexpr std::uint64_t kSmallHeapBytes = 8 * kMiB;
inline constexpr std::uint64_t kLargeHeapBytes = 32 * kMiB;
inline constexpr std::uint64_t kHugeHeapBytes = kGiB;
inline constexpr std::uint64_t kHeapRoundingBytes = 2 * kMiB;
inline constexpr std::uint64_t kScalarHeapBytes = 64 * kKiB;

// Just enough for the one request.
constexpr std::uint64_t dedicated_heap_bytes(std::uint64_t size_bytes) {
  return align_up(size_bytes, kHeapRoundingBytes);
}

// With memory short, a request that would open a heap of 1 GiB gets one of its own size.
constexpr std::uint64_t heap_bytes_for(std::uint64_t size_bytes, bool under_pressure) {
  if (size_bytes <= kMaxSmallBytes) return kSmallHeapBytes;
  if (size_bytes < kMinHugeBytes) return kLargeHeapBytes;
  if (size_bytes < kHugeHeapBytes / 2 && !under_pressure) return kHugeHeapBytes;
  return dedicated_heap_bytes(size_bytes);
}

// By shares, for a request of a pool that holds `held_bytes`.
constexpr std::uint64_t heap_share_bytes(std::uint64_t size_bytes, std::uint64_t held_bytes,
                                         bool under_pressure) {
  return under_pressure ? dedicated_heap_bytes(size_bytes) : growth_bytes(held_bytes, size_bytes);
}

}  // namespace tenon::unified
