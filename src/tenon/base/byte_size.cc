#include "tenon/base/byte_size.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "tenon/base/error.h"
#include "tenon/base/parse_real.h"

namespace tenon {
namespace {

struct Unit {
  std::string_view name;  // lower case
  double bytes;
};

constexpr std::array<Unit, 18> kUnits = {{
    {"", 1},          {"b", 1},          {"k", 1024.0},       {"kb", 1e3},
    {"kib", 1024.0},  {"m", 1048576.0},  {"mb", 1e6},         {"mib", 1048576.0},
    {"g", 1073741824.0}, {"gb", 1e9},    {"gib", 1073741824.0}, {"t", 1099511627776.0},
    {"tb", 1e12},     {"tib", 1099511627776.0}, {"p", 1125899906842624.0}, {"pb", 1e15},
    {"pib", 1125899906842624.0}, {"bytes", 1},
}};

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  raise<InvalidArgument>(
      "\"{}\" is not a byte size: {}; write a number and a unit ({}), like 12GiB", text, why,
      kByteUnits);
}

std::string lower_without_spaces(std::string_view text) {
  std::string out;
  for (char c : text)
    if (!std::isspace(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

std::uint64_t parse_byte_size(std::string_view text) {
  const std::size_t digits = text.find_first_not_of(" \t");
  if (digits == std::string_view::npos) refuse(text, "it is empty");
  std::size_t end = digits;
  while (end < text.size() && (std::isdigit(static_cast<unsigned char>(text[end])) ||
                               text[end] == '.'))
    ++end;
  if (end == digits) refuse(text, "it does not start with a number");
  const std::string_view number = text.substr(digits, end - digits);
  const std::string unit_name = lower_without_spaces(text.substr(end));

  const Unit* unit = nullptr;
  for (const Unit& u : kUnits)
    if (u.name == unit_name) unit = &u;
  if (unit == nullptr) refuse(text, fmt::format("\"{}\" is no unit", unit_name));

  // Whole numbers of binary units are exact beyond 2^53, so they take their own path.
  std::uint64_t whole = 0;
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), whole);
  if (parsed.ec == std::errc::result_out_of_range) refuse(text, "it is too large");
  if (parsed.ec == std::errc() && parsed.ptr == number.data() + number.size()) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(whole, static_cast<std::uint64_t>(unit->bytes), &bytes) ||
        bytes > INT64_MAX)
      refuse(text, "it is too large");
    return bytes;
  }
  const std::optional<double> value = parse_real(number);
  if (!value) refuse(text, fmt::format("\"{}\" is no number", number));
  const double bytes = std::round(*value * unit->bytes);
  if (bytes >= 9223372036854775808.0) refuse(text, "it is too large");
  return static_cast<std::uint64_t>(bytes);
}

std::string format_byte_size(std::uint64_t size_bytes) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 5> kScale = {{
      {"PiB", 1024 * kTiB}, {"TiB", kTiB}, {"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}}};
  for (const auto& [name, unit] : kScale) {
    if (size_bytes < unit) continue;
    if (size_bytes % unit == 0) return fmt::format("{} {}", size_bytes / unit, name);
    return fmt::format("{:.2f} {}", static_cast<double>(size_bytes) / static_cast<double>(unit),
                       name);
  }
  return fmt::format("{} B", size_bytes);
}

}  // namespace tenon
