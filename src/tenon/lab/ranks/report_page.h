// A report of one snapshot, or of one for each rank, as a web page without scripts. Thread-safe
// while no thread writes the report. add_advice throws Interrupted where the thread's work is asked
// to stop (base/interruption.h). O(size of the page), except add_advice (advice.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/ranks/comparison.h"
#include "tenon/lab/ranks/rank.h"

namespace tenon {

// What the page says.
struct Report {
  std::vector<Rank> ranks;         // at least one
  RankComparison comparison;       // of them
  std::vector<UnreadRank> unread;
  std::string advice;              // lines of text; empty: none
  std::size_t advised = 0;         // the rank that the advice is about
  std::uint64_t capacity_bytes = 0;  // of the device, where it is known
};

// Adds the settings that `tenon advise` finds with less effort for the rank that the page begins
// with. `snapshot`: of its file. Requires: the comparison is there.
void add_advice(Report& report, const Snapshot& snapshot);

// One file with style and pictures in it. Its security policy forbids scripts and requests, and
// what comes from files is escaped, so nothing in a snapshot can do anything in a browser.
std::string report_html(const Report& report);

// The figures of the report as one object.
std::string report_json(const Report& report);

}  // namespace tenon
