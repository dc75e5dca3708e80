// Bytes of gzip files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tenon::nn {

bool is_gzip(std::string_view bytes);

// Inflates one member after another. Throws ParseError, with `name`, for bytes that are damaged or
// truncated, and where they would unpack to more than unpack_limit_bytes.
std::string inflate_gzip(std::string_view bytes, const std::string& name);

}  // namespace tenon::nn
