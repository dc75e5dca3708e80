// Checks for what must be true. TENON_CHECK stays in every build and throws InternalError with the
// place and a message; TENON_DCHECK disappears from release builds and may stand on hot paths.
//
// Thread-safe. O(1): a check that holds costs one branch.
#pragma once

#include <fmt/format.h>

#include "tenon/base/error.h"

namespace tenon::detail {

[[noreturn, gnu::cold]] void check_failed(const char* file, int line, const char* condition,
                                          fmt::string_view text, fmt::format_args arguments);

template <typename... Arguments>
[[noreturn]] void check_failed_with(const char* file, int line, const char* condition,
                                    fmt::format_string<Arguments...> text,
                                    Arguments&&... arguments) {
  check_failed(file, line, condition, text, fmt::make_format_args(arguments...));
}

}  // namespace tenon::detail

// Throws InternalError, with place, condition and a message in fmt's syntax, unless the condition
// holds.
#define TENON_CHECK(condition, ...)                                                 \
  do {                                                                              \
    if (!(condition)) [[unlikely]]                                                  \
      ::tenon::detail::check_failed_with(__FILE__, __LINE__, #condition,            \
                                         "" __VA_ARGS__);                           \
  } while (false)

#ifdef NDEBUG
#define TENON_DCHECK(condition, ...) \
  do {                               \
  } while (false)
#else
// As TENON_CHECK in debug builds; in release builds the condition is not even computed.
#define TENON_DCHECK(...) TENON_CHECK(__VA_ARGS__)
#endif
