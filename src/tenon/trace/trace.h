// What a program asked of its allocator, when, and from where. Plain data: thread-safe while no
// thread writes it. The only error is lack of memory (std::bad_alloc). Figures over all events are
// O(events).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/trace/site_table.h"

namespace tenon {

// What an event is.
enum class TraceOp : std::uint8_t {
  kAlloc,
  kFreeRequested,  // the program freed it
  kFreeCompleted,  // the allocator took it back: other streams are done with it
};

// As CSV files have it.
std::string_view trace_op_name(TraceOp op);

// One allocation or free.
struct TraceEvent {
  std::int64_t time_us = 0;  // as recorded; may run backwards (Trace::warnings says so)
  std::uint64_t size_bytes = 0;
  std::uint32_t block = 0;   // 0, 1, 2, ... in order of allocation; every alloc has a new one
  std::uint32_t stream = 0;  // index into Trace::streams
  TraceOp op = TraceOp::kAlloc;
  std::uint32_t site = 0;    // in Trace::sites: stack, tag and thread; 0: not known

  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};
static_assert(sizeof(TraceEvent) == 32);

// What happened between events.
enum class MarkKind : std::uint8_t {
  kSegmentAlloc,  // memory came from the driver
  kSegmentFree,   // and went back to it
  kSegmentMap,    // pages of an expandable segment came
  kSegmentUnmap,  // and went
  kOutOfMemory,
  kPhaseBegin,    // the program said that it begins or ends something
  kPhaseEnd,
  kSnapshot,      // the recording was taken
  kOther,         // an action that is not known; `text` is its name
  kSleepToHost,   // memory left the device, addresses kept; `text` is the tag that sleeps
  kSleepDropped,  // the same, and the contents are lost
  kWake,          // and it came back
  kEmptyCache,    // the program called empty_cache(); `size_bytes` went back to the driver
};

// In a word.
std::string_view mark_kind_name(MarkKind kind);
bool is_sleep(MarkKind kind);  // memory fell asleep
// Whether segments or pages came from the driver, or went back to it.
bool memory_came(MarkKind kind);
bool memory_went(MarkKind kind);
// Whether the allocator gave idle memory back: sleep, empty_cache(), a request that failed.
bool gives_back(MarkKind kind);

// Something that happened between events and that no replay performs, except that its policy gives
// idle memory back where the recorded allocator did (gives_back).
struct TraceMark {
  std::int64_t time_us = 0;
  std::uint64_t address = 0;     // of segments, pages and what sleeps
  std::uint64_t size_bytes = 0;  // of segments, pages, memory that went back, left for sleep or
                                 // came back, and the request that ran out of memory
  std::uint64_t stream = 0;      // the recording's own value
  std::uint64_t device_free_bytes = kUnknown;  // out of memory: what the driver had left
  std::uint32_t event = 0;       // number of events before it
  std::uint32_t site = 0;        // in Trace::sites
  std::uint32_t text = 0;        // in Trace::sites: a phase's name, a tag that sleeps
  MarkKind kind = MarkKind::kOther;

  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
};

// A file that names more devices is refused.
inline constexpr std::size_t kMaxTraceDevices = 1024;

// One device's recording. A block whose memory sleeps takes none of the device's. It is freed just
// before the mark of its sleep. Another block is allocated just after the mark of its waking, at
// the same address. Readers check their input. So in every Trace a block is allocated once, freed
// at most once and afterwards, and sizes and their sums fit (kMaxRequestBytes).
struct Trace {
  std::string name;
  std::vector<TraceEvent> events;
  std::vector<std::uint64_t> streams;  // the recording's own stream values, by order of first use
  std::uint32_t blocks = 0;            // allocations in `events`
  std::uint32_t early_blocks = 0;      // of these, the first so many were live before it began
  std::uint32_t device = 0;            // index of the device recorded
  std::string device_name;             // "sim:0"; empty where the recording has only the index
  std::vector<std::uint64_t> addresses;  // by block; empty where the recording has none
  std::uint64_t most_reserved_bytes = 0;  // what PyTorch held at most, where a file has the figure
                                          // alone (profiles); 0: not known
  bool oldest_segment_first = false;   // PyTorch 2.12 or newer wrote it (gpu/pytorch_rules.h)
  std::vector<TraceMark> marks;        // in order
  // What the sites, texts and stacks of events and marks are. Never null; traces of one file share.
  std::shared_ptr<const SiteTable> sites = empty_sites();
  std::vector<std::string> warnings;   // oddities that do not stop a replay, one line each

  // Events that a replay performs: alloc and free_completed.
  std::uint64_t replayed_events() const;
  // Most bytes of requested size live at once, from alloc to free_completed.
  std::uint64_t live_peak_bytes() const;
  // The same without what was live before the recording began.
  std::uint64_t traced_peak_bytes() const;
  // Last time minus first; time that runs backwards counts as standing still.
  std::uint64_t duration_us() const;

  // A table with nothing in it, for traces without sites.
  static const std::shared_ptr<const SiteTable>& empty_sites();
};

// "dir/gpt2.csv.zst" is the trace "gpt2", as one_line() shows it.
std::string trace_name(std::string_view path);

}  // namespace tenon
