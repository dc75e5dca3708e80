// What a simulated device is like.
#pragma once

#include <cstdint>

#include "tenon/device/sim/cost_model.h"

namespace tenon {

struct SimOptions {
  std::uint64_t capacity_bytes = std::uint64_t{1} << 50;  // physical memory of the device
  std::uint64_t lag_ns = 0;               // a stream finishes work this long after it was queued
  std::uint64_t page_granularity = 2 * 1024 * 1024;
  std::uint64_t alignment = 512;          // of segments, and what their sizes are rounded up to
  bool real_memory = false;               // addresses that can be read and written
  bool unified = false;                   // one memory for both; a host pointer with real_memory
  bool can_map_twice = true;
  bool check_order = false;               // watch the stream rule: access, order_violations
  std::uint64_t recommended_working_set_bytes = 0;  // 0: the capacity
  std::uint64_t seed = 0;                 // of injected failures
  const CostModel* costs = nullptr;       // null: h200_costs(); must outlive the device
  std::int16_t device_index = 0;
};

}  // namespace tenon
