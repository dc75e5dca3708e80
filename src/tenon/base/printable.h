// Text of files as it may be shown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

struct Utf8Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: the text does not begin with UTF-8
};
// Requires: text is not empty.
Utf8Character first_character(std::string_view text);

// False for control characters (C1 too, which a terminal obeys), marks that reverse the direction
// of writing, invisible separators and byte order marks.
bool is_printable(std::uint32_t code);

// The text on one line: what is not printable, and what is not UTF-8, becomes U+FFFD. O(length).
std::string one_line(std::string_view text);

}  // namespace tenon
