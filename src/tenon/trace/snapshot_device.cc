#include "tenon/trace/snapshot_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/trace/emptied_cache.h"

namespace tenon {
namespace {

constexpr std::string_view kWhat = "a trace entry";
// Absolute microseconds, and 53 bits hold two centuries of them.
constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << 53) - 1;

std::uint64_t any_number(const PickleValue& value) {
  if (const auto number = value.as_uint64()) return *number;
  return static_cast<std::uint64_t>(value.as_int64().value_or(0));
}

bool is_event(std::string_view action) {
  return action == "alloc" || action == "free_requested" || action == "free_completed";
}

}  // namespace

// One entry's fields.
struct SnapshotDevice::Entry {
  std::string_view action;
  std::optional<std::uint64_t> address;
  std::optional<std::uint64_t> size_bytes;
  std::optional<std::uint64_t> device_free_bytes;
  std::uint64_t stream = 0;
  std::int64_t time_us = 0;
  std::uint32_t stack = 0;
  std::uint32_t site = 0;
};

SnapshotDevice::SnapshotDevice(SnapshotFields& fields, SnapshotFigures& figures,
                               const std::string& path, std::size_t device)
    : fields_(fields),
      figures_(figures),
      path_(path),
      device_(device),
      builder_(make_builder()) {
  for (std::size_t i = 0; i < figures_.frame_bytes.size(); ++i)
    frame_places_.emplace(figures_.frame_bytes[i].first, i);
}

TraceBuilder SnapshotDevice::make_builder() const {
  return TraceBuilder(fmt::format("{}:{}", trace_name(path_), device_),
                      TraceBuilder::Keys::kAddresses);
}

SnapshotDevice::Entry SnapshotDevice::parse(const PickleValue& value) {
  Entry entry;
  std::uint64_t now_us = 0;
  std::string_view metadata;
  std::string_view context;
  for (const auto& [key, field] : fields_.fields(value, kWhat)) {
    const auto found = key.as_string();
    const std::string_view name = found ? *found : std::string_view();
    if (name == "action") {
      entry.action = fields_.text(field, name, kWhat);
    } else if (name == "addr") {
      entry.address = field.as_uint64();
    } else if (name == "size") {
      entry.size_bytes = field.as_uint64();
    } else if (name == "stream") {
      entry.stream = any_number(field);
    } else if (name == "time_us") {
      now_us = any_number(field) & kTimeMask;
    } else if (name == "frames") {
      entry.stack = fields_.stack(field);
    } else if (name == "device_free") {
      entry.device_free_bytes = field.as_uint64();
    } else if (name == "pool_id") {
      names_pools_ = true;
    } else if (name == "user_metadata") {
      metadata = field.as_string().value_or("").substr(0, SnapshotFields::kMaxText);
    } else if (name == "compile_context") {
      context = field.as_string().value_or("").substr(0, SnapshotFields::kMaxText);
    } else {
      fields_.note_unknown(key, kWhat);
    }
  }
  if (entry.action.empty())
    fields_.fail(fmt::format("{}: \"action\" is missing or no short string", kWhat));
  if (context == "N/A") context = {};
  std::uint32_t tag = 0;
  if (!metadata.empty() || !context.empty())
    tag = fields_.sites().add_text(
        context.empty()    ? std::string(metadata)
        : metadata.empty() ? fmt::format("compile {}", context)
                           : fmt::format("{}; compile {}", metadata, context));
  if (entry.stack != 0 || tag != 0) entry.site = fields_.sites().add_site({entry.stack, tag, 0});
  if (!first_us_ && is_event(entry.action)) first_us_ = static_cast<std::int64_t>(now_us);
  entry.time_us = static_cast<std::int64_t>(now_us) - first_us_.value_or(0);
  return entry;
}

void SnapshotDevice::read_entry(const PickleValue& value) {
  const Entry entry = parse(value);
  ++entries_;
  count(entry);
  if (is_event(entry.action)) {
    read_event(entry);
  } else {
    read_mark(entry);
  }
}

