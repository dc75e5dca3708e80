// An exact search for a packing within a capacity.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tenon/lab/planning/sections.h"

namespace tenon {

// Depth-first search over canonical packings: those in which no request could lie lower. Such a
// packing is built from the bottom, in order of (offset, rank), each request resting on the skyline
// of those before it:
//
//        |   d   |           The next request is one of those unplaced, at the top of what lies
//     |  c   |               below it. It may not lie so high that another one would fit wholly
//   | a | |  b  |            beneath it: then that one could drop,
//                            and the packing would not be canonical.
//
// A branch is cut when some section cannot hold what is still to come: its floor (the lowest offset
// at which anything can still begin there) plus the sizes unplaced in it exceed the capacity. Where
// no unplaced request crosses a boundary between sections, both sides are solved apart, so what
// goes wrong on one side is never tried again for every packing of the other.
//
// The ideas are those of MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
// Hardware-Accelerated Machine Learning", ASPLOS 2023): canonical solutions, section inference,
// monotonic floors, dominance, decomposition.
//
// Deterministic; not thread-safe. O(n + sum of lives in sections) for each node.
class CapacitySearch {
 public:
  enum class Outcome {
    kFits,
    kImpossible,  // proved: no packing at all
    kGaveUp,      // the node limit was reached
  };

  explicit CapacitySearch(const SectionedProblem& problem);

  // Searches with the request of rank 0 preferred over rank 1 and so on among those that could lie
  // equally low. A rank each, from 0. At most `node_limit` nodes.
  Outcome run(std::span<const std::uint32_t> ranks, std::uint64_t node_limit);

  // After kFits: by request, in units.
  const std::vector<Units>& offsets() const { return placed_at_; }
  std::uint64_t nodes() const { return nodes_; }
  // By section: how often it was the one that could not hold what was to come. Kept from run to
  // run; the caller may let it fade.
  std::vector<double>& failures() { return failures_; }

 private:
  // Unplaced requests that only meet each other: a range of pending_, ordered by first section.
  struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // The last placement's place in the order.
  struct Turn {
    Units offset = 0;
    std::int64_t rank = -1;
  };
  struct SectionChange {
    std::uint32_t section;
    Units rest;
  };
  struct OffsetChange {
    std::uint32_t item;
    Units offset;
  };

  bool solve(Part part, Turn last);
  bool solve_parts(Part whole, Turn last);
  bool can_hold(Part part, Turn last);
  void find_candidates(Part part, Turn last);
  bool place(std::uint32_t item);
  Part raise_and_list_others(Part part, std::uint32_t item);
  void undo(std::size_t sections_mark, std::size_t offsets_mark);
  bool is_next(std::uint32_t item, Turn last) const;

  const SectionedProblem& problem_;
  std::span<const std::uint32_t> ranks_;
  std::uint64_t node_limit_ = 0;
  std::uint64_t nodes_ = 0;
  bool gave_up_ = false;

  std::vector<Units> lowest_;     // by item: the skyline under it
  std::vector<Units> placed_at_;  // by item
  std::vector<Units> rests_;      // by section: sizes of unplaced items
  std::vector<double> failures_;
  // Stacks, each frame of the recursion on top of its caller's.
  std::vector<std::uint32_t> pending_;
  std::vector<std::uint32_t> candidates_;
  std::vector<SectionChange> section_changes_;
  std::vector<OffsetChange> offset_changes_;
  // Scratch of can_hold.
  std::vector<Units> tops_;    // by section: lowest top of anything that may come next
  std::vector<Units> starts_;  // by section: lowest offset at which anything can begin
  Units highest_start_ = 0;    // a buffer from here on leaves room for another beneath it
};

}  // namespace tenon
