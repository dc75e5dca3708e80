#include "tenon/memory/gpu/pytorch_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/base/parse_real.h"

namespace tenon {
namespace {

// With more, kMinBlockSize * divisions exceeds 64 bits.
constexpr std::uint64_t kMostDivisions = std::uint64_t{1} << 54;

int log2_floor(std::uint64_t value) { return 63 - std::countl_zero(value); }

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view expected) {
  raise<InvalidArgument>("allocator setting {}: \"{}\" is not accepted; give {}", key, value,
                         expected);
}

std::uint64_t parse_whole(std::string_view key, std::string_view text, std::string_view expected) {
  std::uint64_t value = 0;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) refuse(key, text, expected);
  return value;
}

std::uint64_t parse_mib(std::string_view key, std::string_view text, std::uint64_t least_mib) {
  const std::string expected = fmt::format("whole MiB, {} or more", least_mib);
  const std::uint64_t mib = parse_whole(key, text, expected);
  if (mib < least_mib || mib > (kMaxRequestBytes >> 20)) refuse(key, text, expected);
  return mib << 20;
}

double parse_fraction(std::string_view key, std::string_view text, bool one_allowed) {
  const double value = parse_real(text).value_or(0);
  if (!(value > 0 && (value < 1 || (one_allowed && value == 1))))
    refuse(key, text, one_allowed ? "a number above 0 and up to 1" : "a number between 0 and 1");
  return value;
}

bool parse_flag(std::string_view key, std::string_view text) {
  if (text == "True" || text == "true" || text == "1") return true;
  if (text == "False" || text == "false" || text == "0") return false;
  refuse(key, text, "True or False");
}

// Splits at commas outside of brackets.
std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

std::uint64_t parse_divisions(std::string_view key, std::string_view text) {
  constexpr std::string_view kExpected =
      "0 or a power of two up to 2^54, or a list such as [256:1,512:2,>:8]";
  const std::uint64_t value = parse_whole(key, text, kExpected);
  if (value > kMostDivisions || (value != 0 && !is_power_of_two(value)))
    refuse(key, text, kExpected);
  return value;
}

// "4", or "[256:1,512:2,>:8]": from 256 MiB one division, from 512 MiB two, beyond that eight;
// what lies below the first boundary gets the first value.
void parse_roundup(std::string_view key, std::string_view text, CachingSettings& out) {
  auto& divisions = out.roundup_power2_divisions;
  if (text.empty() || text.front() != '[') {
    divisions.fill(parse_divisions(key, text));
    return;
  }
  if (text.back() != ']') refuse(key, text, "a list that ends with ]");
  auto rest = divisions.begin();  // behind the last boundary
  for (std::string_view entry : split_list(text.substr(1, text.size() - 2))) {
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) refuse(key, entry, "boundary:divisions, such as 256:1");
    const std::string_view boundary = entry.substr(0, colon);
    const std::uint64_t value = parse_divisions(key, entry.substr(colon + 1));
    if (boundary == ">") {
      std::fill(rest, divisions.end(), value);
      return;
    }
    const std::uint64_t mib = parse_whole(key, boundary, "a boundary in MiB, or >");
    if (!is_power_of_two(mib) || log2_floor(mib) >= CachingSettings::kRoundupIntervals)
      refuse(key, boundary, "a boundary in MiB that is a power of two up to 32768");
    const auto at = divisions.begin() + log2_floor(mib);
    if (rest == divisions.begin()) std::fill(rest, at, value);
    *at = value;
    rest = at + 1;
  }
}

using Parser = std::function<void(std::string_view key, std::string_view value, CachingSettings&)>;

void ignore_flag(std::string_view key, std::string_view value, CachingSettings&) {
  parse_flag(key, value);
}

void ignore_mib(std::string_view key, std::string_view value, CachingSettings&) {
  parse_mib(key, value, 0);
}

