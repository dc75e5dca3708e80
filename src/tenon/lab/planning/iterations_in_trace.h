// Where the iterations of a recorded program end.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

struct TraceIterations {
  std::string found_by;           // in words; empty: none were found
  std::vector<std::size_t> ends;  // for each iteration the number of events up to its end
};

// By the first of these that tells of two iterations or more:
//
// 1. Stretches that the program named: those called a step ("Optimizer.step#AdamW.step",
//    "ProfilerStep#7", "iteration 3"; numbers in names do not count), the name that comes most
//    often. Gradients are accumulated in several passes before one step of the optimizer, so steps
//    of the optimizer are iterations and passes are not.
// 2. Call stacks with a function `step` of an optimizer. Allocations of one step follow each other
//    with none between that has other frames of Python (backward's thread has none); each line of
//    the program that steps is counted by itself, so two optimizers do not double the count. Only
//    if steps allocate more than once in the recording.
// 3. Proof. The last half of the recording, or more, is the same sequence again and again: the same
//    operation, size and stream, and each free the same number of events after its allocation.
//    That number tells iterations from the layers of a backward pass, which frees ever older
//    blocks. A sequence that keeps more than a third of what it allocates is a forward pass, layer
//    by layer, and no iteration. An iteration ends where the fewest bytes are live. What is
//    proved is that the sequence repeats: where a recording holds passes of gradient accumulation
//    and no step of the optimizer, the passes are what repeats.
//
// A program whose sizes change from step to step and that says nothing of its steps has none.
// O(events).
TraceIterations find_iterations_in(const Trace& trace);

}  // namespace tenon
