// How much memory pool and unified take at once on a device without virtual memory, where their
// documents' sizes would be most of what a small program holds, and no page could go back.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/base/align.h"

namespace tenon {

inline constexpr std::uint64_t kLeastGrowthBytes = std::uint64_t{1} << 19;

// So a program that holds n times the least growth has about 8 (1 + ln(n / 8)) segments, where it
// frees none: 52 for 1 GiB. Fragmentation aside, it holds a sixth too much at most.
inline constexpr std::uint64_t kGrowthShares = 8;

// For a request that found no room in the `held_bytes`. As many times the request as come nearest
// to a share: where more requests of the size follow, as in models, no end of a segment is wasted.
constexpr std::uint64_t growth_bytes(std::uint64_t held_bytes, std::uint64_t request_bytes) {
  constexpr std::uint64_t kStepBytes = 65536;  // of which segments on all devices are multiples
  const std::uint64_t share = std::max(kLeastGrowthBytes, held_bytes / kGrowthShares);
  const std::uint64_t requests = (share + request_bytes / 2) / request_bytes;
  return align_up(std::max<std::uint64_t>(1, requests) * request_bytes, kStepBytes);
}

}  // namespace tenon
