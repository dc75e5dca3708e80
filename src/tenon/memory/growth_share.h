// How much memory pool and unified take at once on a device without virtual memory, where their
// documents' sizes would be most of what a small program holds, and no page could go back. A free
// segment is cut for any smaller request. To keep it whole for requests of its size would hold less
// in many programs. But then each step would take and give back segments.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/base/align.h"

namespace tenon {

inline constexpr std::uint64_t kLeastGrowthBytes = std::uint64_t{1} << 19;

// A share of what is held: fragmentation aside, a program of up to 64 MiB holds a thirty-second
// too much at most. For larger ones it comes near to a twelfth, or they would have hundreds of
// segments.
constexpr std::uint64_t growth_share(std::uint64_t held_bytes) {
  constexpr std::uint64_t kShares = 32, kLargeShares = 12, kBoundBytes = std::uint64_t{40} << 20;
  const std::uint64_t above = held_bytes > kBoundBytes ? held_bytes - kBoundBytes : 0;
  return std::max({kLeastGrowthBytes, held_bytes / kShares, above / kLargeShares});
}

// For a request that found no room in the `held_bytes`. As many times the request as come nearest
// to a share: where more requests of the size follow, as in models, no end of a segment is wasted.
constexpr std::uint64_t growth_bytes(std::uint64_t held_bytes, std::uint64_t request_bytes) {
  constexpr std::uint64_t kStepBytes = 65536;  // of which segments on all devices are multiples
  const std::uint64_t requests =
      (growth_share(held_bytes) + request_bytes / 2) / request_bytes;
  return align_up(std::max<std::uint64_t>(1, requests) * request_bytes, kStepBytes);
}

}  // namespace tenon
