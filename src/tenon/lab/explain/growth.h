// Call sites whose live bytes grow from iteration to iteration. Thread-safe: pure functions of
// their arguments. The only error is lack of memory (std::bad_alloc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/explain/call_sites.h"
#include "tenon/lab/explain/lifetimes.h"

namespace tenon {

// A call site whose live bytes rise from iteration to iteration.
struct GrowingSite {
  std::string name;
  std::uint64_t first_bytes = 0;  // live at the first boundary looked at
  std::uint64_t last_bytes = 0;   // and at the last
  // Of these, in blocks older than the recording, of sizes that the recorded iterations leave, too.
  std::uint64_t older_bytes = 0;
  std::uint64_t first_blocks = 0;
  std::uint64_t last_blocks = 0;
  double bytes_per_iteration = 0;

  // What the iterations left, as far as it is known.
  std::uint64_t grown_bytes() const { return last_bytes - first_bytes + older_bytes; }
};

// What rises over the iterations of a program.
struct Growth {
  static constexpr std::size_t kFewest = 5;  // iterations below which nothing is said of growth

  std::string found_by;                  // how iterations were found, in words; empty: none
  std::size_t iterations = 0;
  std::vector<std::size_t> boundaries;   // numbers of events: ends of the iterations looked at
  std::vector<std::uint64_t> live_bytes; // at each boundary
  std::vector<GrowingSite> suspects;     // most growth first
};

// Whether what grows has come to a tenth of `bytes` or more, with what is older than the recording.
bool matters(const Growth& growth, std::uint64_t bytes);

// Iterations are find_iterations_in()'s. With kFewest or more, growth is judged: the first is left
// out, as it makes what stays. A site is suspected when its live bytes never shrink from boundary
// to boundary and grow at most of them: at three at least. O(events + iterations * sites).
Growth growth(const Trace& trace, const std::vector<Lifetime>& lives, const CallSites& sites);

}  // namespace tenon
