// A plan as JSON for programs and as words for people: what `tenon plan` prints. Thread-safe: pure
// functions of their arguments. O(requests) beside plan_program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tenon/lab/planner.h"
#include "tenon/trace/trace.h"

namespace tenon {

// What only a recorded program has.
struct PlannedProgram {
  std::uint64_t events = 0;
  std::size_t streams = 0;
  bool streams_share = false;
  bool loop = false;
  std::optional<Iterations> iterations;
};

// What a plan is, in figures.
struct PlanReport {
  std::string name;
  std::size_t requests = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t lower_bound_bytes = 0;
  std::uint64_t capacity_bytes = 0;  // 0: none was given
  double seconds = 0;
  bool impossible = false;           // nothing fits into the capacity, that is proved
  std::optional<PlannedProgram> program;  // none of a static-planning problem

  // Whether it fits into the capacity, or none was given.
  bool solved() const { return capacity_bytes == 0 || peak_bytes <= capacity_bytes; }
};

// A plan and what is said of it.
struct PlannedTrace {
  Plan plan;
  PlanReport report;  // without a capacity; `seconds` are those of plan_program
};

// plan_program of a trace, checked by code that shares nothing with it. Throws InternalError for a
// plan that is not valid.
PlannedTrace plan_trace(const Trace& trace, const PlanOptions& options);

// As JSON; as words.
std::string plan_json(const PlanReport& report);
std::string plan_text(const PlanReport& report);

}  // namespace tenon
