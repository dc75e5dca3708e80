// The program that fragments memory most: what an allocator holds at worst.
#pragma once

#include <cstdint>

#include "tenon/memory/device_allocator.h"

namespace tenon {

struct RobsonFigures {
  std::uint64_t blocks = 0;               // ever allocated
  std::uint64_t live_peak_bytes = 0;
  std::uint64_t reserved_peak_bytes = 0;  // by stats()
};

// Robson's adversary: blocks of powers of two from `smallest` to `largest` bytes, no more than
// `live_bound` bytes of them live at once. It fills memory with the smallest blocks; then, for each
// next size, it keeps just those blocks that sit where a block of that size would have to go, frees
// all others, and fills up with the larger size, which finds no room between those kept. It looks
// at addresses, as an allocator that cannot move blocks must show them.
//
// No allocator that never moves memory holds less than live_bound * (1 + log2(largest / smallest) /
// 2) - largest against it (robson_bound). Requires: powers of two, smallest <= largest <=
// live_bound. O(blocks * log(largest / smallest)) steps.
// Source: J. M. Robson, "Bounds for some functions concerning dynamic storage allocation", JACM 21
// (1974).
RobsonFigures run_robson(DeviceAllocator& allocator, std::uint64_t live_bound,
                         std::uint64_t smallest, std::uint64_t largest);

// What no allocator that never moves memory can stay below, over live_bound.
double robson_bound(std::uint64_t live_bound, std::uint64_t smallest, std::uint64_t largest);

}  // namespace tenon
