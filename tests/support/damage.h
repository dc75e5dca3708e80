// Random damage to a file's bytes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tenon/base/random.h"

namespace tenon {

// Up to six changes: bytes overwritten, flipped, cut off, left out or repeated.
inline std::string damaged(std::string bytes, Random& random) {
  for (std::uint64_t i = random.between(1, 6); i > 0 && !bytes.empty(); --i) {
    const std::size_t at = random.below(bytes.size());
    switch (random.below(5)) {
      case 0: bytes[at] = static_cast<char>(random.next()); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8))); break;
      case 2: bytes.resize(at); break;
      case 3: bytes.erase(at, random.between(1, 9)); break;
      default: bytes.insert(at, bytes.substr(random.below(bytes.size()), random.between(1, 9)));
    }
  }
  return bytes;
}

}  // namespace tenon
