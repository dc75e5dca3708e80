// A packing problem by sections of time: what the exact search works on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tenon/lab/planning/request.h"

namespace tenon {

// Memory in units: the largest number of bytes that divides every size. Sums of two never overflow.
using Units = std::int32_t;
inline constexpr Units kMostUnits = Units{1} << 29;

// A request in units, with the sections that it lives in: [first, last].
struct SectionItem {
  Units size = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

// Time cut into sections, of which only those are kept where the set of live requests is not a part
// of a neighbour's:
//
//   a  |-------|            sections {a,b} and {b,c}: whatever holds them
//   b     |--------|        holds {a}, {b} and {c} too
//   c            |-----|
//
// So two requests live at once exactly when they share a section.
struct SectionedProblem {
  std::vector<SectionItem> items;  // by request
  std::vector<Units> totals;       // by section: sizes of what lives in it
  std::uint64_t unit_bytes = 1;
  Units capacity = 0;              // rounded down

  std::size_t sections() const { return totals.size(); }
};

// Whether the requests fill the capacity in every section. Then every packing is full: no byte is
// ever free.
bool is_full(const SectionedProblem& problem);

// Nothing where the capacity has more than kMostUnits units. O(n log n).
std::optional<SectionedProblem> make_sections(const std::vector<PlanRequest>& requests,
                                              std::uint64_t capacity_bytes);

}  // namespace tenon
