// Recordings in, answers out: the same text as the command's --json. replay.cc and advise.cc have two.
#include <fmt/format.h>

#include <algorithm>

#include "files.h"
#include "objects.h"
#include "status.h"
#include "structures.h"
#include "tenon/lab/advice/recorded_settings.h"
#include "tenon/lab/explain/diff.h"
#include "tenon/lab/explain/explain.h"
#include "tenon/lab/planning/plan_file.h"
#include "tenon/lab/planning/plan_report.h"
#include "tenon/lab/ranks/report_page.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"
#include "tenon/trace/write.h"

namespace tenon::c {

TracesObject::TracesObject(const char* path)
    : Object(kKind), path_(path), snapshot_(load_snapshot(path_)) {}

const Trace& TracesObject::trace(std::size_t index) const {
  if (index >= snapshot_.traces.size())
    throw std::invalid_argument(fmt::format("index is {}: {} has recordings of {} devices", index,
                                            path_, snapshot_.traces.size()));
  return snapshot_.traces[index];
}

void TracesObject::follow(TorchVersion version) {
  replay_as(version, snapshot_);
  torch_ = version;
}

void TracesObject::keep(std::size_t index) {
  std::vector<Trace> kept = {trace(index)};
  snapshot_.traces.swap(kept);
}

std::vector<const TracesObject*> find_files(const tenon_traces* files, std::size_t count) {
  require(files, "files");
  if (count == 0) throw std::invalid_argument("count is 0: give one file at least");
  std::vector<const TracesObject*> found;
  for (std::size_t i = 0; i < count; ++i) {
    found.push_back(&find_traces(files[i]));
    if (found.back()->snapshot().traces.empty())
      throw std::invalid_argument(found.back()->path() + " holds no recorded events");
  }
  return found;
}

namespace {

std::string plan_answer(const Trace& trace, const tenon_plan_options& options,
                        const char* plan_file) {
  PlanOptions how;
  how.find_loops = options.whole == 0;
  how.share_streams = options.own_memory == 0;
  PlannedTrace planned = plan_trace(trace, how);
  planned.report.capacity_bytes = options.capacity_bytes;
  if (plan_file != nullptr) write_file(plan_file, format_plan(planned.plan));
  return plan_json(planned.report);
}

// All of a report; the advice is on the page alone.
Report report_of(const std::vector<const TracesObject*>& files, const tenon_report_options& options,
                 bool has_page) {
  Report report;
  report.capacity_bytes = options.capacity_bytes;
  for (const TracesObject* file : files)
    for (Rank& rank : ranks_of(file->snapshot(), file->path(), {.replay = options.no_replay == 0}))
      report.ranks.push_back(std::move(rank));
  name_ranks(report.ranks);
  report.comparison = compare_ranks(report.ranks);
  if (!has_page || options.no_advice != 0) return report;
  const std::string& advised = report.ranks[report.comparison.first].path;
  const auto file = std::find_if(files.begin(), files.end(), [&](const TracesObject* one) {
    return one->path() == advised;
  });
  add_advice(report, (*file)->snapshot());
  return report;
}

}  // namespace
}  // namespace tenon::c

using namespace tenon;
using namespace tenon::c;

tenon_status tenon_recording_start(const char* path, tenon_recording* out) {
  return guarded("tenon_recording_start", [&] {
    require(out, "out");
    *out = Handles::add(std::make_unique<RecordingObject>(&require(path, "path")));
  });
}

tenon_status tenon_recording_finish(tenon_recording recording) {
  return guarded("tenon_recording_finish",
                 [&] { Handles::take<RecordingObject>(recording)->finish(); });
}

tenon_status tenon_traces_load(const char* path, tenon_traces* out) {
  return guarded("tenon_traces_load", [&] {
    require(out, "out");
    *out = Handles::add(std::make_unique<TracesObject>(&require(path, "path")));
  });
}

