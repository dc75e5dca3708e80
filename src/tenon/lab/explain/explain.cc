#include "tenon/lab/explain/explain.h"

#include <algorithm>
#include <map>

#include "tenon/lab/advice/recorded_settings.h"
#include "tenon/lab/explain/block_sites.h"
#include "tenon/lab/explain/memory_map.h"
#include "tenon/lab/verdict/early_blocks.h"

namespace tenon {
namespace {

constexpr std::size_t kTopFrames = 5;

std::vector<std::pair<std::string, std::uint64_t>> top_frames(const Snapshot& snapshot) {
  auto frames = snapshot.figures.frame_bytes;
  // Stable: of equals, the one that came first.
  std::stable_sort(frames.begin(), frames.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (frames.size() > kTopFrames) frames.resize(kTopFrames);
  std::vector<std::pair<std::string, std::uint64_t>> named;
  for (const auto& [frame, bytes] : frames)
    named.emplace_back(snapshot.sites->frame_label(frame), bytes);
  return named;
}

std::uint64_t sum_of(const std::vector<SnapshotSegment>& segments) {
  std::uint64_t bytes = 0;
  for (const SnapshotSegment& segment : segments) bytes += segment.total_bytes;
  return bytes;
}

// Reserved memory by cause at the live peak, at the reserved peak and at the end. Without history
// the order of the events is made up, so that only the end is known.
void explain_reserved(const TraceFacts& facts, const Snapshot& snapshot,
                      const CachingSettings& settings, DeviceExplanation& out) {
  const Trace& trace = facts.trace;
  const std::vector<SnapshotSegment> end = segments_of(snapshot.segments, trace.device);
  const ReservedHistory history = reserved_history(trace, sum_of(end));
  out.reserved_known = history.known();
  if (!history.known()) return;
  const ReservedHistory::Step& peak = history.peak();
  out.reserved_at_peak_bytes = history.at(out.live_peak.events);
  out.reserved_peak_bytes = peak.bytes;
  out.reserved_peak_us = peak.time_us;

  const auto at = [&](const char* moment, std::size_t events, std::int64_t time_us) {
    const auto map =
        memory_map(trace, facts.lives, end, events, marks_before(trace, events), settings);
    out.memory.push_back(
        {moment, events, time_us, fragmentation(map, busiest_stream(map), settings)});
  };
  if (!trace.addresses.empty() && out.has_history) {
    at("live peak", out.live_peak.events, out.live_peak.time_us);
    // With the event that the new segment was for.
    at("reserved peak", std::min(peak.events + 1, trace.events.size()), peak.time_us);
  }
  if (!end.empty())
    out.memory.push_back({"end", trace.events.size(),
                          facts.times_us.empty() ? 0 : facts.times_us.back(),
                          fragmentation(end, busiest_stream(end), settings)});
}

// Bytes of every allocation that the recording saw, by call site.
using SiteBytes = std::map<std::string, std::uint64_t>;

void count_sites(const TraceFacts& facts, SiteBytes& bytes) {
  BlockSites sites(facts);
  std::vector<std::uint64_t> groups;
  for (std::uint32_t block = facts.trace.early_blocks; block < facts.trace.blocks; ++block) {
    const std::uint32_t group = sites.group(block);
    if (group >= groups.size()) groups.resize(group + 1);
    groups[group] += facts.lives[block].size_bytes;
  }
  for (std::uint32_t group = 0; group < groups.size(); ++group)
    bytes[sites.name(group)] += groups[group];
}

std::vector<std::pair<std::string, std::uint64_t>> most_bytes(const SiteBytes& bytes) {
  std::vector<std::pair<std::string, std::uint64_t>> sites(bytes.begin(), bytes.end());
  std::stable_sort(sites.begin(), sites.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (sites.size() > kTopFrames) sites.resize(kTopFrames);
  return sites;
}

}  // namespace

DeviceExplanation explain_device(const TraceFacts& facts, const Snapshot& snapshot,
                                 const ExplainOptions& options) {
  const Trace& trace = facts.trace;
  DeviceExplanation out;
  out.name = trace.name;
  out.device = trace.device;
  out.events = trace.events.size();
  out.replayed_events = trace.replayed_events();
  out.duration_us = trace.duration_us();
  out.has_times = facts.has_times;
  out.has_history = !has_no_history(trace);
  out.early_blocks = trace.early_blocks;
  out.live_peak = live_peak(trace);
  out.traced_peak_bytes = trace.traced_peak_bytes();
  out.at_peak = live_set(facts, out.live_peak.events);
  for (const Lifetime& life : facts.lives)
    if (life.live_after(trace.events.size())) out.live_at_end_bytes += life.size_bytes;
  const CachingSettings settings = recorded_settings(snapshot).settings;
  explain_reserved(facts, snapshot, settings, out);
  out.failure_count = static_cast<std::uint64_t>(
      std::count_if(trace.marks.begin(), trace.marks.end(), [](const TraceMark& mark) {
        return mark.kind == MarkKind::kOutOfMemory;
      }));
  out.failures = explain_failures(facts, snapshot.segments, settings, options.replay);
  out.sleeps = tag_sleeps(trace, out.live_peak.events);
  if (out.has_history) out.growth = growth(trace, facts.lives, facts.sites);
  out.warnings = trace.warnings;
  out.verdict = verdict({.facts = facts,
                         .at_peak = out.at_peak,
                         .peak_events = out.live_peak.events,
                         .failures = out.failures,
                         .growth = out.growth,
                         .reserved_known = out.reserved_known,
                         .reserved_peak_bytes = out.reserved_peak_bytes,
                         .contradiction = contradiction(snapshot, trace, out.live_peak),
                         .times_full = times_full(snapshot, trace),
                         .conf = recorded_settings(snapshot).conf,
                         .replay = options.replay});
  return out;
}

Explanation explain(const Snapshot& snapshot, const std::string& path,
                    const ExplainOptions& options) {
  Explanation out;
  out.path = path;
  out.figures = snapshot.figures;
  out.top_frames = top_frames(snapshot);
  out.settings = snapshot.settings;
  out.notes = snapshot.notes;
  if (const std::string warning = recorded_settings(snapshot).warning; !warning.empty())
    out.notes.push_back(warning);
  SiteBytes site_bytes;
  for (const Trace& trace : snapshot.traces) {
    const TraceFacts facts(trace);
    count_sites(facts, site_bytes);
    out.devices.push_back(explain_device(facts, snapshot, options));
    out.traced_peak_bytes =
        std::max(out.traced_peak_bytes, out.devices.back().traced_peak_bytes);
  }
  out.top_call_sites = most_bytes(site_bytes);
  return out;
}

}  // namespace tenon
