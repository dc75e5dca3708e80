#include "tenon/trace/write.h"

#include <fmt/format.h>

#include "tenon/base/error.h"
#include "tenon/trace/csv.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/perfetto.h"
#include "tenon/trace/snapshot_writer.h"

namespace tenon {

TraceFormat traces_format(const std::string& path) {
  std::string_view name = path;
  if (name.ends_with(".zst")) name.remove_suffix(4);
  if (name.ends_with(".csv")) return TraceFormat::kCsv;
  if (name.ends_with(".pickle") || name.ends_with(".pkl")) return TraceFormat::kSnapshot;
  if (name.ends_with(".json")) return TraceFormat::kPerfetto;
  throw InvalidArgument(
      fmt::format("{}: the ending names no format: write .csv, .pickle (PyTorch's snapshots) or "
                  ".json (Perfetto), each with .zst behind it if you like",
                  path));
}

void write_traces(std::span<const Trace> traces, const std::vector<SnapshotSegment>& segments,
                  const std::string& path) {
  switch (traces_format(path)) {
    case TraceFormat::kCsv: write_file(path, format_csv(traces)); break;
    case TraceFormat::kSnapshot: write_file(path, format_snapshot(traces, segments)); break;
    case TraceFormat::kPerfetto: write_file(path, format_perfetto(traces)); break;
  }
}

void write_traces(std::span<const Trace> traces, const std::string& path) {
  write_traces(traces, {}, path);
}

}  // namespace tenon
