// Bytes that no program should write: filled with one value, and looked at later.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace tenon {

inline constexpr unsigned char kFrontZone = 0xfb;  // before a block
inline constexpr unsigned char kBackZone = 0xfd;   // after it
inline constexpr unsigned char kPoison = 0xdd;     // a freed block

struct Damage {
  std::size_t first = 0;
  std::size_t last = 0;
};

// The outermost bytes of a piece that are not `expected` any more. O(size), at memcmp's speed.
std::optional<Damage> find_damage(const unsigned char* bytes, std::size_t size,
                                  unsigned char expected);

// "01 02 ff ...": the first of the damaged bytes.
std::string hexadecimal(const unsigned char* bytes, const Damage& damage);

}  // namespace tenon
