#include "tenon/base/error.h"

#include <fmt/format.h>

#include "tenon/base/byte_size.h"
#include "tenon/base/check.h"
#include "tenon/base/printable.h"

namespace tenon {
namespace {

std::string place_of(const std::string& name, std::uint64_t line, std::uint64_t column) {
  if (line == 0) return name;
  if (column == 0) return fmt::format("{}:{}", name, line);
  return fmt::format("{}:{}:{}", name, line, column);
}

std::string describe(const OutOfMemoryDetails& d) {
  std::string text = fmt::format(
      "out of memory on {} ({}): requested {}, allocated {}, reserved {}", d.device, d.allocator,
      format_byte_size(d.requested_bytes), format_byte_size(d.allocated_bytes),
      format_byte_size(d.reserved_bytes));
  if (d.limit_bytes != 0) text += fmt::format(", limit {}", format_byte_size(d.limit_bytes));
  text += fmt::format(", largest free block {}", format_byte_size(d.largest_free_bytes));
  for (std::size_t i = 0; i < d.idle.size(); ++i)
    text += fmt::format("{}{} idle in {}", i == 0 ? "; " : ", ",
                        format_byte_size(d.idle[i].bytes), d.idle[i].name);
  if (!d.advice.empty()) text += "; " + d.advice;
  return text;
}

}  // namespace

namespace detail {

void check_failed(const char* file, int line, const char* condition, fmt::string_view text,
                  fmt::format_args arguments) {
  const std::string message = fmt::vformat(text, arguments);
  raise<InternalError>("{}:{}: check failed: {}{}{}", file, line, condition,
                       message.empty() ? "" : ": ", message);
}

template <typename E>
void raise_formatted(fmt::string_view text, fmt::format_args arguments) {
  throw E(fmt::vformat(text, arguments));
}

template void raise_formatted<InvalidArgument>(fmt::string_view, fmt::format_args);
template void raise_formatted<InvalidPointer>(fmt::string_view, fmt::format_args);
template void raise_formatted<DeviceError>(fmt::string_view, fmt::format_args);
template void raise_formatted<InternalError>(fmt::string_view, fmt::format_args);

}  // namespace detail

ParseError::ParseError(std::string name, std::uint64_t line, std::uint64_t column,
                       std::string reason)
    // A reason quotes the file, which may hold anything: what a terminal obeys, null characters.
    : std::runtime_error(one_line(place_of(name, line, column) + ": " + reason)),
      name_(std::move(name)),
      line_(line),
      column_(column),
      reason_(one_line(reason)) {}

OutOfMemory::OutOfMemory(OutOfMemoryDetails details)
    : details_(std::move(details)), message_(describe(details_)) {}

}  // namespace tenon
