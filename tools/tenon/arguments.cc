#include "arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/trace.h"

namespace tenon::command {
namespace {

// Every page that tenon writes has a mark, <meta name="tenon-...">, in so many bytes.
constexpr std::size_t kPageMarkWithin = 1024;

}  // namespace

std::uint64_t parse_size(std::string_view option, const std::string& text) {
  const std::size_t last = text.find_last_not_of(" \t");
  const bool no_unit = last != std::string::npos && text.find_first_not_of(" \t0123456789.") ==
                                                        std::string::npos;
  const std::uint64_t size_bytes = read_option(option, [&] { return parse_byte_size(text); });
  if (size_bytes == 0)
    throw InvalidArgument(fmt::format("{} {}: give at least one byte, like 24GiB", option, text));
  if (no_unit)
    throw InvalidArgument(fmt::format(
        "{0} {1}: the size has no unit ({3}); write {2}{1}MiB or {1}GiB", option, text,
        text.find('.') == text.npos ? text + "B, " : "", kByteUnits));
  return size_bytes;
}

std::uint64_t parse_problem_size(std::string_view option, const std::string& text) {
  const bool whole = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return parse_size(option, whole ? text + "B" : text);
}

const Trace& trace_of_device(const std::vector<Trace>& traces, std::int64_t device,
                             const std::string& file) {
  if (device == kAnyDevice && !traces.empty()) return traces.front();
  std::vector<std::uint32_t> known;
  for (const Trace& trace : traces) {
    if (trace.device == device) return trace;
    known.push_back(trace.device);
  }
  throw InvalidArgument(fmt::format("--device {}: {} has no events of device {}; it has events of "
                                    "device{} {}",
                                    device, file, device, known.size() == 1 ? "" : "s",
                                    fmt::join(known, ", ")));
}

std::uint64_t parse_duration_ns(std::string_view option, std::string_view text) {
  constexpr double kLongestNs = 3600e9;
  static constexpr std::array<std::pair<std::string_view, double>, 4> kUnits = {
      {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  std::string_view unit = end;
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  double scale = end != copy.c_str() && unit.empty() && number == 0 ? 1 : 0;
  for (const auto& [name, factor] : kUnits)
    if (end != copy.c_str() && unit == name) scale = factor;
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(fmt::format(
        "{}: \"{}\" is no duration: {}; write a number with ns, us, ms or s, from 0 to 3600s",
        option, text, why));
  };
  if (end == copy.c_str() || !std::isfinite(number)) refuse("it does not start with a number");
  if (scale == 0 && unit.empty())
    throw InvalidArgument(fmt::format(
        "{0} {1}: the duration has no unit (ns, us, ms, s); write {1}ms or {1}s", option, text));
  if (scale == 0) refuse(fmt::format("\"{}\" is no unit", unit));
  const double nanoseconds = number * scale;
  if (!(nanoseconds >= 0)) refuse("it is below 0");
  if (nanoseconds > kLongestNs) refuse("it is more than an hour");
  return static_cast<std::uint64_t>(std::llround(nanoseconds));
}

std::vector<std::string> parse_policies(const std::vector<std::string>& lists) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& list : lists) {
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t comma = std::min(list.find(',', at), list.size());
      const std::string name = list.substr(at, comma - at);
      at = comma + 1;
      if (name == "all") {
        for (const Policy& policy : policies()) add(policy.name);
      } else {
        add(read_option("--policy", [&] { return find_policy(name).name; }));
      }
    }
  }
  return names;
}

void require_other_file(const std::string& output, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code missing;  // then they are not the same
    if (std::filesystem::equivalent(output, input, missing))
      throw InvalidArgument(
          fmt::format("the output, {}, is a file that is read: give another name", output));
  }
}

void require_answer_file(const std::string& output, const std::vector<std::string>& inputs) {
  require_other_file(output, inputs);
  for (const char* ending : {".pickle", ".pkl", ".csv", ".csv.zst", ".csv.gz", ".plan"})
    if (output.ends_with(ending))
      throw InvalidArgument(fmt::format(
          "the output, {}, has the ending of a recording or plan: give another name", output));
}

std::string page_file(const std::string& given, const std::string& standard,
                      const std::vector<std::string>& inputs) {
  const std::string& page = given.empty() ? standard : given;
  require_answer_file(page, inputs);
  if (!given.empty() || !std::filesystem::is_regular_file(page)) return page;
  std::string beginning(kPageMarkWithin, '\0');
  std::ifstream(page).read(beginning.data(), kPageMarkWithin);
  if (beginning.find("<meta name=\"tenon-") == beginning.npos)
    throw InvalidArgument(fmt::format(
        "{} exists and is no page of tenon: move it away, or name the page with -o", page));
  return page;
}

}  // namespace tenon::command
