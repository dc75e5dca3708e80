// A category for every block of a trace. Thread-safe: pure functions of their arguments. The only
// error is lack of memory (std::bad_alloc).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tenon/lab/explain/call_sites.h"
#include "tenon/lab/explain/lifetimes.h"
#include "tenon/lab/verdict/category.h"
#include "tenon/trace/trace.h"

namespace tenon {

// What a program does when it asks for memory.
enum class Doing : std::uint8_t { kUnknown, kForward, kBackward, kStep };

// A stretch of events in which only one thing was done.
struct Stretch {
  std::uint32_t begin = 0;  // number of its first event
  std::uint32_t end = 0;    // of the first request behind it
  std::uint32_t last = 0;   // of its last request
};

// Where a trace's forward and backward passes and optimiser steps lie.
struct Passes {
  std::vector<Doing> doing;         // by block: what asked for it
  std::vector<Stretch> backward;    // in order; several to a step where gradients accumulate
  std::vector<Stretch> steps;       // of the optimiser, as annotations or its requests show them
  std::uint32_t setup_end = 0;      // event at which the first forward pass begins
  bool by_stack = false;            // false: the trace has no stacks
};

// What each block is for, and the passes of the program.
struct Categories {
  std::vector<BlockCategory> blocks;  // by block
  Passes passes;
};

// By stacks, annotations, sizes and lives (Note [Categories] in categories.cc); every block gets
// one. `phases`: by event, as phases_by_event gives them. O(events + frames).
Categories categorize(const Trace& trace, std::span<const Lifetime> lives,
                      std::span<const std::uint32_t> phases, const CallSites& sites);

}  // namespace tenon