void SnapshotDevice::count(const Entry& entry) {
  const auto known = figures_.actions.find(entry.action);
  if (known != figures_.actions.end()) {
    ++known->second;
  } else {
    figures_.actions.emplace(entry.action, 1);
  }
  if (entry.action != "alloc" || entry.stack == 0) return;
  const std::uint32_t frame = fields_.sites().stack(entry.stack).front();
  const auto [place, fresh] = frame_places_.try_emplace(frame, figures_.frame_bytes.size());
  if (fresh) figures_.frame_bytes.emplace_back(frame, 0);
  figures_.frame_bytes[place->second].second += entry.size_bytes.value_or(0);
}

void SnapshotDevice::read_mark(const Entry& entry) {
  static const std::map<std::string_view, MarkKind> kKinds = {
      {"segment_alloc", MarkKind::kSegmentAlloc}, {"segment_free", MarkKind::kSegmentFree},
      {"segment_map", MarkKind::kSegmentMap},     {"segment_unmap", MarkKind::kSegmentUnmap},
      {"oom", MarkKind::kOutOfMemory},            {"snapshot", MarkKind::kSnapshot},
      {"sleep_to_host", MarkKind::kSleepToHost},  {"sleep_dropped", MarkKind::kSleepDropped},
      {"wake", MarkKind::kWake},                  {"empty_cache", MarkKind::kEmptyCache}};
  TraceMark mark;
  mark.time_us = entry.time_us;
  mark.address = entry.address.value_or(0);
  mark.size_bytes = entry.size_bytes.value_or(0);
  mark.stream = entry.stream;
  mark.site = entry.site;
  const auto kind = kKinds.find(entry.action);
  if (kind != kKinds.end()) {
    mark.kind = kind->second;
    if (is_sleep(mark.kind) || mark.kind == MarkKind::kWake)
      mark.text = fields_.sites().site(mark.site).tag;
  } else {
    mark.text = fields_.sites().add_text(entry.action);
    note_unknown(entry.action);
  }
  if (mark.kind == MarkKind::kOutOfMemory) {
    mark.device_free_bytes = entry.device_free_bytes.value_or(TraceMark::kUnknown);
    mark.address = 0;
    if (++ooms_ == 1)
      first_oom_ = fmt::format("when {} were asked for after {} events",
                               format_byte_size(mark.size_bytes), builder_.events());
  }
  if (!first_us_) ++absolute_marks_;
  builder_.mark(mark);
}

void SnapshotDevice::note_unknown(std::string_view action) {
  constexpr std::size_t kMostNamed = 16;
  const auto known = unknown_.find(action);
  if (known != unknown_.end()) {
    ++known->second;
  } else if (unknown_.size() < kMostNamed) {
    unknown_.emplace(action, 1);
  } else {
    ++unknown_others_;
  }
}

void SnapshotDevice::read_event(const Entry& entry) {
  if (!entry.address)
    fields_.fail(fmt::format("{}: \"addr\" is missing or no number from 0 to 2^64", kWhat));
  if (!entry.size_bytes)
    fields_.fail(fmt::format("{}: \"size\" is missing or no number from 0 to 2^64", kWhat));
  const std::uint64_t address = *entry.address;
  if (entry.action == "alloc") {
    TraceFault fault =
        builder_.alloc(address, entry.time_us, *entry.size_bytes, entry.stream, entry.site);
    if (fault == TraceFault::kLiveAlready) {  // its free is not in the recording
      ++mended_;
      check(builder_.free(TraceOp::kFreeCompleted, address, entry.time_us));
      fault = builder_.alloc(address, entry.time_us, *entry.size_bytes, entry.stream, entry.site);
    }
    check(fault);
    return;
  }
  const TraceOp op =
      entry.action == "free_requested" ? TraceOp::kFreeRequested : TraceOp::kFreeCompleted;
  TraceFault fault = builder_.free(op, address, entry.time_us, entry.site);
  if (fault == TraceFault::kUnknown) {
    ++early_;
    check(builder_.live_from_start(address, *entry.size_bytes, entry.stream));
    fault = builder_.free(op, address, entry.time_us, entry.site);
  }
  if (fault == TraceFault::kFreedAlready || fault == TraceFault::kRequestedTwice) {
    ++mended_;
    return;
  }
  check(fault);
}

