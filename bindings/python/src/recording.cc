#include "recording.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <tuple>
#include <utility>

#include "gil.h"
#include "tenon/base/error.h"
#include "tenon/trace/load.h"
#include "tenon/trace/write.h"
#include "work.h"

namespace tenon::python {
namespace {

// What tenon/_dtypes.py says of these structures.
static_assert(offsetof(TraceEvent, size_bytes) == 8 && offsetof(TraceEvent, block) == 16 &&
              offsetof(TraceEvent, stream) == 20 && offsetof(TraceEvent, op) == 24 &&
              offsetof(TraceEvent, site) == 28 && sizeof(TraceEvent) == 32);
static_assert(offsetof(TraceMark, address) == 8 && offsetof(TraceMark, size_bytes) == 16 &&
              offsetof(TraceMark, stream) == 24 && offsetof(TraceMark, device_free_bytes) == 32 &&
              offsetof(TraceMark, event) == 40 && offsetof(TraceMark, site) == 44 &&
              offsetof(TraceMark, text) == 48 && offsetof(TraceMark, kind) == 52 &&
              sizeof(TraceMark) == 56);

Rows block_rows(const DeviceRecording& device) {
  const Trace& trace = device.trace();
  std::vector<BlockRow> rows(trace.blocks);
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    BlockRow& row = rows[event.block];
    const auto number = static_cast<std::int64_t>(i);
    if (event.op == TraceOp::kAlloc) {
      row.size_bytes = event.size_bytes;
      row.allocated_us = event.time_us;
      row.allocated_event = number;
      row.stream = event.stream;
      row.site = event.site;
    } else if (event.op == TraceOp::kFreeRequested) {
      row.free_requested_event = number;
    } else {
      row.freed_event = number;
      row.freed_us = event.time_us;
    }
  }
  for (std::size_t i = 0; i < trace.addresses.size() && i < rows.size(); ++i)
    rows[i].address = trace.addresses[i];
  return rows_of(std::move(rows));
}

Rows segment_rows(const SharedRecording& recording) {
  std::vector<SegmentRow> rows;
  std::uint32_t first = 0;
  for (const SnapshotSegment& segment : recording->snapshot.segments) {
    SegmentRow& row = rows.emplace_back();
    row.address = segment.address;
    row.size_bytes = segment.total_bytes;
    row.stream = segment.stream;
    row.device = segment.device;
    row.site = segment.site;
    row.first_block = first;
    row.blocks = static_cast<std::uint32_t>(segment.blocks.size());
    row.small_pool = segment.small_pool ? 1 : 0;
    row.expandable = segment.expandable ? 1 : 0;
    first += row.blocks;
  }
  return rows_of(std::move(rows));
}

Rows segment_block_rows(const SharedRecording& recording) {
  std::vector<SegmentBlockRow> rows;
  for (const SnapshotSegment& segment : recording->snapshot.segments)
    for (const SnapshotBlock& block : segment.blocks)
      rows.push_back({block.address, block.size_bytes, block.requested_bytes, block.site,
                      static_cast<std::uint8_t>(block.state)});
  return rows_of(std::move(rows));
}

const SiteTable& sites_with(const DeviceRecording& device, std::uint32_t site) {
  const SiteTable& sites = *device.trace().sites;
  if (site >= sites.sites())
    throw nb::index_error(
        ("site " + std::to_string(site) + ": there are " + std::to_string(sites.sites())).c_str());
  return sites;
}

// Innermost frame first: function, file, line.
std::vector<std::tuple<std::string, std::string, std::uint32_t>> stack_of(
    const DeviceRecording& device, std::uint32_t site) {
  const SiteTable& sites = sites_with(device, site);
  std::vector<std::tuple<std::string, std::string, std::uint32_t>> stack;
  for (const std::uint32_t number : sites.stack(sites.site(site).stack)) {
    const Frame& frame = sites.frame(number);
    stack.emplace_back(sites.text(frame.function), sites.text(frame.file), frame.line);
  }
  return stack;
}

void save(const SharedRecording& recording, const std::string& path, nb::handle progress) {
  interruptible(progress, [&](const Report& report) {
    report(-1, "writing " + path);
    write_traces(recording->snapshot.traces, recording->snapshot.segments, path);
    return true;
  });
}

std::vector<DeviceRecording> devices_of(const SharedRecording& recording) {
  std::vector<DeviceRecording> devices;
  for (std::size_t i = 0; i < recording->snapshot.traces.size(); ++i)
    devices.push_back({recording, i});
  return devices;
}

}  // namespace

