// What a driver's calls cost, as a function of their size. Plain data: thread-safe while no thread
// writes it. A cost takes O(points of its curve), and nothing throws.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tenon {

// Microseconds by size in bytes: linear between points, flat below the first, the last slope
// beyond the last.
using CostCurve = std::vector<std::pair<std::uint64_t, double>>;

// What each driver call takes.
struct CostModel {
  std::string source;  // where the figures were measured
  CostCurve allocate;
  CostCurve free;  // besides, it waits for all work in flight on the device
  CostCurve create;
  CostCurve map;
  CostCurve set_access_per_handle;
  CostCurve unmap_per_handle;
  CostCurve release;
  double reserve_address_us = 0;
  double event_record_us = 0;
  double event_query_us = 0;
  double stream_wait_event_us = 0;

  // The curve at a size, in nanoseconds; an hour at most.
  static std::uint64_t cost_ns(const CostCurve& curve, std::uint64_t size_bytes);
};

// The built-in model: one NVIDIA H200 (data/driver_costs.json has the same figures).
const CostModel& h200_costs();

}  // namespace tenon
