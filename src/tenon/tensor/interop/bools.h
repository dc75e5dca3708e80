// The bytes of bools in files.
#pragma once

#include <algorithm>
#include <string_view>

namespace tenon {

// Whether each byte is 0 or 1. A kernel that reads another one as a bool has undefined behaviour.
// Thread-safe. O(bytes).
inline bool are_bools(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char byte) { return (byte & ~1) == 0; });
}

}  // namespace tenon
