#include "tenon/trace/csv.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstring>
#include <iterator>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/trace_builder.h"

namespace tenon {
namespace {

enum Role { kTime, kOp, kId, kSize, kStream, kRoles };
constexpr std::array<std::string_view, kRoles> kColumns = {"time_us", "op", "id", "size", "stream"};
constexpr int kIgnored = -1;
constexpr std::int64_t kMaxTimeUs = std::int64_t{1} << 53;  // 285 years

// Text from a file, as an error message may show it: short, on one line.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > 40 ? "..." : "");
}

class CsvReader {
 public:
  CsvReader(std::string_view bytes, const std::string& path)
      : rest_(bytes), path_(path), builder_(trace_name(path)) {}

  Trace read() {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);  // a byte order mark
    if (!next_line()) throw ParseError(path_, 1, 1, "the file has no header line");
    read_header();
    while (next_line())
      if (!text_.empty()) read_event();
    if (builder_.backward_steps() > 0)
      builder_.warn(fmt::format(
          "{}:{}: time runs backwards ({} times in all); the order of lines counts, and the clock "
          "stands still meanwhile",
          path_, backward_line_, builder_.backward_steps()));
    return builder_.finish();
  }

 private:
  [[noreturn]] void fail(std::string_view where, const std::string& reason) const {
    throw ParseError(path_, line_, static_cast<std::uint64_t>(where.data() - text_.data()) + 1,
                     reason);
  }

  // Puts the next line, without its end, into text_.
  bool next_line() {
    if (rest_.empty()) return false;
    ++line_;
    const std::size_t end = rest_.find('\n');
    text_ = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (text_.ends_with('\r')) text_.remove_suffix(1);
    return true;
  }

  void read_header() {
    std::array<bool, kRoles> found = {};
    std::string_view left = text_;
    for (bool more = true; more;) {
      const std::string_view name = take_field(left, more);
      int role = kIgnored;
      for (int r = 0; r < kRoles; ++r)
        if (name == kColumns[static_cast<std::size_t>(r)]) role = r;
      if (role != kIgnored) {
        if (found[static_cast<std::size_t>(role)])
          fail(name, fmt::format("column {} is there twice", name));
        found[static_cast<std::size_t>(role)] = true;
      }
      roles_.push_back(role);
    }
    std::string missing;
    for (std::size_t r = 0; r < kRoles; ++r)
      if (!found[r]) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", kColumns[r]);
    if (!missing.empty())
      fail(text_, fmt::format("the header line lacks {}: a trace has the columns {}", missing,
                              fmt::join(kColumns, ",")));
  }

  static std::string_view take_field(std::string_view& left, bool& more) {
    const char* comma = static_cast<const char*>(std::memchr(left.data(), ',', left.size()));
    more = comma != nullptr;
    const std::string_view field =
        more ? left.substr(0, static_cast<std::size_t>(comma - left.data())) : left;
    left.remove_prefix(field.size() + (more ? 1 : 0));
    return field;
  }

  void read_event() {
    std::array<std::string_view, kRoles> fields;
    std::string_view left = text_;
    std::size_t count = 0;
    for (bool more = true; more; ++count) {
      const std::string_view field = take_field(left, more);
      if (count == roles_.size())
        fail(field, fmt::format("the line has more fields than the header's {}", roles_.size()));
      if (roles_[count] != kIgnored) fields[static_cast<std::size_t>(roles_[count])] = field;
    }
    if (count < roles_.size())
      fail(text_.substr(text_.size()),
           fmt::format("the line ends after {} of {} fields{}", count, roles_.size(),
                       rest_.empty() ? ": the file may be truncated" : ""));

    const std::string_view op = fields[kOp];
    const auto time_us = number<std::int64_t>(fields[kTime], kTime);
    if (time_us > kMaxTimeUs || time_us < -kMaxTimeUs)
      fail(fields[kTime], fmt::format("time_us {} is out of range", time_us));
    const auto id = number<std::uint64_t>(fields[kId], kId);
    const std::uint64_t backward = builder_.backward_steps();
    TraceFault fault = TraceFault::kNone;
    if (op == "alloc") {
      fault = builder_.alloc(id, time_us, number<std::uint64_t>(fields[kSize], kSize),
                             number<std::uint64_t>(fields[kStream], kStream));
    } else if (op == "free_completed" || op == "free_requested") {
      if (!fields[kSize].empty()) number<std::uint64_t>(fields[kSize], kSize);
      if (!fields[kStream].empty()) number<std::uint64_t>(fields[kStream], kStream);
      fault = builder_.free(
          op == "free_completed" ? TraceOp::kFreeCompleted : TraceOp::kFreeRequested, id, time_us);
    } else {
      fail(op, fmt::format("unknown op \"{}\": the ops are alloc, free_requested, free_completed",
                           shown(op)));
    }
    if (fault != TraceFault::kNone) refuse(fault, fields);
    if (builder_.backward_steps() != backward && backward == 0) backward_line_ = line_;
  }