const std::map<std::string_view, Parser>& parsers() {
  static const std::map<std::string_view, Parser> kParsers = {
      {"max_split_size_mb",
       [](auto key, auto value, auto& s) {
         s.max_split_size = parse_mib(key, value, s.large_segment_size >> 20);
       }},
      {"max_non_split_rounding_mb",
       [](auto key, auto value, auto& s) {
         s.max_non_split_rounding = parse_mib(key, value, s.large_segment_size >> 20);
       }},
      {"large_segment_size_mb",
       [](auto key, auto value, auto& s) {
         s.large_segment_size = parse_mib(key, value, (kMinLargeAlloc >> 20) + 1);
         s.max_non_split_rounding = s.large_segment_size;
       }},
      {"roundup_power2_divisions", parse_roundup},
      {"garbage_collection_threshold",
       [](auto key, auto value, auto& s) {
         s.garbage_collection_threshold = parse_fraction(key, value, false);
       }},
      {"per_process_memory_fraction",
       [](auto key, auto value, auto& s) {
         s.per_process_memory_fraction = parse_fraction(key, value, true);
       }},
      {"expandable_segments",
       [](auto key, auto value, auto& s) { s.expandable_segments = parse_flag(key, value); }},
      {"backend",
       [](auto key, auto value, auto&) {
         if (value != "native" && value != "cudaMallocAsync")
           refuse(key, value, "native or cudaMallocAsync");
       }},
      {"release_lock_on_cudamalloc", ignore_flag},
      {"graph_capture_record_stream_reuse", ignore_flag},
      {"throw_on_cudamalloc_oom", ignore_flag},
      {"pinned_use_cuda_host_register", ignore_flag},
      {"pinned_use_hip_host_register", ignore_flag},
      {"pinned_use_background_threads", ignore_flag},
      {"pinned_num_register_threads",
       [](auto key, auto value, auto&) {
         const auto threads = parse_whole(key, value, "a power of two up to 128");
         if (!is_power_of_two(threads) || threads > 128)
           refuse(key, value, "a power of two up to 128");
       }},
      {"pinned_free_catch_all", ignore_flag},
      {"pinned_reserve_segment_size_mb", ignore_mib},
      {"pinned_max_round_threshold_mb", ignore_mib},
      {"pinned_max_cached_size_mb", ignore_mib},
      // PyTorch ignores values of these that it cannot read.
      {"expandable_segments_reserve", [](auto, auto, auto&) {}},
      {"expandable_segments_reserve_by_class", [](auto, auto, auto&) {}},
  };
  return kParsers;
}

void parse_item(std::string_view item, CachingSettings& settings) {
  const std::size_t colon = item.find(':');
  const std::string_view key = item.substr(0, colon);
  const auto parser = parsers().find(key);
  if (parser == parsers().end()) {
    std::vector<std::string_view> known;
    for (const auto& [name, parse] : parsers()) known.push_back(name);
    raise<InvalidArgument>("\"{}\" is no allocator setting; known are {}", key,
                           fmt::join(known, ", "));
  }
  if (colon == std::string_view::npos || colon + 1 == item.size())
    refuse(key, "", fmt::format("a value, as in {}:VALUE", key));
  parser->second(key, item.substr(colon + 1), settings);
}

}  // namespace

// Accepts the values that c10/core/AllocatorConfig.cpp of PyTorch 2.11 accepts:
// large_segment_size_mb is read first, and max_split_size_mb and max_non_split_rounding_mb must not
// be below it (PyTorch before 2.9 refuses 20 MiB too). The default of max_non_split_rounding_mb is
// large_segment_size_mb.
CachingSettings parse_caching_settings(std::string_view conf) {
  CachingSettings settings;
  std::string text(conf);
  std::erase_if(text, [](char c) { return c == ' ' || c == '\t' || c == '\n'; });
  if (text.empty()) return settings;
  const std::vector<std::string_view> items = split_list(text);
  for (const bool segments : {true, false})  // large_segment_size_mb bounds the others
    for (const std::string_view item : items)
      if (!item.empty() && item.starts_with("large_segment_size_mb:") == segments)
        parse_item(item, settings);
  return settings;
}

std::uint64_t CachingSettings::round_size(std::uint64_t size_bytes) const {
  if (size_bytes < kMinBlockSize) return kMinBlockSize;
  const int interval = std::max(0, log2_floor(size_bytes) - log2_floor(kMiB));
  const std::uint64_t divisions =
      roundup_power2_divisions[std::min(interval, kRoundupIntervals - 1)];
  if (divisions <= 1 || size_bytes <= kMinBlockSize * divisions)
    return align_up(size_bytes, kMinBlockSize);
  // The step between this power of two and the next, in `divisions` equal parts.
  const std::uint64_t step = std::bit_floor(size_bytes) / divisions;
  return align_up(size_bytes, step);
}

std::uint64_t CachingSettings::segment_size(std::uint64_t rounded) const {
  if (rounded <= kSmallSize) return kSmallSegment;
  if (rounded < kMinLargeAlloc) return large_segment_size;
  return align_up(rounded, kRoundLarge);
}

}  // namespace tenon
