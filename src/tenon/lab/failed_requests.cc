#include "tenon/lab/failed_requests.h"

#include <algorithm>

#include "tenon/base/align.h"
#include "tenon/lab/advice/recorded_settings.h"

namespace tenon {
namespace {

std::uint32_t stream_index(Trace& trace, std::uint64_t stream) {
  const auto found = std::find(trace.streams.begin(), trace.streams.end(), stream);
  if (found != trace.streams.end())
    return static_cast<std::uint32_t>(found - trace.streams.begin());
  trace.streams.push_back(stream);
  return static_cast<std::uint32_t>(trace.streams.size() - 1);
}

}  // namespace

std::optional<RoomAtFailure> room_at_failure(const Snapshot& snapshot, const Trace& trace) {
  for (std::size_t i = 0; i < trace.marks.size(); ++i) {
    const TraceMark& mark = trace.marks[i];
    if (mark.kind != MarkKind::kOutOfMemory || mark.device_free_bytes > kMaxRequestBytes) continue;
    const std::optional<std::uint64_t> reserved = recorded_reserved_at(snapshot, trace, i);
    if (!reserved) return std::nullopt;
    const CachingSettings settings = recorded_settings(snapshot).settings;
    RoomAtFailure room{*reserved, mark.device_free_bytes, mark.size_bytes};
    room.limited = mark.size_bytes <= kMaxRequestBytes &&
                   mark.device_free_bytes >=
                       settings.segment_size(settings.round_size(mark.size_bytes));
    return room;
  }
  return std::nullopt;
}

bool has_failed_requests(const Trace& trace) {
  return std::any_of(trace.marks.begin(), trace.marks.end(), [](const TraceMark& mark) {
    return mark.kind == MarkKind::kOutOfMemory;
  });
}

Trace with_failed_requests(const Trace& trace) {
  Trace served;
  served.name = trace.name;
  served.streams = trace.streams;
  served.blocks = trace.blocks;
  served.early_blocks = trace.early_blocks;
  served.device = trace.device;
  served.device_name = trace.device_name;
  served.oldest_segment_first = trace.oldest_segment_first;
  served.warnings = trace.warnings;
  served.events.reserve(trace.events.size());
  std::size_t next = 0;
  const auto copy_until = [&](std::size_t end) {
    for (; next < end; ++next) served.events.push_back(trace.events[next]);
  };
  for (const TraceMark& mark : trace.marks) {
    copy_until(std::min<std::size_t>(mark.event, trace.events.size()));
    if (!gives_back(mark.kind)) continue;
    if (mark.kind != MarkKind::kOutOfMemory) {
      served.marks.push_back(mark);
      served.marks.back().event = static_cast<std::uint32_t>(served.events.size());
      continue;
    }
    TraceEvent request{mark.time_us, std::min(mark.size_bytes, kMaxRequestBytes), served.blocks++,
                       stream_index(served, mark.stream), TraceOp::kAlloc};
    served.events.push_back(request);
    request.op = TraceOp::kFreeCompleted;
    served.events.push_back(request);
  }
  copy_until(trace.events.size());
  return served;
}

}  // namespace tenon
