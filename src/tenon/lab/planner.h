// Works out offsets for a recorded program: the static side of the policy `plan`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tenon/heap/plan.h"

namespace tenon {

struct ReplayOp;
struct Trace;

// One block of a program: its size and its life, in any unit of time: it lives in [begin, end).
struct PlanRequest {
  std::uint64_t size = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

// Where each request goes, and how good that is.
struct Packing {
  std::vector<std::uint64_t> offsets;   // by request
  std::uint64_t peak_bytes = 0;         // the highest end
  std::uint64_t lower_bound_bytes = 0;  // most bytes live at once: no packing needs less
};

// Packs requests so that no two that live at the same time overlap, with little memory. Sizes and
// offsets are in units: rounded up to, and multiples of, `unit_bytes` (a power of two).
//
// Static packing is strongly NP-hard; this takes the best of several heuristics:
//  - greedy: requests in a fixed order (largest first; largest area of size x life first; longest
//    life first), each at the lowest offset that is free throughout its life;
//  - promoted: largest first, then over and over with what ended highest moved to the front;
//  - replayed: in the program's own order, best fit, as an allocator without foresight would do.
// Requests so small that all of them together never need more than 1/512 of the whole are replayed
// in a strip of their own above the others. On recorded training programs the result is within a
// few per cent of the lower bound. Deterministic. About O(n (log n + m)) for n requests of which m
// live at once: 60,000 take about a second.
Packing pack(const std::vector<PlanRequest>& requests, std::uint64_t unit_bytes);

// Offsets for every allocation of a program, by stream. Zero-byte allocations are left out, as they
// reach no heap. Blocks that are never freed live to the end. Frees count where the allocator takes
// the block back (free_completed).
Plan make_plan(std::span<const ReplayOp> ops, std::uint64_t unit_bytes = 512);
Plan make_plan(const Trace& trace, std::uint64_t unit_bytes = 512);

}  // namespace tenon
