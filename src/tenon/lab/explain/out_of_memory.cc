#include "tenon/lab/explain/out_of_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tenon/base/byte_size.h"
#include "tenon/lab/explain/memory_map.h"
#include "tenon/lab/replayer.h"

namespace tenon {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;

// The events up to the failure, and the request that failed.
Trace with_request(const Trace& trace, const OutOfMemoryReport& report) {
  Trace cut;
  cut.name = trace.name;
  cut.events.assign(trace.events.begin(),
                    trace.events.begin() + static_cast<std::ptrdiff_t>(report.events));
  cut.streams = trace.streams;
  for (const TraceEvent& event : cut.events) cut.blocks += event.op == TraceOp::kAlloc ? 1 : 0;
  auto stream = std::find(cut.streams.begin(), cut.streams.end(), report.stream);
  if (stream == cut.streams.end()) {
    cut.streams.push_back(report.stream);
    stream = std::prev(cut.streams.end());
  }
  cut.events.push_back({report.time_us, report.request_bytes, cut.blocks++,
                        static_cast<std::uint32_t>(stream - cut.streams.begin()),
                        TraceOp::kAlloc});
  return cut;
}

struct Trial {
  const char* policy;
  const char* name;
};
constexpr std::array<Trial, 4> kTrials = {
    {{"caching", "PyTorch's default settings, from the recording's beginning"},
     {"expandable", "expandable_segments:True"},
     {"stitched", "Tenon's stitched allocator"},
     {"plan", "a static plan (tenon plan)"}}};

// A limit was at least what PyTorch held: what passes with that passes under it.
std::uint64_t known_room(const OutOfMemoryReport& report) {
  return report.reason == FailureReason::kLimited ? report.reserved_bytes : report.capacity_bytes;
}

void try_policies(const Trace& trace, OutOfMemoryReport& report) {
  const std::uint64_t room = known_room(report);
  if (room == 0 || report.live_bytes + report.request_bytes > room) return;
  const Workload workload(with_request(trace, report));
  for (const Trial& trial : kTrials) {
    ReplaySetup setup;
    setup.policy = trial.policy;
    setup.capacity_bytes = room;
    try {
      const bool passes = fits(workload, setup);
      report.remedies.push_back(
          {trial.name, passes,
           fmt::format("replayed with {} in all: {}", format_byte_size(room),
                       passes ? "the request is served" : "runs out of memory too")});
    } catch (const std::bad_alloc&) {
      throw;  // this process has too little memory
    } catch (const std::exception& error) {  // a recording that no policy can be asked to follow
      report.remedies.push_back({trial.name, false,
                                 fmt::format("cannot be replayed: {}", error.what())});
    }
  }
}

// Remedies that arithmetic tells.
void reckon(OutOfMemoryReport& report) {
  const Fragmentation& now = report.fragmentation;
  const bool limited = report.reason == FailureReason::kLimited;
  const std::uint64_t room =
      limited ? now.largest_free_bytes
              : std::max(now.largest_free_bytes, report.device_free_bytes.value_or(0));
  if (room > 0 || !limited)
    report.remedies.push_back(
        {"a smaller request", room > 0 && room < report.request_bytes,
         fmt::format(
             "{} {} would have passed, {} less", limited ? "one of" : "at most",
             format_byte_size(room),
             format_byte_size(report.request_bytes - std::min(room, report.request_bytes)))});
  if (limited)
    report.remedies.push_back(
        {"a higher limit", true,
         fmt::format("{} would have held what PyTorch had and the new segment of {}",
                     format_byte_size(report.reserved_bytes + report.segment_bytes),
                     format_byte_size(report.segment_bytes))});
  if (report.missing_bytes > 0) {
    report.remedies.push_back(
        {"less live memory", true,
         fmt::format("{} fewer live bytes are needed, whatever the allocator: a smaller batch, "
                     "checkpointing, freeing earlier",
                     format_byte_size(report.missing_bytes))});
  } else if (report.device_free_bytes) {
    const std::uint64_t more = report.segment_bytes > *report.device_free_bytes
                                   ? report.segment_bytes - *report.device_free_bytes
                                   : 0;
    if (more > 0)
      report.remedies.push_back(
          {"more free memory on the device", true,
           fmt::format("{} more would have held the new segment of {}", format_byte_size(more),
                       format_byte_size(report.segment_bytes))});
  }
  for (const HeldSegment& held : now.held)
    if (held.total_bytes >= report.segment_bytes) {
      report.remedies.push_back(
          {"freeing one block", true,
           fmt::format("a segment of {} is held by a single block of {}",
                       format_byte_size(held.total_bytes), format_byte_size(held.block_bytes))});
      break;
    }
  if (now.stranded_bytes >= report.request_bytes && now.stranded_bytes > 0)
    report.remedies.push_back(
        {"one stream", true,
         fmt::format("{} are free on other streams, where this stream cannot use them",
                     format_byte_size(now.stranded_bytes))});
}

void say_why(OutOfMemoryReport& report) {
  const Fragmentation& now = report.fragmentation;
  report.why.push_back(fmt::format("{} were asked for on stream {}; {} were live and {} reserved",
                                   format_byte_size(report.request_bytes), report.stream,
                                   format_byte_size(report.live_bytes),
                                   format_byte_size(report.reserved_bytes)));
  if (now.free_bytes() > 0)
    report.why.push_back(fmt::format(
        "{} of the reserved were free, but the largest piece that this stream could use was {} "
        "(of {} pieces)",
        format_byte_size(now.free_bytes()), format_byte_size(now.largest_free_bytes),
        now.free_blocks));
  if (report.device_free_bytes)
    report.why.push_back(fmt::format("a new segment of {} was needed, and the driver had {} left",
                                     format_byte_size(report.segment_bytes),
                                     format_byte_size(*report.device_free_bytes)));
  switch (report.reason) {
    case FailureReason::kLiveTooLarge:
      report.why.push_back(fmt::format(
          "live bytes and the request together exceed what there is ({}) by {}: no allocator "
          "could have served it",
          format_byte_size(report.capacity_bytes), format_byte_size(report.missing_bytes)));
      break;
    case FailureReason::kFragmented:
      report.why.push_back(fmt::format(
          "live bytes and the request together are {}, and there is room for {}: fragmentation "
          "failed the request",
          format_byte_size(report.live_bytes + report.request_bytes),
          format_byte_size(report.capacity_bytes)));
      break;
    case FailureReason::kLimited:
      report.why.emplace_back(
          "the driver had room for the new segment: a limit stood before it "
          "(per_process_memory_fraction), or another process took the memory meanwhile");
      break;
    case FailureReason::kUnknown:
      report.why.emplace_back(
          now.largest_free_bytes >= report.request_bytes && now.largest_free_bytes > 0
              ? "a free piece was large enough: the segments of this recording are not those of "
                "the failure"
              : "the recording does not say what the driver had left");
      break;
  }
}

FailureReason reason_of(const OutOfMemoryReport& report) {
  if (!report.device_free_bytes && report.reserved_bytes == 0) return FailureReason::kUnknown;
  if (report.missing_bytes > 0) return FailureReason::kLiveTooLarge;
  if (report.fragmentation.largest_free_bytes >= report.request_bytes)
    return FailureReason::kUnknown;
  if (report.device_free_bytes && *report.device_free_bytes >= report.segment_bytes)
    return FailureReason::kLimited;
  return FailureReason::kFragmented;
}

// A site's frames without machinery.
std::vector<std::string> readable_stack(const TraceFacts& facts, std::uint32_t site) {
  std::vector<std::string> lines;
  const SiteTable& sites = *facts.trace.sites;
  for (const std::uint32_t frame : sites.stack(sites.site(site).stack)) {
    const FrameKind kind = facts.sites.table().kind(frame);
    if (is_python(kind) || kind == FrameKind::kNative || kind == FrameKind::kOperator ||
        kind == FrameKind::kNode)
      lines.push_back(readable_frame(sites, frame));
  }
  return lines;
}

}  // namespace

