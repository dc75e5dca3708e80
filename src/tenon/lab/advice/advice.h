// Which settings a recorded program should have run with.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/lab/advice/conf_choice.h"
#include "tenon/lab/workload.h"

namespace tenon {

struct AdviceOptions {
  std::uint64_t capacity_bytes = 0;  // of the device; 0: not known
  std::uint64_t lag_ns = 5'000'000;
  int threads = 0;                   // 0: one for each core; the advice does not depend on it
  double effort = 1;                 // how many settings are tried
};

// What one choice of policy and settings would have needed.
struct AdviceFigures {
  std::string policy;
  std::string conf;                                 // empty: the defaults
  std::uint64_t reserved_peak_bytes = 0;            // without a capacity limit
  std::optional<std::uint64_t> min_capacity_bytes;  // none: not searched
  std::uint64_t driver_stall_ns = 0;                // under the capacity where one was given
  std::optional<bool> fits;                         // within the capacity, where one was given
};

struct Advice {
  std::string trace;
  std::uint64_t events = 0;
  std::uint64_t live_peak_bytes = 0;
  std::uint64_t capacity_bytes = 0;
  AdviceFigures default_settings;
  AdviceFigures expandable;
  // What to set. Not worse than the better of the two above in reserved peak nor in smallest
  // capacity, if such settings were found (`best_in_both`); else where the worse of the two
  // comparisons is least bad, or with a capacity, what fits into it.
  AdviceFigures best;
  bool best_in_both = false;
  AdviceFigures least_reserved;
  AdviceFigures smallest_capacity;
  AdviceFigures stitched;  // what Tenon's own policies would need
  AdviceFigures plan;
  std::size_t settings_tried = 0;
  // The live peak exceeds the capacity: no allocator and no settings can help.
  bool hopeless() const { return capacity_bytes != 0 && live_peak_bytes > capacity_bytes; }
};

// Called between pieces of work, one call at a time.
using AdviceProgress = std::function<void(std::string_view step)>;

// Replays the program over PyTorch's settings, by the rules that gave PyTorch's own figures, on
// several threads: a coarse list first, then from the best of it step by step, as long as a step in
// one setting improves. What is tried depends on the trace and `effort` alone, so the advice is the
// same on every machine. About 20 s on two cores for 100,000 events at effort 1.
Advice advise(const Workload& workload, const AdviceOptions& options,
              const AdviceProgress& progress = {});

}  // namespace tenon
