#include "tenon/base/read_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string_view>

#include "tenon/base/byte_size.h"
#include "tenon/base/environment.h"

namespace tenon {
namespace {

constexpr const char* kVariable = "TENON_READ_LIMIT";

std::uint64_t limit_or(std::uint64_t factor, std::uint64_t file_bytes, std::uint64_t more) {
  const std::string_view text = environment_value(kVariable);
  if (text.empty()) {
    std::uint64_t limit = 0;
    if (__builtin_mul_overflow(factor, file_bytes, &limit) ||
        __builtin_add_overflow(limit, more, &limit))
      return std::numeric_limits<std::uint64_t>::max();
    return limit;
  }
  return parse_byte_size(text);
}

}  // namespace

std::uint64_t read_limit_bytes(std::uint64_t file_bytes) {
  return limit_or(16, file_bytes, 256 * kMiB);
}

std::uint64_t unpack_limit_bytes(std::uint64_t packed_bytes) {
  return limit_or(40, packed_bytes, 64 * kMiB);
}

std::uint64_t stream_limit_bytes() { return limit_or(0, 0, kGiB); }

std::string how_to_raise(std::uint64_t limit_bytes) {
  const std::uint64_t gibibytes =
      std::bit_ceil(std::min(limit_bytes, std::uint64_t{1} << 61) / kGiB + 1);
  return fmt::format("{}={}GiB allows more", kVariable, gibibytes);
}

}  // namespace tenon
