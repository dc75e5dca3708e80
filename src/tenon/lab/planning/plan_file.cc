#include "tenon/lab/planning/plan_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/base/hash.h"
#include "tenon/trace/csv_lines.h"

namespace tenon {
namespace {

constexpr std::string_view kMagic = "tenon-plan ";
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kMostPlanStreams = 4096;

class PlanReader {
 public:
  PlanReader(std::string_view bytes, const std::string& path)
      : all_(bytes), rest_(bytes), path_(path) {}

  Plan read() {
    next_line();
    const std::uint64_t version = keyed("tenon-plan", ~std::uint64_t{0});
    if (version != kVersion)
      fail(fmt::format("a plan of version {}; this program reads version {}", version, kVersion));
    next_line();
    const std::uint64_t unit = keyed("unit", kMaxRequestBytes);
    if (!is_power_of_two(unit)) fail(fmt::format("a unit of {} bytes is no power of two", unit));
    Plan plan(unit);
    next_line();
    const std::uint64_t shared = keyed("shared", 1);
    plan.set_shared(shared == 1);
    next_line();
    const std::uint64_t streams = keyed("streams", kMostPlanStreams);
    for (std::uint64_t i = 0; i < streams; ++i) read_stream(plan);
    read_end();
    return plan;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw ParseError(path_, line_, 1, reason);
  }

  void next_line() {
    ++line_;
    const std::size_t end = rest_.substr(0, kMostLineBytes).find('\n');
    if (end == std::string_view::npos) fail("the plan ends in the middle: the file is cut");
    text_ = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
  }

  // Takes the next word off the line: up to a space, or the end.
  std::string_view word() {
    const std::size_t end = std::min(text_.find(' '), text_.size());
    const std::string_view taken = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    return taken;
  }

  std::uint64_t number(std::string_view what, std::uint64_t most) {
    const std::string_view digits = word();
    std::uint64_t value = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || value > most)
      fail(fmt::format("{} must be a whole number up to {}", what, most));
    return value;
  }

  std::uint64_t key_and_number(std::string_view key, std::uint64_t most) {
    if (word() != key) fail(fmt::format("expected \"{}\" here", key));
    return number(key, most);
  }

  // A line of a key and a number.
  std::uint64_t keyed(std::string_view key, std::uint64_t most) {
    const std::uint64_t value = key_and_number(key, most);
    if (!text_.empty()) fail(fmt::format("something follows the number of \"{}\"", key));
    return value;
  }

  void read_stream(Plan& plan) {
    next_line();
    const std::uint64_t id = key_and_number("stream", kMostPlanStreams - 1);
    // A slot takes four bytes of the file at least, so a hostile count reserves no memory.
    const std::uint64_t count = key_and_number("slots", rest_.size() / 4);
    const std::uint64_t loop_begin = key_and_number("loop", count == 0 ? 0 : count - 1);
    if (!text_.empty()) fail("something follows the stream's numbers");
    if (plan.stream(static_cast<std::uint32_t>(id)) != nullptr)
      fail(fmt::format("stream {} comes twice", id));
    const std::uint64_t most = kMaxRequestBytes / plan.unit_bytes();
    std::vector<PlanSlot> slots;
    slots.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      next_line();
      const std::uint64_t offset = number("the offset", Plan::kMaxBytes / plan.unit_bytes());
      const std::uint64_t size = number("the size", most);
      if (!text_.empty()) fail("something follows offset and size");
      slots.push_back({offset * plan.unit_bytes(), size * plan.unit_bytes()});
    }
    try {
      plan.set_stream(static_cast<std::uint32_t>(id), std::move(slots), loop_begin);
    } catch (const InvalidArgument& error) {
      fail(error.what());
    }
  }

  void read_end() {
    const std::string_view before = all_.substr(0, all_.size() - rest_.size());
    next_line();
    const std::string expected = fmt::format("end {:016x}", hash_of_text(before));
    if (text_ != expected)
      fail("the hash in the last line is another one: the file was damaged or changed");
    if (!rest_.empty()) fail("something follows the end of the plan");
  }

  const std::string_view all_;
  std::string_view rest_;
  const std::string& path_;
  std::string_view text_;  // the rest of the line
  std::uint64_t line_ = 0;
};

}  // namespace

std::string format_plan(const Plan& plan) {
  const std::uint64_t unit = plan.unit_bytes();
  std::string out = fmt::format("{}{}\nunit {}\nshared {}\nstreams {}\n", kMagic, kVersion, unit,
                                plan.shared() ? 1 : 0, plan.streams().size());
  for (const auto& [id, stream] : plan.streams()) {
    out += fmt::format("stream {} slots {} loop {}\n", id, stream.slots.size(), stream.loop_begin);
    for (const PlanSlot& slot : stream.slots)
      out += fmt::format("{} {}\n", slot.offset / unit, slot.size / unit);
  }
  return out + fmt::format("end {:016x}\n", hash_of_text(out));
}

Plan parse_plan(std::string_view bytes, const std::string& path) {
  return PlanReader(bytes, path).read();
}

bool looks_like_plan(std::string_view bytes) { return bytes.starts_with(kMagic); }

}  // namespace tenon