void SnapshotDevice::check(TraceFault fault) const {
  if (fault == TraceFault::kTooLarge)
    fields_.fail(fmt::format("{}: the size exceeds the largest request, {}", kWhat,
                             format_byte_size(kMaxRequestBytes)));
  if (fault != TraceFault::kNone)
    fields_.fail("more live bytes, blocks or streams than a trace can have");
}

void SnapshotDevice::annotate(bool begin, std::uint64_t now_us, std::uint32_t text) {
  TraceMark mark;
  mark.kind = begin ? MarkKind::kPhaseBegin : MarkKind::kPhaseEnd;
  mark.time_us = static_cast<std::int64_t>(now_us & kTimeMask) - first_us_.value_or(0);
  mark.text = text;
  builder_.mark_by_time(mark);
}

void SnapshotDevice::warn() {
  for (const auto& [action, entries] : unknown_)
    builder_.warn(fmt::format("{}: {} with the unknown action \"{}\" {} left aside", path_,
                              entries == 1 ? "an entry" : fmt::format("{} entries", entries),
                              action, entries == 1 ? "was" : "were"));
  if (unknown_others_ > 0)
    builder_.warn(
        fmt::format("{}: {} entries with other unknown actions were left aside", path_,
                    unknown_others_));
  if (early_ > 0)
    builder_.warn(fmt::format("{}: {} blocks were live before the recording began", path_, early_));
  if (ooms_ > 0)
    builder_.warn(fmt::format("{}: PyTorch ran out of memory {}{}", path_,
                              ooms_ == 1 ? "" : fmt::format("{} times, first ", ooms_),
                              first_oom_));
  if (mended_ > 0)
    builder_.warn(
        fmt::format("{}: {} entries contradict earlier ones and were mended", path_, mended_));
  if (builder_.backward_steps() > 0)
    builder_.warn(
        fmt::format("{}: time runs backwards ({} times); the clock stands still meanwhile", path_,
                    builder_.backward_steps()));
}

void SnapshotDevice::warn_of_overlaps(const std::vector<SnapshotSegment>& segments) {
  std::vector<const SnapshotSegment*> own;
  for (const SnapshotSegment& segment : segments)
    if (segment.device == device_ && segment.address != 0) own.push_back(&segment);
  std::sort(own.begin(), own.end(),
            [](const auto* a, const auto* b) { return a->address < b->address; });
  std::uint64_t end = 0;
  std::uint64_t overlaps = 0;
  std::uint64_t first = 0;
  for (const SnapshotSegment* segment : own) {
    if (segment->address < end && overlaps++ == 0) first = segment->address;
    end = std::max(end, segment->address + segment->total_bytes);
  }
  if (overlaps > 0)
    builder_.warn(fmt::format("{}: {} of {} segments overlap another one, first at {:#x}: the file "
                              "was edited or damaged",
                              path_, overlaps, own.size(), first));
}

// PyTorch 2.0 keeps one event unless asked for more. Where that is a free, the one moment that is
// known is the one after it, and the freed block is no part of it.
void SnapshotDevice::leave_out_lone_free(const std::vector<SnapshotSegment>& segments) {
  const auto own = [&](const SnapshotSegment& segment) { return segment.device == device_; };
  if (entries_ != 1 || early_ != 1 || std::none_of(segments.begin(), segments.end(), own)) return;
  builder_ = make_builder();
  early_ = 0;
}

Trace SnapshotDevice::finish(const std::vector<SnapshotSegment>& segments) {
  leave_out_lone_free(segments);
  for (const SnapshotSegment& segment : segments) {
    if (segment.device != device_) continue;
    for (const SnapshotBlock& block : segment.blocks)
      if (block.in_use() && !builder_.knows(block.address)) {
        check(builder_.live_from_start(block.address, block.requested_bytes, segment.stream,
                                       block.site));
        ++early_;
      }
  }
  warn();
  warn_of_overlaps(segments);
  Trace trace = builder_.finish();
  for (std::size_t i = 0; i < absolute_marks_; ++i)
    trace.marks[i].time_us -= first_us_.value_or(0);
  mark_emptied_caches(trace, fields_.sites());
  trace.device = static_cast<std::uint32_t>(device_);
  return trace;
}

}  // namespace tenon
