// Offsets for requests of known sizes and lives.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/lab/planning/request.h"

namespace tenon {

// Packs requests so that no two that live at the same time overlap, with little memory. Sizes and
// offsets are in units: rounded up to, and multiples of, `unit_bytes` (a power of two).
//
// Static packing is strongly NP-hard; this takes the best of several heuristics:
//  - greedy: requests in a fixed order (largest first; largest area of size x life first; longest
//    life first), each at the lowest offset that is free throughout its life;
//  - promoted: an order (largest first; then others, by how full the times are that a request lives
//    in), over and over with what ended highest moved to the front;
//  - replayed: in the program's own order, best fit, as an allocator without foresight would do.
// Requests so small that all of them together never need more than 1/512 of the whole are replayed
// in a strip of their own above the others. On recorded training programs the result is within a
// few per cent of the lower bound. Deterministic. About O(n (log n + m)) for n requests of which m
// live at once: 60,000 take about a second. Greedy runs end after some seconds where more requests
// overlap than in programs, in proportion to `effort`; one below 1 makes that share of the runs,
// and at least the three fixed orders.
Packing pack(const std::vector<PlanRequest>& requests, std::uint64_t unit_bytes,
             double effort = 1);

// The program's own order alone, best fit: O(n log n). For plans that are made often.
Packing pack_quickly(const std::vector<PlanRequest>& requests, std::uint64_t unit_bytes);

// pack(), then search_below() it.
Packing pack_tightly(const std::vector<PlanRequest>& requests, std::uint64_t unit_bytes,
                     double effort = 1);

// An exact search below a packing of up to kMostSearched (fit.h) requests: at the lower bound
// first, then by six steps of bisection. `effort` bounds the work; at 1 a step takes about a second
// of two cores. Returns the packing given where the search finds none that is smaller.
Packing search_below(Packing packing, const std::vector<PlanRequest>& requests,
                     std::uint64_t unit_bytes, double effort);

}  // namespace tenon
