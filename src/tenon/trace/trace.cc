#include "tenon/trace/trace.h"

#include <algorithm>
#include <array>

#include "tenon/base/printable.h"

namespace tenon {

std::string_view trace_op_name(TraceOp op) {
  static constexpr std::array<std::string_view, 3> kNames = {"alloc", "free_requested",
                                                             "free_completed"};
  return kNames[static_cast<std::size_t>(op)];
}

std::string_view mark_kind_name(MarkKind kind) {
  static constexpr std::array<std::string_view, 13> kNames = {
      "segment_alloc", "segment_free", "segment_map", "segment_unmap",
      "oom",           "phase_begin",  "phase_end",   "snapshot",
      "other",         "sleep_to_host", "sleep_dropped", "wake",
      "empty_cache"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool is_sleep(MarkKind kind) {
  return kind == MarkKind::kSleepToHost || kind == MarkKind::kSleepDropped;
}

bool memory_came(MarkKind kind) {
  return kind == MarkKind::kSegmentAlloc || kind == MarkKind::kSegmentMap;
}

bool memory_went(MarkKind kind) {
  return kind == MarkKind::kSegmentFree || kind == MarkKind::kSegmentUnmap;
}

bool gives_back(MarkKind kind) {
  return is_sleep(kind) || kind == MarkKind::kEmptyCache || kind == MarkKind::kOutOfMemory;
}

std::uint64_t Trace::replayed_events() const {
  return static_cast<std::uint64_t>(
      std::count_if(events.begin(), events.end(),
                    [](const TraceEvent& e) { return e.op != TraceOp::kFreeRequested; }));
}

namespace {

// Of the blocks from `first_block` on.
std::uint64_t peak_of(const std::vector<TraceEvent>& events, std::uint32_t first_block) {
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  for (const TraceEvent& event : events) {
    if (event.block < first_block) continue;
    if (event.op == TraceOp::kAlloc) peak = std::max(peak, live += event.size_bytes);
    if (event.op == TraceOp::kFreeCompleted) live -= event.size_bytes;
  }
  return peak;
}

}  // namespace

std::uint64_t Trace::live_peak_bytes() const { return peak_of(events, 0); }

std::uint64_t Trace::traced_peak_bytes() const { return peak_of(events, early_blocks); }

const std::shared_ptr<const SiteTable>& Trace::empty_sites() {
  // Never destroyed: exit handlers and static objects write traces, too.
  static const auto& empty =
      *new std::shared_ptr<const SiteTable>(std::make_shared<const SiteTable>());
  return empty;
}

std::uint64_t Trace::duration_us() const {
  if (events.empty()) return 0;
  std::int64_t latest = events.front().time_us;
  for (const TraceEvent& event : events) latest = std::max(latest, event.time_us);
  return static_cast<std::uint64_t>(latest - events.front().time_us);
}

std::string trace_name(std::string_view path) {
  path = path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
  bool known = false;
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view suffix : {".zst", ".gz", ".csv", ".json", ".pickle", ".pkl"})
      if (path.size() > suffix.size() && path.ends_with(suffix)) {
        path.remove_suffix(suffix.size());
        known = again = true;
      }
  }
  const std::size_t dot = path.find_last_of('.');
  if (!known && dot != std::string_view::npos && dot > 0) path = path.substr(0, dot);
  return one_line(path);
}

}  // namespace tenon
