#include "tenon/trace/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <memory>
#include <unordered_map>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/interruption.h"
#include "tenon/base/printable.h"
#include "tenon/trace/csv_lines.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/rmm_csv.h"
#include "tenon/trace/trace_builder.h"

namespace tenon {
namespace {

enum Role { kTime, kOp, kId, kSize, kStream, kNeeded, kThread = kNeeded, kDevice, kTag, kRoles };
constexpr std::array<std::string_view, kRoles> kColumns = {"time_us", "op",     "id",     "size",
                                                           "stream",  "thread", "device", "tag"};
constexpr std::array<std::string_view, kNeeded> kNeededColumns = {"time_us", "op", "id", "size",
                                                                  "stream"};
constexpr std::array kMarks = {MarkKind::kSleepToHost, MarkKind::kSleepDropped, MarkKind::kWake,
                               MarkKind::kEmptyCache};
constexpr std::array kMarkOps = {"sleep_to_host", "sleep_dropped", "wake", "empty_cache"};
constexpr int kIgnored = -1;
constexpr std::int64_t kMaxTimeUs = std::int64_t{1} << 53;  // 285 years

// A name as a field: without what would end the field or the line.
std::string field_of(std::string_view name) {
  std::string field(name);
  for (char& c : field)
    if (c == ',') {
      c = ';';
    } else if (c == '\n' || c == '\r') {
      c = ' ';
    }
  return field;
}

// One device's part of a file.
struct DevicePart {
  std::string name;  // as the column says; empty without one
  std::unique_ptr<TraceBuilder> builder;
  std::uint64_t backward_line = 0;
};

class CsvReader {
 public:
  CsvReader(std::string_view bytes, const std::string& path) : lines_(bytes, path), path_(path) {}

  std::vector<Trace> read() {
    if (!lines_.next()) throw ParseError(path_, 1, 1, "the file has no header line");
    read_header();
    while (lines_.next())
      if (!lines_.text().empty()) read_event();
    if (parts_.empty()) part_of("");
    std::vector<Trace> traces;
    const auto sites = std::make_shared<const SiteTable>(std::move(sites_));
    for (DevicePart& part : parts_) {
      if (part.builder->backward_steps() > 0)
        part.builder->warn(fmt::format(
            "{}:{}: time runs backwards ({} times in all); the order of lines counts, and the "
            "clock stands still meanwhile",
            path_, part.backward_line, part.builder->backward_steps()));
      traces.push_back(part.builder->finish(sites));
      Trace& trace = traces.back();
      trace.device_name = part.name;
      const std::size_t digits = part.name.find_last_not_of("0123456789") + 1;  // npos + 1 is 0
      std::from_chars(part.name.data() + digits, part.name.data() + part.name.size(),
                      trace.device);
      if (parts_.size() > 1) trace.name += ":" + one_line(part.name);
    }
    return traces;
  }

 private:
  [[noreturn]] void fail(std::string_view where, const std::string& reason) const {
    lines_.fail(where, reason);
  }

  void read_header() {
    std::array<bool, kRoles> found = {};
    std::string_view left = lines_.text();
    for (bool more = true; more;) {
      const std::string_view name = CsvLines::take_field(left, more);
      int role = kIgnored;
      for (int r = 0; r < kRoles; ++r)
        if (name == kColumns[static_cast<std::size_t>(r)]) role = r;
      if (role != kIgnored) {
        if (found[static_cast<std::size_t>(role)])
          fail(name, fmt::format("column {} is there twice", name));
        found[static_cast<std::size_t>(role)] = true;
      }
      has_devices_ = has_devices_ || role == kDevice;
      roles_.push_back(role);
    }
    std::string missing;
    for (std::size_t r = 0; r < kNeeded; ++r)
      if (!found[r]) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", kColumns[r]);
    if (std::none_of(found.begin(), found.begin() + kNeeded, [](bool is) { return is; }))
      fail(lines_.text(), fmt::format(
          "no recording of memory begins like this: give a snapshot by "
          "torch.cuda.memory._dump_snapshot, a log of RMM with its first line, {}, or CSV with the "
          "columns {}", kRmmHeader, fmt::join(kNeededColumns, ",")));
    if (!missing.empty())
      fail(lines_.text(), fmt::format("the header line lacks {}: a trace has the columns {}",
                                      missing, fmt::join(kNeededColumns, ",")));
  }

