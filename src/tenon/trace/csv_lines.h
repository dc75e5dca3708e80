// Lines and fields of comma-separated text.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"

namespace tenon {

// Text from a file, as an error message may show it: short, on one line.
inline std::string shown_text(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > 40 ? "..." : "");
}

// A line has at most so many bytes: a sparse file may seem to have terabytes without a line's end.
inline constexpr std::size_t kMostLineBytes = std::size_t{64} << 20;

// Goes through the lines of a text, without their ends, and says where an error is.
class CsvLines {
 public:
  CsvLines(std::string_view bytes, const std::string& path) : rest_(bytes), path_(path) {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);  // a byte order mark
  }

  bool next() {
    if (rest_.empty()) return false;
    ++number_;
    const std::size_t end = rest_.substr(0, kMostLineBytes).find('\n');
    text_ = rest_.substr(0, end);
    if (end == rest_.npos && rest_.size() > kMostLineBytes)
      fail(text_, fmt::format("the line has more than {}, which no recording's has",
                              format_byte_size(kMostLineBytes)));
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (text_.ends_with('\r')) text_.remove_suffix(1);
    return true;
  }
  std::string_view text() const { return text_; }
  std::uint64_t number() const { return number_; }
  bool at_end() const { return rest_.empty(); }

  // `where`: a part of the line.
  [[noreturn]] void fail(std::string_view where, const std::string& reason) const {
    throw ParseError(path_, number_, static_cast<std::uint64_t>(where.data() - text_.data()) + 1,
                     reason);
  }

  // The next field of `left`; `more` says whether another one follows.
  static std::string_view take_field(std::string_view& left, bool& more) {
    const char* comma = static_cast<const char*>(std::memchr(left.data(), ',', left.size()));
    more = comma != nullptr;
    const std::string_view field =
        more ? left.substr(0, static_cast<std::size_t>(comma - left.data())) : left;
    left.remove_prefix(field.size() + (more ? 1 : 0));
    return field;
  }

 private:
  std::string_view rest_;
  std::string_view text_;  // the current line
  const std::string& path_;
  std::uint64_t number_ = 0;
};

}  // namespace tenon
