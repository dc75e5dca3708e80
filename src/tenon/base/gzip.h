// Bytes of gzip files. A header alone, for this layer's library links no zlib.
#pragma once

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <string_view>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/read_limit.h"

namespace tenon {
namespace detail {

struct Inflater {
  z_stream z{};
  bool open = false;
  ~Inflater() {
    if (open) ::inflateEnd(&z);
  }
};

}  // namespace detail

inline bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

// Inflates one member after another. Throws ParseError, with `name`, for bytes that are damaged or
// truncated, and where they would unpack to more than unpack_limit_bytes.
inline std::string inflate_gzip(std::string_view bytes, const std::string& name) {
  const std::uint64_t most = unpack_limit_bytes(bytes.size());
  const auto fail = [&](const std::string& reason) { return ParseError(name, 0, 0, reason); };
  constexpr std::size_t kStep = std::size_t{1} << 20;
  constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // zlib counts in 32 bits
  std::string out;
  detail::Inflater inflater;
  z_stream& z = inflater.z;
  if (::inflateInit2(&z, 15 + 16) != Z_OK) throw std::bad_alloc();
  inflater.open = true;
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  std::size_t left = bytes.size();
  for (;;) {
    const std::size_t filled = out.size();
    out.resize(filled + kStep);
    const auto given = static_cast<uInt>(std::min(left, kMostAtOnce));
    z.avail_in = given;
    z.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
    z.avail_out = static_cast<uInt>(kStep);
    const int result = ::inflate(&z, Z_NO_FLUSH);
    left -= given - z.avail_in;
    out.resize(filled + kStep - z.avail_out);
    if (out.size() > most)
      throw fail(fmt::format("{} of gzip data unpack to more than {}: {}",
                             format_byte_size(bytes.size()), format_byte_size(most),
                             how_to_raise(most)));
    const std::size_t at = bytes.size() - left;
    if (result == Z_STREAM_END) {
      if (left == 0) return out;
      if (::inflateReset(&z) != Z_OK) throw fail("zlib cannot go on");
    } else if (result == Z_BUF_ERROR || (result == Z_OK && left == 0 && z.avail_out > 0)) {
      throw fail(fmt::format("the gzip data ends too early, after {} bytes", at));
    } else if (result == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (result != Z_OK) {
      throw fail(fmt::format("damaged gzip data at byte {}: {}", at,
                             z.msg != nullptr ? z.msg : "unknown"));
    }
  }
}

}  // namespace tenon
