#include "tenon/trace/rmm_csv.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>
#include <unordered_map>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/trace/csv_lines.h"
#include "tenon/trace/trace_builder.h"

namespace tenon {
namespace {

constexpr std::int64_t kSecondUs = 1'000'000;
constexpr std::int64_t kDayUs = 24 * 3600 * kSecondUs;

class RmmReader {
 public:
  RmmReader(std::string_view bytes, const std::string& path)
      : lines_(bytes, path), path_(path),
        builder_(trace_name(path), TraceBuilder::Keys::kAddresses) {}

  Trace read() {
    lines_.next();  // the header, which brought the file here
    while (lines_.next())
      if (!lines_.text().empty()) read_line();
    if (mended_ > 0)
      builder_.warn(fmt::format("{}: {} lines contradict earlier ones and were mended", path_,
                                mended_));
    if (early_ > 0)
      builder_.warn(fmt::format("{}: {} blocks were live before the log began", path_, early_));
    if (builder_.backward_steps() > 0)
      builder_.warn(fmt::format("{}: time runs backwards ({} times); the order of lines counts",
                                path_, builder_.backward_steps()));
    return builder_.finish(std::make_shared<const SiteTable>(std::move(sites_)));
  }

 private:
  enum Field { kThread, kTime, kAction, kPointer, kSize, kStream, kFields };
  using Fields = std::array<std::string_view, kFields>;

  void read_line() {
    Fields fields;
    std::string_view left = lines_.text();
    std::size_t count = 0;
    for (bool more = true; more; ++count) {
      const std::string_view field = CsvLines::take_field(left, more);
      if (count == kFields) lines_.fail(field, "the line has more than the 6 fields of RMM's logs");
      fields[count] = field;
    }
    if (count < kFields)
      lines_.fail(lines_.text().substr(lines_.text().size()),
                  fmt::format("the line ends after {} of {} fields{}", count,
                              static_cast<int>(kFields),
                              lines_.at_end() ? ": the file may be truncated" : ""));
    const std::int64_t time_us = time_of(fields[kTime]);
    const std::uint32_t site = sites_.add_site({0, 0, thread_of(fields[kThread])});
    const std::uint64_t size = number(fields[kSize], "the size", 10);
    const std::uint64_t stream = number(fields[kStream], "the stream", 16);
    if (fields[kAction] == "allocate") {
      allocate(number(fields[kPointer], "the pointer", 16), time_us, size, stream, site, fields);
    } else if (fields[kAction] == "free") {
      free(number(fields[kPointer], "the pointer", 16), time_us, size, stream, site, fields);
    } else {
      TraceMark mark;
      mark.time_us = time_us;
      mark.size_bytes = size;
      mark.stream = stream;
      mark.site = site;
      if (fields[kAction] == "allocate failure") {
        mark.kind = MarkKind::kOutOfMemory;
      } else {
        mark.text = sites_.add_text(fields[kAction]);
      }
      builder_.mark(mark);
    }
  }

  void allocate(std::uint64_t pointer, std::int64_t time_us, std::uint64_t size,
                std::uint64_t stream, std::uint32_t site, const Fields& fields) {
    if (pointer == 0 && size == 0) return;  // requests of no bytes get no pointer
    TraceFault fault = builder_.alloc(pointer, time_us, size, stream, site);
    if (fault == TraceFault::kLiveAlready) {
      ++mended_;
      builder_.free(TraceOp::kFreeCompleted, pointer, time_us, site);
      fault = builder_.alloc(pointer, time_us, size, stream, site);
    }
    check(fault, fields);
  }

  void free(std::uint64_t pointer, std::int64_t time_us, std::uint64_t size, std::uint64_t stream,
            std::uint32_t site, const Fields& fields) {
    if (pointer == 0) return;
    TraceFault fault = builder_.free(TraceOp::kFreeCompleted, pointer, time_us, site);
    if (fault == TraceFault::kUnknown) {
      ++early_;
      check(builder_.live_from_start(pointer, size, stream), fields);
      fault = builder_.free(TraceOp::kFreeCompleted, pointer, time_us, site);
    }
    if (fault == TraceFault::kFreedAlready) {
      ++mended_;
      return;
    }
    check(fault, fields);
  }

  void check(TraceFault fault, const Fields& fields) const {
    if (fault == TraceFault::kTooLarge)
      lines_.fail(fields[kSize], fmt::format("size {} is too large: no request may exceed {}",
                                             fields[kSize], format_byte_size(kMaxRequestBytes)));
    if (fault != TraceFault::kNone)
      lines_.fail(lines_.text(), "more live bytes, blocks or streams than a trace can have");
  }

  std::uint64_t number(std::string_view field, std::string_view what, int base) const {
    std::string_view digits = field;
    if (base == 16 && (digits.starts_with("0x") || digits.starts_with("0X")))
      digits.remove_prefix(2);
    if (digits == "(nil)" || digits == "(null)") return 0;
    std::uint64_t value = 0;
    const auto [stop, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || stop != digits.data() + digits.size())
      lines_.fail(field, fmt::format("{} \"{}\" is no number{}", what, shown_text(field),
                                     base == 16 ? " in hexadecimal" : ""));
    return value;
  }

  // Microseconds since the midnight before the log began. A time of day that falls by more than
  // half a day is the next day's.
  std::int64_t time_of(std::string_view field) {
    std::array<std::int64_t, 4> parts = {};
    std::size_t part = 0;
    const char* at = field.data();
    const char* const end = at + field.size();
    while (part < parts.size()) {
      const auto [stop, error] = std::from_chars(at, end, parts[part]);
      if (error != std::errc() || parts[part] < 0 || parts[part] > kSecondUs) break;
      ++part;
      at = stop;
      if (at == end || (*at != ':' && *at != '.')) break;
      ++at;
    }
    if (at != end || part < 3)
      lines_.fail(field, fmt::format("the time \"{}\" is not like 16:22:05:123456",
                                     shown_text(field)));
    std::int64_t now =
        ((parts[0] * 60 + parts[1]) * 60 + parts[2]) * kSecondUs + parts[3] + day_us_;
    if (now < latest_us_ - kDayUs / 2) {
      day_us_ += kDayUs;
      now += kDayUs;
    }
    latest_us_ = now;
    if (!first_us_known_) first_us_ = now;
    first_us_known_ = true;
    return now - first_us_;
  }

  std::uint32_t thread_of(std::string_view field) {
    const auto [found, fresh] =
        threads_.try_emplace(std::string(field), static_cast<std::uint32_t>(threads_.size() + 1));
    return found->second;
  }

  CsvLines lines_;
  const std::string& path_;
  TraceBuilder builder_;
  SiteTable sites_;
  std::unordered_map<std::string, std::uint32_t> threads_;
  std::int64_t day_us_ = 0;
  std::int64_t latest_us_ = 0;
  std::int64_t first_us_ = 0;
  bool first_us_known_ = false;
  std::uint64_t mended_ = 0;
  std::uint64_t early_ = 0;
};

}  // namespace

bool looks_like_rmm_csv(std::string_view bytes) {
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  return bytes.starts_with(kRmmHeader);
}

Trace parse_rmm_csv(std::string_view bytes, const std::string& path) {
  return RmmReader(bytes, path).read();
}

}  // namespace tenon