SharedRecording load_recording(const std::string& path, nb::handle progress,
                               const std::string& name) {
  return interruptible(progress, [&](const Report& report) -> SharedRecording {
    auto recording = std::make_shared<Recording>();
    recording->path = name.empty() ? path : name;
    const std::string step = "reading " + path;
    report(0, step);
    recording->snapshot = load_snapshot(path, [&](std::size_t done, std::size_t all) {
      report(all == 0 ? 1 : static_cast<double>(done) / static_cast<double>(all), step);
    });
    return recording;
  });
}

void bind_recording(nb::module_& module) {
  nb::class_<DeviceRecording>(module, "DeviceRecording")
      .def_prop_ro("name", [](const DeviceRecording& d) { return d.trace().name; })
      .def_prop_ro("index", [](const DeviceRecording& d) { return d.trace().device; })
      .def_prop_ro("device_name", [](const DeviceRecording& d) { return d.trace().device_name; })
      .def_prop_ro("streams", [](const DeviceRecording& d) { return d.trace().streams; })
      .def_prop_ro("warnings", [](const DeviceRecording& d) { return d.trace().warnings; })
      .def_prop_ro("block_count", [](const DeviceRecording& d) { return d.trace().blocks; })
      .def_prop_ro("early_blocks", [](const DeviceRecording& d) { return d.trace().early_blocks; })
      .def_prop_ro("site_count", [](const DeviceRecording& d) { return d.trace().sites->sites(); })
      .def("live_peak_bytes", [](const DeviceRecording& d) { return d.trace().live_peak_bytes(); })
      .def("traced_peak_bytes",
           [](const DeviceRecording& d) { return d.trace().traced_peak_bytes(); })
      .def("duration_us", [](const DeviceRecording& d) { return d.trace().duration_us(); })
      .def("event_rows",
           [](const DeviceRecording& d) { return rows_of(d.recording, d.trace().events); })
      .def("mark_rows",
           [](const DeviceRecording& d) { return rows_of(d.recording, d.trace().marks); })
      .def("block_rows", &block_rows, nb::call_guard<WithoutGil>())
      .def("stack", &stack_of)
      .def("label", [](const DeviceRecording& d,
                       std::uint32_t site) { return sites_with(d, site).label(site); })
      .def("tag",
           [](const DeviceRecording& d, std::uint32_t site) {
             const SiteTable& sites = sites_with(d, site);
             return std::string(sites.text(sites.site(site).tag));
           })
      .def("mark_text", [](const DeviceRecording& d, std::size_t mark) {
        const Trace& trace = d.trace();
        if (mark >= trace.marks.size()) throw nb::index_error("there is no such mark");
        return std::string(trace.sites->text(trace.marks[mark].text));
      });

  nb::class_<Recording>(module, "Recording")
      .def_prop_ro("path", [](const Recording& r) { return r.path; })
      .def_prop_ro("notes", [](const Recording& r) { return r.snapshot.notes; })
      .def_prop_ro("settings", [](const Recording& r) { return r.snapshot.settings; });
  module.def("load_recording", &load_recording, nb::arg("path"), nb::arg("progress").none(),
             nb::arg("name") = "");
  module.def("devices_of", &devices_of);
  module.def("segment_rows", &segment_rows);
  module.def("segment_block_rows", &segment_block_rows);
  module.def("save_recording", &save, nb::arg("recording"), nb::arg("path"),
             nb::arg("progress").none());
  // Throws for a path whose ending names no format.
  module.def("check_trace_path",
             [](const std::string& path) { static_cast<void>(traces_format(path)); });
  module.def("op_name",
             [](std::uint8_t op) { return std::string(trace_op_name(static_cast<TraceOp>(op))); });
  module.def("mark_kind", [](std::uint8_t kind) {
    return std::string(mark_kind_name(static_cast<MarkKind>(kind)));
  });
}

}  // namespace tenon::python
