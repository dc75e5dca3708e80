// Two recordings side by side: what grew, what is new. Thread-safe: pure functions of their
// arguments. The only error is lack of memory (std::bad_alloc).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

// One call site or phase in both recordings; 0 where it is not in one of them.
struct DiffRow {
  std::string name;
  std::uint64_t before_bytes = 0;  // live at that recording's live peak
  std::uint64_t after_bytes = 0;
  std::uint64_t before_allocated = 0;  // asked for in all
  std::uint64_t after_allocated = 0;
  std::uint64_t before_count = 0;  // allocations
  std::uint64_t after_count = 0;

  // Only in the second recording, only in the first, bytes at the peak more than before.
  bool is_new() const { return before_count == 0 && after_count > 0; }
  bool is_gone() const { return before_count > 0 && after_count == 0; }
  // Negative where it shrank.
  std::int64_t growth_bytes() const {
    return static_cast<std::int64_t>(after_bytes) - static_cast<std::int64_t>(before_bytes);
  }
};

// What differs between one device's two recordings. Bytes are at each one's live peak.
struct TraceDiff {
  std::string before;  // names of the traces
  std::string after;
  std::uint64_t before_peak_bytes = 0;
  std::uint64_t after_peak_bytes = 0;
  std::uint64_t before_allocated = 0;
  std::uint64_t after_allocated = 0;
  std::vector<DiffRow> categories;  // weights, gradients, ...: most growth at the peak first
  std::vector<DiffRow> sites;   // most growth at the peak first, shrinking ones last
  std::vector<DiffRow> phases;  // the same, by the phase of allocation
};

// Sites are the same when their names are the same (call_sites.h), whatever their numbers. With
// `without_lines` the line numbers may differ, as between two versions of a program. O(events).
TraceDiff diff(const Trace& before, const Trace& after, bool without_lines = false);

// All devices of two recordings, each with the same device of the other, or with a recording of
// nothing where the other has none. One device on each side is the same whatever its name.
std::vector<TraceDiff> diff_all(const std::vector<Trace>& before, const std::vector<Trace>& after,
                                bool without_lines = false);

// As a table of at most `rows` lines a list; as JSON.
std::string diff_text(const TraceDiff& diff, std::size_t rows = 20);
std::string diff_json(const std::vector<TraceDiff>& diffs);

}  // namespace tenon
