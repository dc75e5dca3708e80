#include "tenon/lab/advice/recorded_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

using Fields = std::map<std::string, std::string, std::less<>>;

std::string field(const Fields& fields, std::string_view name) {
  const auto at = fields.find(name);
  return at == fields.end() ? std::string() : at->second;
}

// "{1: 0, 2: 0, 4: 8, ...}" -> "[1:0,2:0,4:8]"; empty where all are 0, or the text was cut.
std::string roundup_list(std::string_view text) {
  if (!text.starts_with('{') || !text.ends_with('}')) return {};
  std::string list;
  bool any = false;
  for (const char c : text.substr(1, text.size() - 2)) {
    if (c == '.') return {};
    if (c != ' ') list += c;
  }
  for (std::size_t at = list.find(':'); at != std::string::npos; at = list.find(':', at + 1))
    any |= list[at + 1] != '0';
  return any ? "roundup_power2_divisions:[" + list + "]" : std::string();
}

std::string conf_of_values(const Fields& fields) {
  std::string conf;
  const auto add = [&](const std::string& item) {
    if (!item.empty()) conf += (conf.empty() ? "" : ",") + item;
  };
  if (field(fields, "expandable_segments") == "True") add("expandable_segments:True");
  const std::string split = field(fields, "max_split_size");
  std::int64_t split_bytes = -1;
  std::from_chars(split.data(), split.data() + split.size(), split_bytes);
  if (split_bytes > 0) add(fmt::format("max_split_size_mb:{}", split_bytes >> 20));
  const std::string threshold = field(fields, "garbage_collection_threshold");
  if (!threshold.empty() && threshold.find_first_of("123456789") != std::string::npos)
    add("garbage_collection_threshold:" + threshold);
  add(roundup_list(field(fields, "roundup_power2_divisions")));
  return conf;
}

}  // namespace

RecordedSettings recorded_settings(const Snapshot& snapshot) {
  RecordedSettings found;
  const Fields fields(snapshot.settings.begin(), snapshot.settings.end());
  found.known = !fields.empty();
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"})
    if (found.conf.empty()) found.conf = field(fields, name);
  if (found.conf.empty()) found.conf = conf_of_values(fields);
  if (!found.known && std::any_of(snapshot.segments.begin(), snapshot.segments.end(),
                                  [](const SnapshotSegment& s) { return s.expandable; })) {
    found.known = true;
    found.conf = "expandable_segments:True";
  }
  try {
    found.settings = parse_caching_settings(found.conf);
  } catch (const InvalidArgument& error) {
    found.warning = fmt::format("the recording's settings, \"{}\", cannot be replayed ({}); "
                                "PyTorch's defaults are assumed",
                                found.conf, error.what());
    found.conf.clear();
    found.known = false;
  }
  return found;
}

namespace {

// Names of fields are from the Linux wheels on PyPI, 2.0.1 to 2.15.0.
std::optional<TorchVersion> oldest_writer(const Snapshot& snapshot) {
  const auto has_setting = [&](std::string_view name) {
    return std::any_of(snapshot.settings.begin(), snapshot.settings.end(),
                       [&](const auto& setting) { return setting.first == name; });
  };
  const auto has_field = [&](std::string_view name) {
    return std::find(snapshot.fields.begin(), snapshot.fields.end(), name) !=
           snapshot.fields.end();
  };
  if (has_field("host_segments")) return TorchVersion{2, 14};
  if (has_setting("max_round_threshold")) return TorchVersion{2, 13};
  if (has_field("pool_id")) return TorchVersion{2, 12};
  if (has_setting("graph_capture_record_stream_reuse")) return TorchVersion{2, 9};
  if (has_field("external_annotations")) return TorchVersion{2, 5};
  if (has_field("allocator_settings")) return TorchVersion{2, 3};
  if (has_field("is_expandable")) return TorchVersion{2, 1};
  if (has_field("segments") && !snapshot.segments.empty()) return kFirstTorch;
  return std::nullopt;
}

}  // namespace

std::optional<TorchVersion> oldest_torch(const Snapshot& snapshot) {
  const std::optional<TorchVersion> writer = oldest_writer(snapshot);
  if (!writer) return std::nullopt;
  return std::max(*writer, accepted_since(recorded_settings(snapshot).conf));
}

void replay_as(TorchVersion version, Snapshot& snapshot) {
  for (Trace& trace : snapshot.traces)
    trace.oldest_segment_first = version >= kOldestSegmentFirst;
}

namespace {

struct Held {
  std::uint64_t at_mark = 0;
  std::uint64_t most = 0;
};

// What was held before the mark with this number, and most from then on: marks are undone from the
// end.
std::optional<Held> held_since(const Snapshot& snapshot, const Trace& trace, std::size_t first) {
  Held held;
  bool any = false;
  for (const SnapshotSegment& segment : snapshot.segments) {
    if (segment.device != trace.device) continue;
    any = true;
    held.at_mark += segment.total_bytes;
  }
  held.most = held.at_mark;
  for (std::size_t i = trace.marks.size(); i-- > first;) {
    const TraceMark& mark = trace.marks[i];
    any |= memory_came(mark.kind) || memory_went(mark.kind);
    if (memory_came(mark.kind)) held.at_mark -= std::min(held.at_mark, mark.size_bytes);
    if (memory_went(mark.kind)) held.at_mark += mark.size_bytes;
    held.most = std::max(held.most, held.at_mark);
  }
  if (!any) return std::nullopt;
  return held;
}

}  // namespace

std::optional<std::uint64_t> recorded_reserved_at(const Snapshot& snapshot, const Trace& trace,
                                                  std::size_t mark) {
  const std::optional<Held> held = held_since(snapshot, trace, mark + 1);
  return held ? std::optional(held->at_mark) : std::nullopt;
}

std::string contradiction(const Snapshot& snapshot, const Trace& trace, const Moment& live_peak) {
  if (std::none_of(snapshot.segments.begin(), snapshot.segments.end(),
                   [&](const SnapshotSegment& each) { return each.device == trace.device; }))
    return {};
  const auto later =
      std::find_if(trace.marks.begin(), trace.marks.end(),
                   [&](const TraceMark& mark) { return mark.event >= live_peak.events; });
  const std::uint64_t reserved_bytes =
      held_since(snapshot, trace, static_cast<std::size_t>(later - trace.marks.begin()))->at_mark;
  if (reserved_bytes >= live_peak.bytes) return {};
  return fmt::format(
      "The recording contradicts itself: {} were live while PyTorch held {}. The file was edited "
      "or damaged; advice that follows from it may be wrong.",
      format_byte_size(live_peak.bytes), format_byte_size(reserved_bytes));
}

std::optional<std::uint64_t> recorded_reserved_peak(const Snapshot& snapshot, const Trace& trace) {
  if (trace.most_reserved_bytes != 0) return trace.most_reserved_bytes;
  const std::optional<Held> held = held_since(snapshot, trace, 0);
  return held ? std::optional(held->most) : std::nullopt;
}

std::size_t times_full(const Snapshot& snapshot, const Trace& trace) {
  if (recorded_settings(snapshot).conf.find("garbage_collection_threshold") != std::string::npos)
    return 0;
  const std::vector<TraceMark>& marks = trace.marks;
  std::size_t times = 0;
  for (std::size_t i = 1; i < marks.size(); ++i)
    times += memory_went(marks[i - 1].kind) && memory_came(marks[i].kind) &&
             marks[i].event == marks[i - 1].event && marks[i].site == marks[i - 1].site &&
             trace.sites->site(marks[i].site).stack != 0;
  return times;
}

}  // namespace tenon
