#include "tenon/trace/trace_builder.h"

#include <algorithm>
#include <limits>

#include "tenon/base/align.h"

namespace tenon {
namespace {
constexpr std::size_t kMaxStreams = 4096;
constexpr std::uint64_t kMaxLiveBytes = std::uint64_t{1} << 49;  // Plan::kMaxBytes is enough then
// Blocks from before the recording are numbered from here until finish() puts them in front.
constexpr std::uint32_t kFromStart = std::uint32_t{1} << 31;
}  // namespace

bool TraceBuilder::dense_stream(std::uint64_t stream, std::uint32_t& out) {
  if (!trace_.streams.empty() && stream == last_stream_) [[likely]] {
    out = last_stream_index_;
    return true;
  }
  const auto [found, fresh] =
      streams_.try_emplace(stream, static_cast<std::uint32_t>(trace_.streams.size()));
  if (fresh) {
    if (trace_.streams.size() == kMaxStreams) {
      streams_.erase(found);
      return false;
    }
    trace_.streams.push_back(stream);
  }
  last_stream_ = stream;
  out = last_stream_index_ = found->second;
  return true;
}

void TraceBuilder::note_time(std::int64_t time_us) {
  if (trace_.events.empty()) latest_us_ = time_us;
  if (time_us < latest_us_) ++backward_steps_;
  latest_us_ = time_us;
}

TraceFault TraceBuilder::begin(std::vector<TraceEvent>& where, std::uint64_t key,
                               std::int64_t time_us, std::uint64_t size_bytes,
                               std::uint64_t stream, std::uint32_t site) {
  if (size_bytes > kMaxRequestBytes) return TraceFault::kTooLarge;
  const bool early = &where == &from_start_;
  const std::size_t number = early ? from_start_.size() : trace_.blocks;
  if (total_bytes_ + size_bytes > kMaxLiveBytes || number + 1 >= kFromStart)
    return TraceFault::kTooMuch;
  const auto [found, fresh] = blocks_.try_emplace(key);
  Known& known = found->second;
  if (!fresh && known.state != State::kFreed) return TraceFault::kLiveAlready;
  std::uint32_t index = 0;
  if (!dense_stream(stream, index)) {
    if (fresh) blocks_.erase(found);
    return TraceFault::kTooMuch;
  }
  known = {size_bytes, static_cast<std::uint32_t>(number) | (early ? kFromStart : 0), index,
           State::kLive};
  total_bytes_ += size_bytes;
  if (!early) {
    ++trace_.blocks;
    note_time(time_us);
  }
  where.push_back({time_us, size_bytes, known.block, index, TraceOp::kAlloc, site});
  if (keys_ == Keys::kAddresses) (early ? early_addresses_ : trace_.addresses).push_back(key);
  return TraceFault::kNone;
}

TraceFault TraceBuilder::alloc(std::uint64_t key, std::int64_t time_us, std::uint64_t size_bytes,
                               std::uint64_t stream, std::uint32_t site) {
  return begin(trace_.events, key, time_us, size_bytes, stream, site);
}

TraceFault TraceBuilder::live_from_start(std::uint64_t key, std::uint64_t size_bytes,
                                         std::uint64_t stream, std::uint32_t site) {
  return begin(from_start_, key, 0, size_bytes, stream, site);
}

TraceFault TraceBuilder::free(TraceOp op, std::uint64_t key, std::int64_t time_us,
                              std::uint32_t site) {
  const auto found = blocks_.find(key);
  if (found == blocks_.end()) return TraceFault::kUnknown;
  Known& known = found->second;
  if (known.state == State::kFreed) return TraceFault::kFreedAlready;
  if (op == TraceOp::kFreeRequested && known.state == State::kRequested)
    return TraceFault::kRequestedTwice;
  known.state = op == TraceOp::kFreeRequested ? State::kRequested : State::kFreed;
  if (op == TraceOp::kFreeCompleted) total_bytes_ -= known.size_bytes;
  note_time(time_us);
  trace_.events.push_back({time_us, known.size_bytes, known.block, known.stream, op, site});
  return TraceFault::kNone;
}

void TraceBuilder::mark(TraceMark mark) {
  mark.event = static_cast<std::uint32_t>(trace_.events.size());
  trace_.marks.push_back(mark);
}

// Events whose times run backwards keep the time of the latest event before them, so that a mark
// has one place.
void TraceBuilder::place_timed_marks() {
  if (timed_marks_.empty()) return;
  const auto earlier = [](const TraceMark& a, const TraceMark& b) { return a.time_us < b.time_us; };
  std::stable_sort(timed_marks_.begin(), timed_marks_.end(), earlier);
  std::size_t event = 0;
  for (TraceMark& mark : timed_marks_) {
    while (event < trace_.events.size() && trace_.events[event].time_us < mark.time_us) ++event;
    mark.event = static_cast<std::uint32_t>(event);
  }
  trace_.marks.insert(trace_.marks.end(), timed_marks_.begin(), timed_marks_.end());
  std::stable_sort(trace_.marks.begin(), trace_.marks.end(),
                   [](const TraceMark& a, const TraceMark& b) { return a.event < b.event; });
}

void TraceBuilder::put_early_blocks_first() {
  if (from_start_.empty()) return;
  const auto shift = static_cast<std::uint32_t>(from_start_.size());
  const std::int64_t first_us = trace_.events.empty() ? 0 : trace_.events.front().time_us;
  for (TraceEvent& event : from_start_) event.time_us = first_us;
  trace_.events.insert(trace_.events.begin(), from_start_.begin(), from_start_.end());
  for (TraceEvent& event : trace_.events)
    event.block = (event.block & kFromStart) != 0 ? event.block - kFromStart : event.block + shift;
  for (TraceMark& mark : trace_.marks) mark.event += shift;
  trace_.addresses.insert(trace_.addresses.begin(), early_addresses_.begin(),
                          early_addresses_.end());
  trace_.blocks += shift;
  trace_.early_blocks = shift;
}

Trace TraceBuilder::finish(std::shared_ptr<const SiteTable> sites) {
  place_timed_marks();
  put_early_blocks_first();
  trace_.sites = std::move(sites);
  return std::move(trace_);
}

}  // namespace tenon