tenon_status tenon_traces_destroy(tenon_traces traces) {
  return guarded("tenon_traces_destroy", [&] { Handles::take<TracesObject>(traces); });
}

tenon_status tenon_traces_count(tenon_traces traces, size_t* out) {
  return guarded("tenon_traces_count",
                 [&] { require(out, "out") = find_traces(traces).snapshot().traces.size(); });
}

tenon_status tenon_traces_follow_torch(tenon_traces traces, const char* version) {
  return guarded("tenon_traces_follow_torch", [&] {
    const TorchVersion parsed = parse_torch_version(&require(version, "version"));
    Handles::find<TracesObject>(traces).follow(parsed);
  });
}

tenon_status tenon_traces_keep(tenon_traces traces, size_t index) {
  return guarded("tenon_traces_keep",
                 [&] { Handles::find<TracesObject>(traces).keep(index); });
}

tenon_status tenon_traces_save(tenon_traces traces, const char* path) {
  return guarded("tenon_traces_save", [&] {
    const Snapshot& snapshot = find_traces(traces).snapshot();
    write_traces(snapshot.traces, snapshot.segments, &require(path, "path"));
  });
}

tenon_status tenon_trace_summarize(tenon_traces traces, size_t index, tenon_trace_summary* out) {
  return guarded("tenon_trace_summarize", [&] {
    check_structure(require(out, "out"), "out");
    const Trace& trace = find_traces(traces).trace(index);
    hand_over({.struct_bytes = 0,
               .events = trace.replayed_events(),
               .live_peak_bytes = trace.live_peak_bytes(),
               .duration_us = trace.duration_us(),
               .traced_peak_bytes = trace.traced_peak_bytes(),
               .device = trace.device,
               .streams = static_cast<std::uint32_t>(trace.streams.size())},
              *out);
  });
}

tenon_status tenon_explain(tenon_traces traces, char** json) {
  return guarded("tenon_explain", [&] {
    require(json, "json");
    const TracesObject& object = find_traces(traces);
    *json = copy_text(explanation_json(explain(object.snapshot(), object.path())));
  });
}

tenon_status tenon_explain_without_replay(tenon_traces traces, char** json) {
  return guarded("tenon_explain_without_replay", [&] {
    require(json, "json");
    const TracesObject& object = find_traces(traces);
    *json = copy_text(
        explanation_json(explain(object.snapshot(), object.path(), {.replay = false})));
  });
}

tenon_status tenon_diff(tenon_traces before, tenon_traces after, int ignore_lines, char** json) {
  return guarded("tenon_diff", [&] {
    require(json, "json");
    *json = copy_text(diff_json(diff_all(find_traces(before).snapshot().traces,
                                         find_traces(after).snapshot().traces,
                                         ignore_lines != 0)));
  });
}

tenon_status tenon_plan(tenon_traces traces, size_t index, const char* plan_file, char** json) {
  return guarded("tenon_plan", [&] {
    require(json, "json");
    *json = copy_text(plan_answer(find_traces(traces).trace(index), {}, plan_file));
  });
}

tenon_status tenon_plan_with(tenon_traces traces, size_t index, const tenon_plan_options* options,
                             const char* plan_file, char** json) {
  return guarded("tenon_plan_with", [&] {
    require(json, "json");
    *json = copy_text(plan_answer(find_traces(traces).trace(index),
                                  complete_or_zero(options, "options"), plan_file));
  });
}

tenon_status tenon_report(const tenon_traces* files, size_t count,
                          const tenon_report_options* options, char** html, char** json) {
  return guarded("tenon_report", [&] {
    const Report report = report_of(find_files(files, count), complete_or_zero(options, "options"),
                                    html != nullptr);
    char* const page = html == nullptr ? nullptr : copy_text(report_html(report));
    if (json != nullptr) *json = copy_text(report_json(report));
    if (html != nullptr) *html = page;
  });
}
