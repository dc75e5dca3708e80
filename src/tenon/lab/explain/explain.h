// From a recording to an answer: what was live, where the rest of the memory was, why it ran out.
// Thread-safe: pure functions of their arguments. Throws Interrupted where the thread's work is
// asked to stop (base/interruption.h), and std::bad_alloc. A recording that no policy can follow
// gives no figures of replays.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tenon/lab/explain/fragmentation.h"
#include "tenon/lab/explain/growth.h"
#include "tenon/lab/explain/live_set.h"
#include "tenon/lab/explain/out_of_memory.h"
#include "tenon/lab/explain/sleep.h"
#include "tenon/lab/verdict/verdict.h"
#include "tenon/trace/snapshot.h"

namespace tenon {

// What a PyTorch process reserved at a moment, and why it is more than the live bytes.
struct MemoryAt {
  std::string moment;  // "live peak", "reserved peak", "end"
  std::size_t events = 0;
  std::int64_t time_us = 0;
  Fragmentation fragmentation;
};

// One device of a recording.
struct DeviceExplanation {
  std::string name;
  std::uint32_t device = 0;
  std::uint64_t events = 0;           // with requests to free; "event n" counts these
  std::uint64_t replayed_events = 0;  // allocations and completed frees
  std::uint64_t duration_us = 0;
  bool has_times = true;           // PyTorch before 2.2 recorded none
  bool has_history = true;         // else only what was live when the snapshot was taken
  std::uint64_t early_blocks = 0;  // live before the recording began
  Moment live_peak;                // everything that was live
  std::uint64_t traced_peak_bytes = 0;
  std::uint64_t live_at_end_bytes = 0;
  std::uint64_t reserved_at_peak_bytes = 0;  // at the live peak; 0 where it is not known
  std::uint64_t reserved_peak_bytes = 0;
  std::int64_t reserved_peak_us = 0;
  bool reserved_known = false;
  Verdict verdict;
  LiveSet at_peak;
  std::vector<MemoryAt> memory;   // empty without segments; without history the end alone
  std::vector<OutOfMemoryReport> failures;
  std::uint64_t failure_count = 0;  // of which the first few are explained
  std::vector<TagSleep> sleeps;     // of memory that sleeps by tag
  Growth growth;
  std::vector<std::string> warnings;
};

// All that is said of a recording.
struct Explanation {
  std::string path;
  SnapshotFigures figures;
  std::vector<std::pair<std::string, std::uint64_t>> top_frames;  // five, most bytes first
  std::vector<std::pair<std::string, std::uint64_t>> top_call_sites;  // the same by call site
  std::uint64_t traced_peak_bytes = 0;  // of the device with most
  std::vector<DeviceExplanation> devices;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<std::string> notes;
};

// What may cost time.
struct ExplainOptions {
  bool replay = true;  // try other allocators where an allocation failed
};

// One device. O(events log events), and a few replays for each failure. `facts` are of
// one of the snapshot's traces.
DeviceExplanation explain_device(const TraceFacts& facts, const Snapshot& snapshot,
                                 const ExplainOptions& options = {});

// All devices of a recording.
Explanation explain(const Snapshot& snapshot, const std::string& path,
                    const ExplainOptions& options = {});

// Words and numbers for a terminal; at most `rows` lines a list.
std::string explanation_text(const Explanation& explanation, std::size_t rows = 10);
// {"segments": ..., "traced_peak_bytes": ..., "devices": [...], ...}
std::string explanation_json(const Explanation& explanation);

}  // namespace tenon