  void read_event() {
    std::array<std::string_view, kRoles> fields;
    const std::string_view text = lines_.text();
    std::string_view left = text;
    std::size_t count = 0;
    for (bool more = true; more; ++count) {
      const std::string_view field = CsvLines::take_field(left, more);
      if (count == roles_.size())
        fail(field, fmt::format("the line has more fields than the header's {}", roles_.size()));
      if (roles_[count] != kIgnored) fields[static_cast<std::size_t>(roles_[count])] = field;
    }
    if (count < roles_.size())
      fail(text.substr(text.size()),
           fmt::format("the line ends after {} of {} fields{}", count, roles_.size(),
                       lines_.at_end() ? ": the file may be truncated" : ""));
    // An empty field is device 0, as a file without the column is; so it is written.
    DevicePart& part = part_of(has_devices_ && fields[kDevice].empty() ? "0" : fields[kDevice]);
    TraceBuilder& builder = *part.builder;
    const std::uint32_t site = site_of(fields);

    const std::string_view op = fields[kOp];
    const auto time_us = number<std::int64_t>(fields[kTime], kTime);
    if (time_us > kMaxTimeUs || time_us < -kMaxTimeUs)
      fail(fields[kTime], fmt::format("time_us {} is out of range", time_us));
    const auto id = number<std::uint64_t>(fields[kId], kId);
    const std::uint64_t backward = builder.backward_steps();
    TraceFault fault = TraceFault::kNone;
    if (op == "alloc") {
      fault = builder.alloc(id, time_us, number<std::uint64_t>(fields[kSize], kSize),
                            number<std::uint64_t>(fields[kStream], kStream), site);
    } else if (op == "free_completed" || op == "free_requested") {
      if (!fields[kSize].empty()) number<std::uint64_t>(fields[kSize], kSize);
      if (!fields[kStream].empty()) number<std::uint64_t>(fields[kStream], kStream);
      fault = builder.free(
          op == "free_completed" ? TraceOp::kFreeCompleted : TraceOp::kFreeRequested, id, time_us,
          site);
    } else if (!read_mark(fields, time_us, id, site, builder)) {
      fail(op, fmt::format("unknown op \"{}\": the ops are alloc, free_requested, "
                           "free_completed, {}",
                           shown_text(op), fmt::join(kMarkOps, ", ")));
    }
    if (fault != TraceFault::kNone) refuse(fault, fields);
    if (builder.backward_steps() != backward && backward == 0)
      part.backward_line = lines_.number();
  }

  // Memory that sleeps or wakes: the id is its address, the tag is its own. Or a cache that was
  // emptied.
  bool read_mark(const std::array<std::string_view, kRoles>& fields, std::int64_t time_us,
                 std::uint64_t id, std::uint32_t site, TraceBuilder& builder) {
    for (const MarkKind kind : kMarks) {
      if (fields[kOp] != mark_kind_name(kind)) continue;
      TraceMark mark;
      mark.kind = kind;
      mark.time_us = time_us;
      mark.address = id;
      mark.size_bytes = number<std::uint64_t>(fields[kSize], kSize);
      if (mark.size_bytes > kMaxRequestBytes) refuse(TraceFault::kTooLarge, fields);
      mark.site = site;
      mark.text = sites_.site(site).tag;
      builder.mark(mark);
      return true;
    }
    return false;
  }

  // The usual case is one device, or the same as in the line before. Names that are written alike
  // are one device.
  DevicePart& part_of(std::string_view name) {
    if (!parts_.empty() && parts_[last_part_].name == name) [[likely]] return parts_[last_part_];
    if (name.find('\r') != std::string_view::npos) return part_of(field_of(name));
    for (last_part_ = 0; last_part_ < parts_.size(); ++last_part_)
      if (parts_[last_part_].name == name) return parts_[last_part_];
    if (parts_.size() == kMaxTraceDevices)
      fail(name, fmt::format("more than {} devices", kMaxTraceDevices));
    parts_.push_back({std::string(name), std::make_unique<TraceBuilder>(trace_name(path_)), 0});
    return parts_.back();
  }

  std::uint32_t site_of(const std::array<std::string_view, kRoles>& fields) {
    if (fields[kThread].empty() && fields[kTag].empty()) return 0;
    Site site;
    if (!fields[kThread].empty()) site.thread = thread_of(fields[kThread]);
    if (!fields[kTag].empty()) site.tag = sites_.add_text(fields[kTag]);
    return sites_.add_site(site);
  }

