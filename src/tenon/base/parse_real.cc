#include "tenon/base/parse_real.h"

#include <locale>
#include <sstream>
#include <string>

namespace tenon {

// (std::from_chars would do, and LLVM's library 14 has it for integers alone.)
std::optional<double> parse_real(std::string_view text) {
  if (text.find_first_not_of("0123456789.eE+-") != std::string_view::npos || text.starts_with('+'))
    return std::nullopt;
  std::istringstream in{std::string(text)};
  in.imbue(std::locale::classic());
  double value = 0;
  if (!(in >> value) || in.peek() != std::istringstream::traits_type::eof()) return std::nullopt;
  return value;
}

}  // namespace tenon
