// What a recording says of the settings that it ran with. Thread-safe: pure functions of their
// arguments. The only error is lack of memory (std::bad_alloc). Settings that cannot be parsed
// become a warning. O(segments + marks).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tenon/lab/advice/torch_settings.h"
#include "tenon/lab/explain/lifetimes.h"
#include "tenon/memory/gpu/pytorch_rules.h"
#include "tenon/trace/snapshot.h"

namespace tenon {

// The allocator settings that a recording ran with.
struct RecordedSettings {
  bool known = false;   // else PyTorch's defaults are assumed
  std::string conf;     // "key:value,..."; empty: the defaults
  CachingSettings settings;  // the same, parsed
  std::string warning;  // settings that no replay can follow; empty where there are none
};

// From allocator_settings: the text that was set, or if there is none the values themselves.
// Without either, from the segments, which say whether they are expandable.
RecordedSettings recorded_settings(const Snapshot& snapshot);

// The oldest PyTorch that writes a snapshot with these fields, and accepts the settings that it ran
// with. Empty if the file is no snapshot of PyTorch's, or holds no segments to tell by.
std::optional<TorchVersion> oldest_torch(const Snapshot& snapshot);

// Replays of its traces follow the rules of this PyTorch, not of the one that wrote it.
void replay_as(TorchVersion version, Snapshot& snapshot);

// What PyTorch held on the trace's device when a mark was made, by its number in the trace. Found
// from the end, with the marks between undone. Nothing where the file has no segments.
std::optional<std::uint64_t> recorded_reserved_at(const Snapshot& snapshot, const Trace& trace,
                                                  std::size_t mark);

// Says, with the numbers, that more was live at the live peak than PyTorch held: no program wrote
// such a file. Empty where that is not so, and where the file has no segments.
std::string contradiction(const Snapshot& snapshot, const Trace& trace, const Moment& live_peak);

// Most bytes that PyTorch held on the trace's device while it was recorded: as the trace says, or
// from what it held at the end and the marks before. Nothing where the file has neither.
std::optional<std::uint64_t> recorded_reserved_peak(const Snapshot& snapshot, const Trace& trace);

// How often the device, or a limit, was full when memory was asked for, so that PyTorch gave cached
// segments back to the driver and then took a new one. Segments went and one came from the same
// call stack, with no event between. 0 where stacks were not recorded, and with
// garbage_collection_threshold, which gives segments back before the device is full.
std::size_t times_full(const Snapshot& snapshot, const Trace& trace);

}  // namespace tenon