  // Numbers are what they are; names get numbers in order of first use.
  std::uint32_t thread_of(std::string_view field) {
    std::uint32_t value = 0;
    const char* end = field.data() + field.size();
    const auto [stop, error] = std::from_chars(field.data(), end, value);
    if (error == std::errc() && stop == end) return value;
    return threads_
        .try_emplace(std::string(field), static_cast<std::uint32_t>(threads_.size() + 1))
        .first->second;
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
    fail(lines_.text(), "more live bytes, blocks or streams than a trace can have");
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
      fail(field, fmt::format("{} {} is negative", column, shown_text(field)));
    if (digits && field != "-")
      fail(field, fmt::format("{} {} is too large", column, shown_text(field)));
    fail(field, fmt::format("{} \"{}\" is not a whole number", column, shown_text(field)));
  }

  CsvLines lines_;
  const std::string& path_;
  std::vector<int> roles_;  // by column
  bool has_devices_ = false;
  std::vector<DevicePart> parts_;
  std::size_t last_part_ = 0;
  std::unordered_map<std::string, std::uint32_t> threads_;  // those that have names
  SiteTable sites_;
};

bool is_in_csv(const TraceMark& mark) {
  return std::find(kMarks.begin(), kMarks.end(), mark.kind) != kMarks.end();
}

}  // namespace

std::vector<Trace> parse_csv_devices(std::string_view bytes, const std::string& path) {
  return CsvReader(bytes, path).read();
}

Trace parse_csv(std::string_view bytes, const std::string& path) {
  std::vector<Trace> traces = parse_csv_devices(bytes, path);
  if (traces.size() > 1)
    throw ParseError(path, 0, 0,
                     fmt::format("holds {} devices where one is wanted", traces.size()));
  return std::move(traces[0]);
}

std::string format_csv(std::span<const Trace> traces) {
  bool threads = false;
  bool tags = false;
  bool devices = traces.size() > 1;
  for (const Trace& trace : traces) {
    devices = devices || !trace.device_name.empty() || trace.device != 0;
    for (const TraceMark& mark : trace.marks) tags = tags || (is_in_csv(mark) && mark.text != 0);
    for (std::uint32_t site = 0; site < trace.sites->sites(); ++site) {
      threads = threads || trace.sites->site(site).thread != 0;
      tags = tags || trace.sites->site(site).tag != 0;
    }
  }
  fmt::memory_buffer out;
  const auto end = std::back_inserter(out);
  fmt::format_to(end, "{}{}{}{}\n", fmt::join(kNeededColumns, ","), threads ? ",thread" : "",
                 devices ? ",device" : "", tags ? ",tag" : "");
  for (const Trace& trace : traces) {
    const std::string device =
        trace.device_name.empty() ? fmt::format("{}", trace.device) : field_of(trace.device_name);
    const auto finish_line = [&](std::uint32_t thread, std::uint32_t tag) {
      if (threads) fmt::format_to(end, ",{}", thread);
      if (devices) fmt::format_to(end, ",{}", device);
      if (tags) fmt::format_to(end, ",{}", field_of(trace.sites->text(tag)));
      out.push_back('\n');
    };
    std::size_t mark = 0;
    const auto write_marks = [&](std::size_t until) {
      for (; mark < trace.marks.size() && trace.marks[mark].event <= until; ++mark) {
        const TraceMark& now = trace.marks[mark];
        if (!is_in_csv(now)) continue;
        fmt::format_to(end, "{},{},{},{},0", now.time_us, mark_kind_name(now.kind), now.address,
                       now.size_bytes);
        finish_line(trace.sites->site(now.site).thread, now.text);
      }
    };
    for (std::size_t i = 0; i < trace.events.size(); ++i) {
      stop_if_asked();
      write_marks(i);
      const TraceEvent& event = trace.events[i];
      fmt::format_to(end, "{},{},{},{},{}", event.time_us, trace_op_name(event.op), event.block,
                     event.size_bytes, trace.streams[event.stream]);
      const Site& site = trace.sites->site(event.site);
      finish_line(site.thread, site.tag);
    }
    write_marks(trace.events.size());
  }
  return fmt::to_string(out);
}

std::string format_csv(const Trace& trace) { return format_csv(std::span(&trace, 1)); }

void write_csv(const Trace& trace, const std::string& path) {
  write_file(path, format_csv(trace));
}

}  // namespace tenon