std::vector<OutOfMemoryReport> explain_failures(const TraceFacts& facts,
                                                const std::vector<SnapshotSegment>& end,
                                                const CachingSettings& settings, bool replay,
                                                std::size_t limit) {
  std::vector<OutOfMemoryReport> reports;
  const Trace& trace = facts.trace;
  for (std::size_t i = 0; i < trace.marks.size() && reports.size() < limit; ++i) {
    const TraceMark& mark = trace.marks[i];
    if (mark.kind != MarkKind::kOutOfMemory) continue;
    OutOfMemoryReport report;
    report.time_us = mark.time_us;
    report.events = mark.event;
    report.request_bytes = std::min(mark.size_bytes, kMostBytes);
    report.segment_bytes = settings.segment_size(settings.round_size(report.request_bytes));
    report.stream = mark.stream;
    report.site = mark.site;
    if (mark.device_free_bytes < kMostBytes) report.device_free_bytes = mark.device_free_bytes;
    report.live = live_set(facts, mark.event);
    report.live_bytes = report.live.bytes;
    if (mark.site != 0) report.call_site = facts.sites.name(facts.sites.group(mark.site));
    report.stack = readable_stack(facts, mark.site);
    report.fragmentation = fragmentation(
        memory_map(trace, facts.lives, end, mark.event, i, settings), mark.stream, settings);
    report.reserved_bytes = report.fragmentation.reserved_bytes;
    report.capacity_bytes = report.reserved_bytes + report.device_free_bytes.value_or(0);
    const std::uint64_t needed = report.live_bytes + report.request_bytes;
    report.missing_bytes = needed - std::min(needed, report.capacity_bytes);
    report.reason = reason_of(report);
    say_why(report);
    if (report.reason != FailureReason::kUnknown) {
      reckon(report);
      if (replay) try_policies(trace, report);
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace tenon
