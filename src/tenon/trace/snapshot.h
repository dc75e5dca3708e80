// PyTorch's memory snapshots: what torch.cuda.memory._dump_snapshot writes. Thread-safe: pure
// functions of their arguments. The hooks are called on the calling thread. O(bytes).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

// What a snapshot holds, counted over all devices.
struct SnapshotFigures {
  std::uint64_t segments = 0;
  std::uint64_t blocks = 0;
  std::uint64_t total_bytes = 0;      // of all segments
  std::uint64_t allocated_bytes = 0;
  std::map<std::string, std::uint64_t, std::less<>> states;   // blocks by state
  std::map<std::string, std::uint64_t, std::less<>> actions;  // trace entries by action
  std::vector<std::uint64_t> trace_entries;                   // by device
  std::uint64_t external_annotations = 0;
  // Bytes that `alloc` entries asked for, by innermost frame (its number in Snapshot::sites), in
  // the order in which the frames first came. Entries without frames are not counted.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> frame_bytes;
};

// What a block is doing; kOther: a word that is not known.
enum class BlockState : std::uint8_t { kAllocated, kPendingFree, kInactive, kOther };

// A block as it stood when the snapshot was taken.
struct SnapshotBlock {
  std::uint64_t address = 0;
  std::uint64_t size_bytes = 0;       // as placed
  std::uint64_t requested_bytes = 0;  // as asked for; of a free block what it last held
  std::uint32_t site = 0;             // in Snapshot::sites
  BlockState state = BlockState::kOther;

  // Whether it is anything but free.
  bool in_use() const {
    return state == BlockState::kAllocated || state == BlockState::kPendingFree;
  }
};

// Memory that PyTorch held from the driver, tiled by blocks in order of address.
struct SnapshotSegment {
  std::uint64_t address = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t stream = 0;
  std::uint32_t device = 0;
  std::uint32_t site = 0;
  bool small_pool = false;
  bool expandable = false;
  std::string pool = {};  // "(0, 0)"; other pools belong to graphs or to the program
  std::vector<SnapshotBlock> blocks = {};

  // A free block between the addresses, if there is room.
  void add_free(std::uint64_t begin, std::uint64_t end) {
    if (begin < end)
      blocks.push_back(
          {.address = begin, .size_bytes = end - begin, .state = BlockState::kInactive});
  }
};

// A file of torch.cuda.memory._dump_snapshot.
struct Snapshot {
  std::vector<Trace> traces;  // one for each device that has events
  std::vector<SnapshotSegment> segments;
  SnapshotFigures figures;
  std::shared_ptr<const SiteTable> sites = Trace::empty_sites();  // the traces' own
  std::vector<std::pair<std::string, std::string>> settings;      // allocator_settings, as text
  // Of the file's dict ("segments", "external_annotations", ...), and "is_expandable" where
  // segments have that.
  std::vector<std::string> fields;
  std::vector<std::string> notes;  // fields that are not known, states that are not, ...
};

// A key of the dict in snapshots that Tenon writes of traces without segments. PyTorch's viewer
// needs segments, so the writer makes some up around the blocks; a reader takes blocks from them,
// and nothing about what was reserved.
inline constexpr std::string_view kMadeUpSegments = "tenon_made_up_segments";

// Called now and then while a file is read.
struct ReadHooks {
  std::function<void(std::size_t done, std::size_t all)> progress;  // bytes, of both passes
  std::function<void(std::size_t offset)> passed;  // bytes before it will seldom be looked at again
};

// Builds traces from `device_traces`. Addresses become blocks. alloc, free_requested and
// free_completed become events, all other entries and the external annotations marks. A block that
// was live before the recording began is allocated at the beginning. Its free has no alloc, or
// `segments` shows it in use and no event names it. Where entries contradict each other (a ring
// buffer that lost some), the trace goes on and a warning says how often. Frames may be missing.
//
// The trace is named after the file; with events on several devices, "name:0", "name:1".
// A file of any size is read in one pass, with memory for its result and for one batch of entries.
// Nothing of the pickle is kept.
//
// Throws ParseError for what is not such a snapshot, or has neither events nor blocks in use (it
// says how to record them).
Snapshot parse_snapshot(std::string_view bytes, const std::string& path,
                        const ReadHooks& hooks = {});

}  // namespace tenon
