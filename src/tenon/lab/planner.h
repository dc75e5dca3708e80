// Works out offsets for a recorded program: the static side of the policy `plan`. Thread-safe: pure
// functions of their arguments. Throws Interrupted where the thread's work is asked to stop
// (base/interruption.h), and std::bad_alloc. About O(n (log n + m)) for n requests of which m live
// at a time (planning/pack.h). Of a stream, the loop and the whole may each be searched exactly,
// some tenths of a second of two cores each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tenon/heap/plan.h"
#include "tenon/lab/planning/iterations.h"
#include "tenon/lab/planning/pack.h"

namespace tenon {

struct ReplayOp;
struct StepEvent;
struct Trace;

// How to plan.
struct PlanOptions {
  std::uint64_t unit_bytes = 512;
  // Where the end of the recording repeats itself, plan one iteration, to be served for ever.
  bool find_loops = false;
  // Let streams share memory where that needs less than memory for each.
  bool share_streams = true;
  // Place in the order of the recording alone (pack_quickly), without looking for better.
  bool quick = false;
};

// A plan and what it is to be measured by.
struct PlanResult {
  Plan plan;
  // Most requested bytes live at once, on all streams together: no plan needs less.
  std::uint64_t live_peak_bytes = 0;
  // Of the stream with most allocations, where they were looked for and found.
  std::optional<Iterations> iterations;
};

// Offsets for every allocation of a program, by stream. Zero-byte allocations are left out, as they
// reach no heap. Blocks that are never freed live to the end. Frees count where the allocator takes
// the block back (free_completed).
//
// Streams get memory of their own unless the sum of their peaks is larger than the peak of the sum
// by more than 1/512. Then they share one range, packed in the order of the recording.
//
// A loop begins where the fewest bytes are live in an iteration. Its slots live as long as in the
// iteration where they live longest. A block that survives into the next iteration has its place
// for a whole iteration. A loop is planned where that costs at most 1/200 above the live peak, or
// no more than a plan of the whole recording.
PlanResult plan_program(std::span<const ReplayOp> ops, const PlanOptions& options = {});

// The plan alone, of the whole recording: what the policy `plan` is given in a replay.
Plan make_plan(std::span<const ReplayOp> ops, std::uint64_t unit_bytes = 512);
Plan make_plan(const Trace& trace, std::uint64_t unit_bytes = 512);

// The same of a step that StepMeter recorded: places for the blocks that it made. Blocks from
// before, which the events may free, keep theirs.
Plan make_plan(std::span<const StepEvent> step, std::uint64_t unit_bytes);

}  // namespace tenon
