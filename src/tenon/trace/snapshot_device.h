// The entries of one device's trace in a snapshot.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tenon/trace/snapshot.h"
#include "tenon/trace/snapshot_fields.h"
#include "tenon/trace/trace_builder.h"

namespace tenon {

// Takes the entries in order and makes a trace of them. See parse_snapshot for the rules.
class SnapshotDevice {
 public:
  SnapshotDevice(SnapshotFields& fields, SnapshotFigures& figures, const std::string& path,
                 std::size_t device);

  // Throws ParseError for an entry that cannot be read.
  void read_entry(const PickleValue& entry);
  // A stretch of time that the program named.
  void annotate(bool begin, std::uint64_t now_us, std::uint32_t text);
  // Whether there is something to tell: events, or requests that failed.
  bool has_events() const { return builder_.events() > 0 || ooms_ > 0; }
  // Whether entries say of which pool they are, as PyTorch 2.12 and newer write them.
  bool names_pools() const { return names_pools_; }
  // Segments as they stood at the end tell of blocks that no event named.
  // The trace's table of sites is still to be set.
  Trace finish(const std::vector<SnapshotSegment>& segments);

 private:
  struct Entry;
  Entry parse(const PickleValue& value);
  void count(const Entry& entry);
  void read_event(const Entry& entry);
  void read_mark(const Entry& entry);
  void note_unknown(std::string_view action);
  void check(TraceFault fault) const;
  TraceBuilder make_builder() const;
  void leave_out_lone_free(const std::vector<SnapshotSegment>& segments);
  void warn();
  void warn_of_overlaps(const std::vector<SnapshotSegment>& segments);

  SnapshotFields& fields_;
  SnapshotFigures& figures_;
  const std::string& path_;
  const std::size_t device_;
  TraceBuilder builder_;
  std::uint64_t entries_ = 0;
  std::uint64_t mended_ = 0;  // entries that contradict earlier ones
  std::uint64_t early_ = 0;   // blocks from before the recording
  std::uint64_t ooms_ = 0;
  bool names_pools_ = false;
  std::string first_oom_;
  std::map<std::string, std::uint64_t, std::less<>> unknown_;  // entries by action; the first few
  std::uint64_t unknown_others_ = 0;                           // entries with further actions
  std::optional<std::int64_t> first_us_;  // time of the first event, from which all times count
  std::size_t absolute_marks_ = 0;        // marks from before that is known
  std::unordered_map<std::uint32_t, std::size_t> frame_places_;  // in figures_.frame_bytes
};

}  // namespace tenon
