// A small seeded generator for simulation and tests: the same numbers on every machine. Not
// thread-safe: a generator belongs to one thread. O(1), and nothing throws.
#pragma once

#include <cstdint>

#include "tenon/base/hash.h"

namespace tenon {

// SplitMix64. Not for secrets.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // The next 64 random bits.
  std::uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15ULL); }

  // Uniform in [0, bound). Requires: bound > 0. Bias is below bound / 2^64.
  std::uint64_t below(std::uint64_t bound) {
    __extension__ typedef unsigned __int128 Wide;  // so that -Wpedantic says nothing
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

  // Uniform in [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + below(high - low + 1);
  }

  // True with the given probability.
  bool chance(double probability) {
    return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability;
  }

 private:
  std::uint64_t state_;
};

}  // namespace tenon
