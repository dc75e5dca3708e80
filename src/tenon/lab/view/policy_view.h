// One policy's replay, kept in full: what it held at any time, and where each block lay.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/replayer.h"
#include "tenon/lab/view/watching_backend.h"

namespace tenon {

// Memory behind a stretch of the display (DisplaySpace), from one operation to another.
struct BackedSpan {
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t from_op = 0;
  std::uint32_t to_op = 0;  // the operation that took it away; the number of operations: never
};

struct PolicyView {
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

  std::string policy;
  ReplayFigures figures;             // the same as replay() finds
  std::vector<HeldStep> held;        // bytes held, by operation
  std::vector<std::uint64_t> places; // display offset of each block, kNowhere for none
  std::vector<BackedSpan> spans;     // by from_op
  std::uint64_t display_bytes = 0;   // extent of the display
  std::uint32_t ops_done = 0;        // fewer than the workload's when memory ran out
};

// Puts the places and spans of a view in order: `places` are addresses still, and become display
// offsets; changes become spans. `ops`: operations in all.
void lay_out(PolicyView& view, const std::vector<BackingChange>& backing, std::uint32_t ops);

// Replays and watches. As with replay(), running out of memory is a result. Several may run side
// by side.
PolicyView view_policy(const Workload& workload, const ReplaySetup& setup);

}  // namespace tenon
