// Finds what a program repeats.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tenon {

// The end of a sequence of requests repeats itself: from `begin` to the last request, each request
// is the same as the one `period` earlier or later.
struct Iterations {
  std::size_t begin = 0;
  std::size_t period = 0;
  double count = 0;  // repetitions, the last one perhaps in part
};

// The shortest period of the longest end of the sequence that repeats at least twice and is at
// least a quarter of the whole; nothing where there is none (a program whose sizes change from step
// to step has none). By the Z-function of the reversed sequence (Gusfield, "Algorithms on Strings,
// Trees, and Sequences", 1997, section 1.4): O(n), no guess about what an iteration looks like.
std::optional<Iterations> find_iterations(std::span<const std::uint64_t> requests);

}  // namespace tenon
