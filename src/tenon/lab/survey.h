// Many workloads over many policies: what `tenon replay` does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/lab/replayer.h"
#include "tenon/lab/workload.h"

namespace tenon {

// A policy with settings of its own.
struct SurveyRow {
  std::string name;                // as the report shows it
  std::string policy;
  std::vector<std::string> confs;  // PyTorch's allocator settings, by workload
};

// Which policies, and what is measured.
struct SurveyOptions {
  std::vector<std::string> policies;
  std::string conf;                  // PyTorch's allocator settings
  std::vector<SurveyRow> rows;       // instead of the two above; empty: a row for each policy
  std::uint64_t page_bytes = 0;      // of `stitched`; 0: its default
  const Plan* plan = nullptr;        // of `plan`; null: one is made from each trace
  std::uint64_t capacity_bytes = 0;  // 0: none
  bool find_capacity = false;
  std::uint64_t lag_ns = 5'000'000;
  int passes = 11;                   // timed; 0: no times
  int threads = 0;                   // for all but timing; 0: one for each core
};

// One policy on one trace. What each figure means is in docs and in `tenon replay --help`.
struct SurveyResult {
  std::string trace;
  std::string policy;
  std::string name;  // of the row; empty where rows are policies
  std::string conf;
  std::uint64_t events = 0;
  std::uint64_t live_peak_bytes = 0;
  std::uint64_t reserved_peak_bytes = 0;            // without a capacity limit
  std::uint64_t reserved_in_capacity_bytes = 0;     // the same under the capacity; 0: none given
  std::optional<std::uint64_t> min_capacity_bytes;  // when asked for
  std::uint64_t driver_calls = 0;  // this and the next two: under the capacity, if one was given
  std::uint64_t driver_stall_ns = 0;
  std::uint64_t moving_stall_ns = 0;
  std::uint64_t trace_duration_us = 0;
  std::optional<double> ns_per_event;
  std::optional<double> floor_ns;                   // the same of `null`: the replay's own cost
  double fragmentation = 0;
  std::uint64_t layout_hash = 0;
  std::optional<OutOfMemoryAt> out_of_memory;
  std::uint64_t capacity_bytes = 0;                 // that was given; 0: none
  std::string error;                                // why there are no figures; usually empty
};

// Called before each piece of work, from any thread, one call at a time.
using SurveyProgress = std::function<void(std::size_t done, std::size_t all, std::string_view trace,
                                          std::string_view policy, std::string_view step)>;

// All traces over all policies or rows. Results are by trace, then policy, in that order. Untimed
// replays run on several threads, and then timed ones, alone. A policy that throws (a bug)
// spoils its own result only. O(events) for each trace, policy and pass. Throws InvalidArgument for
// unknown policies or settings, before any work.
std::vector<SurveyResult> survey(const std::vector<Workload>& workloads,
                                 const SurveyOptions& options, const SurveyProgress& progress = {});

}  // namespace tenon
