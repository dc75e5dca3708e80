// A trace, decoded for replay. Errors: std::bad_alloc, and what the planner throws at the first
// plan(). Made in O(events). Thread-safe once made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

class Plan;

// One allocation or free: 16 bytes.
struct ReplayOp {
  std::uint64_t size_bytes = 0;
  std::uint32_t slot = 0;    // where the block's DataPtr is kept; reused once the block is freed
  std::uint16_t stream = 0;  // dense, from 0
  bool alloc = false;
  bool gives_back = false;   // before it, the program gave idle memory back to the driver
};
static_assert(sizeof(ReplayOp) == 16);

// The alloc and free_completed events of a trace, with what every replay of it needs to know.
// Immutable once made, so any number of threads may replay one workload.
class Workload {
 public:
  explicit Workload(const Trace& trace);
  Workload(Workload&&) noexcept;
  ~Workload();

  // The trace's name, and its operations in order.
  const std::string& name() const { return name_; }
  const std::vector<ReplayOp>& ops() const { return ops_; }
  // Time since the trace began, by op; never runs backwards.
  const std::vector<std::uint64_t>& times_ns() const { return times_ns_; }
  // The number of an op's event in the trace, from 1.
  std::uint64_t event_number(std::size_t op) const { return events_[op]; }

  // How many slots and streams a replay needs, the most requested bytes live at one time, and how
  // long the recording took.
  std::uint32_t slots() const { return slots_; }
  std::uint32_t streams() const { return streams_; }
  std::uint64_t live_peak_bytes() const { return live_peak_bytes_; }
  std::uint64_t duration_us() const { return duration_us_; }
  // Whether the recorded device has no virtual memory, so that policies grow by shares there.
  bool grows_by_shares() const { return grows_by_shares_; }
  // As the trace says.
  bool oldest_segment_first() const { return oldest_segment_first_; }
  // Offsets for its allocations (planner.h), worked out when first asked for.
  const Plan& plan() const;

 private:
  struct LazyPlan;
  std::string name_;
  std::vector<ReplayOp> ops_;
  std::vector<std::uint64_t> times_ns_;
  std::vector<std::uint32_t> events_;
  std::uint32_t slots_ = 0;
  std::uint32_t streams_ = 0;
  std::uint64_t live_peak_bytes_ = 0;
  std::uint64_t duration_us_ = 0;
  bool grows_by_shares_ = false;
  bool oldest_segment_first_ = false;
  std::unique_ptr<LazyPlan> plan_;
};

}  // namespace tenon
