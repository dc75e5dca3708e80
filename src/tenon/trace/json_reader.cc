#include "tenon/trace/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tenon/base/error.h"
#include "tenon/base/printable.h"

namespace tenon {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The bytes, for the library's reader; it tells how far that is.
struct Cursor {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  const std::string_view* bytes = nullptr;
  const ReadHooks* hooks = nullptr;

  reference operator*() const { return *at; }
  Cursor& operator++() {
    constexpr std::size_t kStep = std::size_t{1} << 20;
    ++at;
    const auto done = static_cast<std::size_t>(at - bytes->data());
    if (done % kStep == 0) tell(done);
    return *this;
  }
  void tell(std::size_t done) const {
    if (hooks->passed) hooks->passed(done);
    if (hooks->progress) hooks->progress(done, bytes->size());
  }
  friend bool operator==(const Cursor& a, const Cursor& b) { return a.at == b.at; }
};

}  // namespace

bool JsonReader::parse_error(std::size_t position, const std::string& token,
                             const nlohmann::json::exception& error) {
  const std::string_view before = bytes_.substr(0, position == 0 ? 0 : position - 1);
  const auto line = static_cast<std::uint64_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const std::size_t begin = before.rfind('\n');
  const std::uint64_t column = before.size() - (begin == before.npos ? 0 : begin + 1) + 1;
  if (position > bytes_.size())
    throw ParseError(path_, line, column, "the JSON has no end: the file may be truncated");
  // "[json.exception...] parse error at line 1, column 2: syntax error while parsing value - ..."
  std::string_view reason = error.what();
  if (const std::size_t colon = reason.find(": "); colon != reason.npos)
    reason.remove_prefix(colon + 2);
  reason = reason.substr(0, reason.find("; last read"));
  constexpr std::size_t kShown = 60;
  throw ParseError(path_, line, column,
                   fmt::format("no JSON at \"{}\": {}",
                               one_line(std::string_view(token).substr(0, kShown)),
                               one_line(reason.substr(0, 4 * kShown))));
}

bool looks_like_json(std::string_view bytes) {
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  const std::size_t at = bytes.find_first_not_of(" \t\r\n");
  return at != bytes.npos && (bytes[at] == '{' || bytes[at] == '[');
}

void read_json(std::string_view bytes, JsonReader& reader, const ReadHooks& hooks) {
  reader.bytes_ = bytes;
  const char* const end = bytes.data() + bytes.size();
  nlohmann::json::sax_parse(Cursor{bytes.data(), &bytes, &hooks}, Cursor{end, &bytes, &hooks},
                            &reader);
}

}  // namespace tenon
