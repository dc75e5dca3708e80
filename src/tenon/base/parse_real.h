// Decimal numbers out of text, the same under every locale and C++ library.
#pragma once

#include <optional>
#include <string_view>

namespace tenon {

// All of the text as a number, "1.5" or "2e9"; nothing where it is none, or too large for a double.
std::optional<double> parse_real(std::string_view text);

}  // namespace tenon
