#include "tenon/lab/planning/instance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_set>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/trace/csv_lines.h"
#include "tenon/trace/trace.h"

namespace tenon {
namespace {

constexpr std::int64_t kMostTime = std::int64_t{1} << 62;

// Text from a file, as a message may show it: short, printable.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

std::size_t line_end(std::string_view text) {
  return std::min({text.substr(0, kMostLineBytes).find('\n'), text.size(), kMostLineBytes});
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = std::min(line.find(',', begin), line.size());
    fields.push_back(line.substr(begin, comma - begin));
    if (comma == line.size()) return fields;
    begin = comma + 1;
  }
}

class InstanceReader {
 public:
  InstanceReader(std::string_view bytes, const std::string& path) : rest_(bytes), path_(path) {
    instance_.name = trace_name(path);
  }

  Instance read() {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);  // a byte order mark
    if (!next_line()) fail(0, "the file has no header line");
    read_header();
    while (next_line())
      if (!text_.empty()) read_buffer();
    return std::move(instance_);
  }

 private:
  enum Role : std::size_t { kId, kLower, kUpper, kSize, kOffset, kRoles };
  static constexpr std::array<std::string_view, kRoles> kNames = {"id", "lower", "upper", "size",
                                                                  "offset"};
  static constexpr std::array<std::string_view, kRoles> kOtherNames = {"id", "begin", "end", "size",
                                                                       "offset"};

  [[noreturn]] void fail(std::size_t field, const std::string& reason) const {
    const std::size_t column =
        field < fields_.size() ? static_cast<std::size_t>(fields_[field].data() - text_.data()) : 0;
    throw ParseError(path_, line_, column + 1, reason);
  }

  bool next_line() {
    if (rest_.empty()) return false;
    ++line_;
    const std::size_t end = line_end(rest_);
    text_ = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (text_.ends_with('\r')) text_.remove_suffix(1);
    fields_ = fields_of(text_);
    return true;
  }

  void read_header() {
    column_of_.fill(kNoColumn);
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      std::size_t role = 0;
      while (role < kRoles && fields_[i] != kNames[role] && fields_[i] != kOtherNames[role]) ++role;
      if (role == kRoles)
        fail(i, fmt::format("unknown column \"{}\": known are id, lower, upper, size and offset",
                            shown(fields_[i])));
      if (column_of_[role] != kNoColumn)
        fail(i, fmt::format("the column {} comes twice", kNames[role]));
      column_of_[role] = i;
    }
    columns_ = fields_.size();
    for (const Role role : {kId, kLower, kUpper, kSize})
      if (column_of_[role] == kNoColumn)
        fail(0, fmt::format("the column {} is missing", kNames[role]));
    instance_.solved = column_of_[kOffset] != kNoColumn;
  }

  template <typename Number>
  Number number(Role role, Number least, Number most) const {
    const std::string_view text = fields_[column_of_[role]];
    Number value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < least ||
        value > most)
      fail(column_of_[role], fmt::format("{} \"{}\" is no whole number from {} to {}",
                                         kNames[role], shown(text), least, most));
    return value;
  }

  void read_buffer() {
    if (fields_.size() != columns_)
      fail(0, fmt::format("{} fields where the header has {}", fields_.size(), columns_));
    InstanceBuffer buffer;
    buffer.id = fields_[column_of_[kId]];
    if (!ids_.insert(buffer.id).second)
      fail(column_of_[kId], fmt::format("the id \"{}\" comes twice", shown(buffer.id)));
    buffer.lower = number<std::int64_t>(kLower, -kMostTime, kMostTime);
    buffer.upper = number<std::int64_t>(kUpper, -kMostTime, kMostTime);
    if (buffer.upper <= buffer.lower)
      fail(column_of_[kUpper], fmt::format("the life [{}, {}) is empty: upper is exclusive",
                                           buffer.lower, buffer.upper));
    buffer.size = number<std::uint64_t>(kSize, 1, kMaxRequestBytes);
    total_ += buffer.size;
    if (total_ > kMaxRequestBytes)
      fail(column_of_[kSize],
           fmt::format("all sizes up to here need more than {} bytes", kMaxRequestBytes));
    if (instance_.solved) buffer.offset = number<std::uint64_t>(kOffset, 0, kMaxRequestBytes);
    instance_.buffers.push_back(std::move(buffer));
  }

  static constexpr std::size_t kNoColumn = ~std::size_t{0};
  std::string_view rest_;
  const std::string& path_;
  std::string_view text_;
  std::uint64_t line_ = 0;
  std::vector<std::string_view> fields_;
  std::array<std::size_t, kRoles> column_of_ = {};
  std::size_t columns_ = 0;
  std::unordered_set<std::string> ids_;
  std::uint64_t total_ = 0;
  Instance instance_;
};

}  // namespace

bool looks_like_instance(std::string_view bytes) {
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  std::string_view line = bytes.substr(0, line_end(bytes));
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::vector<std::string_view> fields = fields_of(line);
  const auto has = [&](std::string_view name) {
    return std::find(fields.begin(), fields.end(), name) != fields.end();
  };
  return has("size") && (has("lower") || has("begin")) && (has("upper") || has("end"));
}

Instance parse_instance(std::string_view bytes, const std::string& path) {
  return InstanceReader(bytes, path).read();
}

std::string format_instance(const Instance& instance, const std::vector<std::uint64_t>& offsets) {
  std::string out = "id,lower,upper,size,offset\n";
  for (std::size_t i = 0; i < instance.buffers.size(); ++i) {
    const InstanceBuffer& b = instance.buffers[i];
    out += fmt::format("{},{},{},{},{}\n", b.id, b.lower, b.upper, b.size, offsets.at(i));
  }
  return out;
}

std::vector<PlanRequest> requests_of(const Instance& instance) {
  std::vector<std::int64_t> times;
  for (const InstanceBuffer& b : instance.buffers) times.insert(times.end(), {b.lower, b.upper});
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto rank = [&](std::int64_t time) {
    return static_cast<std::uint32_t>(std::lower_bound(times.begin(), times.end(), time) -
                                      times.begin());
  };
  std::vector<PlanRequest> requests;
  for (const InstanceBuffer& b : instance.buffers)
    requests.push_back({b.size, rank(b.lower), rank(b.upper)});
  return requests;
}

}  // namespace tenon
