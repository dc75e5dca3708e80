#include "tenon/trace/load.h"

#include <new>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "tenon/base/error.h"
#include "tenon/trace/csv.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/foreign.h"
#include "tenon/trace/json_reader.h"
#include "tenon/trace/pickle.h"
#include "tenon/trace/profile.h"
#include "tenon/trace/rmm_csv.h"
#include "tenon/trace/snapshot_json.h"
#include "tenon/trace/viz_page.h"

namespace tenon {
namespace {

// What a snapshot's reader counts while it reads.
void count_events(const Trace& trace, SnapshotFigures& figures) {
  figures.trace_entries.push_back(trace.events.size() + trace.marks.size());
  std::unordered_map<std::uint32_t, std::size_t> places;
  for (const TraceEvent& event : trace.events) {
    ++figures.actions[std::string(trace_op_name(event.op))];
    const std::uint32_t frame = trace.sites->innermost(event.site);
    if (event.op != TraceOp::kAlloc || frame == 0) continue;
    const auto [place, fresh] = places.try_emplace(frame, figures.frame_bytes.size());
    if (fresh) figures.frame_bytes.emplace_back(frame, 0);
    figures.frame_bytes[place->second].second += event.size_bytes;
  }
  for (const TraceMark& mark : trace.marks)
    ++figures.actions[std::string(mark_kind_name(mark.kind))];
}

Snapshot load_json(std::string_view bytes, const std::string& path, const ReadHooks& hooks) {
  std::optional<Snapshot> profile = parse_profile(bytes, path, hooks);
  if (!profile) return parse_snapshot(pickle_of_json(bytes, path, hooks), path);
  for (const Trace& trace : profile->traces) count_events(trace, profile->figures);
  return *std::move(profile);
}

Snapshot load_any(const std::string& path,
                  const std::function<void(std::size_t, std::size_t)>& progress) {
  const FileBytes bytes(path);
  const ReadHooks hooks = {progress, [&](std::size_t offset) { bytes.forget_before(offset); }};
  if (looks_like_json(bytes.view())) return load_json(bytes.view(), path, hooks);
  if (looks_like_viz_page(bytes.view()))
    return parse_snapshot(pickle_of_page(bytes.view(), path), path);
  if (const std::string what = foreign_format(bytes.view(), path); !what.empty())
    throw ParseError(path, 0, 0, what);
  const bool zipped = bytes.view().starts_with("PK\x03\x04");  // the pickle's reader names it
  if (looks_like_pickle(bytes.view()) || zipped || path.ends_with(".pickle") ||
      path.ends_with(".pkl"))
    return parse_snapshot(bytes.view(), path, hooks);
  Snapshot snapshot;
  if (looks_like_rmm_csv(bytes.view())) {
    snapshot.traces.push_back(parse_rmm_csv(bytes.view(), path));
  } else {
    snapshot.traces = parse_csv_devices(bytes.view(), path);
  }
  snapshot.sites = snapshot.traces[0].sites;
  for (const Trace& trace : snapshot.traces) count_events(trace, snapshot.figures);
  return snapshot;
}

}  // namespace

Snapshot load_snapshot(const std::string& path,
                       const std::function<void(std::size_t, std::size_t)>& progress) {
  try {
    return load_any(path, progress);
  } catch (const std::bad_alloc&) {
    throw FileTooLarge(path, 0, 0,
                       "needs more memory than this process can get: raise its limit (ulimit -v) "
                       "or use a machine with more");
  }
}

std::vector<Trace> load_traces(const std::string& path) { return load_snapshot(path).traces; }

}  // namespace tenon
