#include "tenon/memory/adaptors/zones.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tenon {

std::optional<Damage> find_damage(const unsigned char* bytes, std::size_t size,
                                  unsigned char expected) {
  // All alike: the first is right and each equals its neighbour.
  if (size == 0 || (bytes[0] == expected && std::memcmp(bytes, bytes + 1, size - 1) == 0))
    return std::nullopt;
  Damage damage{0, size - 1};
  while (bytes[damage.first] == expected) ++damage.first;
  while (bytes[damage.last] == expected) --damage.last;
  return damage;
}

std::string hexadecimal(const unsigned char* bytes, const Damage& damage) {
  constexpr std::size_t kMost = 8;
  const std::size_t count = std::min(kMost, damage.last - damage.first + 1);
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += fmt::format("{}{:02x}", i == 0 ? "" : " ", bytes[damage.first + i]);
  return count == damage.last - damage.first + 1 ? text : text + " ...";
}

}  // namespace tenon
