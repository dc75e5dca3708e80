// A device that is not there: for replaying what happened on one that was, and for tests.
#pragma once

#include <cstdint>
#include <memory>

#include "tenon/device/backend.h"
#include "tenon/device/sim/cost_model.h"

namespace tenon {

struct SimOptions {
  std::uint64_t capacity_bytes = std::uint64_t{1} << 50;  // physical memory of the device
  std::uint64_t lag_ns = 0;               // a stream finishes work this long after it was queued
  std::uint64_t page_granularity = 2 * 1024 * 1024;
  std::uint64_t alignment = 512;          // of segments, and what their sizes are rounded up to
  bool real_memory = false;               // addresses that can be read and written
  bool unified = false;                   // segments have a host pointer (needs real_memory)
  bool can_map_twice = true;
  std::uint64_t recommended_working_set_bytes = 0;  // 0: the capacity
  std::uint64_t seed = 0;                 // of injected failures
  const CostModel* costs = nullptr;       // null: h200_costs()
  std::int16_t device_index = 0;
};

// The simulated device: a Backend with a capacity, streams that lag behind the host, a clock that
// driver calls move on, and failures on demand. Addresses are fake unless real_memory is set; each
// new segment or address range lies below all earlier ones and no address is used twice, as NVIDIA's driver
// mostly does. The same calls give the same addresses, times and failures in every run.
//
// Time: now_ns() is the program's time (advance_to) plus every stall so far. Work queued on a stream
// at time t is finished at t + lag_ns. Host waits and free_segment stall until the work is finished.
// Thread-safe (one mutex).
class SimBackend final : public Backend {
 public:
  explicit SimBackend(const SimOptions& options = {});
  ~SimBackend() override;

  // --- The simulation's own controls.
  // Moves the program's clock; never backwards (an earlier time changes nothing).
  void advance_to(std::uint64_t program_time_ns);
  std::uint64_t now_ns() const;
  // The host queues work on the stream now.
  void queue_work(Stream stream);
  // Physical bytes held by segments and pages now, and the most ever (since reset_peak).
  std::uint64_t used_bytes() const;
  std::uint64_t peak_used_bytes() const;
  void reset_peak();
  void reset_ledger();
  void set_capacity(std::uint64_t capacity_bytes);

  // --- Failures. The n-th call from now of that kind (1 is the next) fails as if memory were short
  // (allocate, create, map, set_access, reserve_address) or with DeviceError (the others).
  void fail_call(DriverCall call, std::uint64_t nth);
  // Every call that allocates fails with this probability, by the seed.
  void set_failure_rate(double probability);
  void clear_failures();
};

}  // namespace tenon