  [[noreturn]] void refuse(TraceFault fault,
                           const std::array<std::string_view, kRoles>& fields) const {
    const std::string_view id = fields[kId];
    switch (fault) {
      case TraceFault::kLiveAlready:
        fail(id, fmt::format("id {} is allocated a second time while it is live", id));
      case TraceFault::kUnknown:
        fail(id, fmt::format("{} of id {}, which was never allocated", fields[kOp], id));
      case TraceFault::kFreedAlready:
        fail(id, fmt::format("{} of id {}, which is free already (double free)", fields[kOp], id));
      case TraceFault::kRequestedTwice:
        fail(id, fmt::format("a second free_requested of id {} (double free)", id));
      case TraceFault::kTooLarge:
        fail(fields[kSize], fmt::format("size {} is too large: no request may exceed {} bytes ({})",
                                        fields[kSize], kMaxRequestBytes,
                                        format_byte_size(kMaxRequestBytes)));
      case TraceFault::kTooMuch:
      case TraceFault::kNone:
        break;
    }
    fail(text_, "more live bytes, blocks or streams than a trace can have");
  }

  template <typename Number>
  Number number(std::string_view field, Role role) const {
    Number value = 0;
    const char* end = field.data() + field.size();
    const auto [stop, error] = std::from_chars(field.data(), end, value);
    if (error == std::errc() && stop == end) [[likely]] return value;
    const std::string_view column = kColumns[role];
    if (field.empty()) fail(field, fmt::format("{} is missing", column));
    const bool digits =
        field.find_first_not_of("0123456789", field[0] == '-' ? 1 : 0) == std::string_view::npos;
    if (digits && field.size() > 1 && field[0] == '-' && std::is_unsigned_v<Number>)
      fail(field, fmt::format("{} {} is negative", column, shown(field)));
    if (digits && field != "-")
      fail(field, fmt::format("{} {} is too large", column, shown(field)));
    fail(field, fmt::format("{} \"{}\" is not a whole number", column, shown(field)));
  }

  std::string_view rest_;
  std::string_view text_;  // the current line
  const std::string& path_;
  std::uint64_t line_ = 0;
  std::uint64_t backward_line_ = 0;
  std::vector<int> roles_;  // by column
  TraceBuilder builder_;
};

}  // namespace

Trace parse_csv(std::string_view bytes, const std::string& path) {
  return CsvReader(bytes, path).read();
}

std::string format_csv(const Trace& trace) {
  fmt::memory_buffer out;
  out.reserve(trace.events.size() * 48);
  fmt::format_to(std::back_inserter(out), "{}\n", fmt::join(kColumns, ","));
  for (const TraceEvent& event : trace.events)
    fmt::format_to(std::back_inserter(out), "{},{},{},{},{}\n", event.time_us,
                   trace_op_name(event.op), event.block, event.size_bytes,
                   trace.streams[event.stream]);
  return fmt::to_string(out);
}

void write_csv(const Trace& trace, const std::string& path) {
  write_file(path, format_csv(trace));
}

}  // namespace tenon
