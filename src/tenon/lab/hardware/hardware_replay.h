// Replays a workload on a real GPU, beside what the simulation says of it. Thread-safe, but replays
// of several threads on one GPU disturb each other's times. Each further pass is O(events).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/device/cuda/cuda_backend.h"
#include "tenon/lab/replayer.h"
#include "tenon/lab/survey.h"
#include "tenon/lab/workload.h"

namespace tenon {

// What one replay on a device found.
struct HardwareFigures {
  std::uint64_t reserved_peak_bytes = 0;  // most device memory held at once
  DriverLedger ledger;                    // with measured times
  std::uint64_t elapsed_ns = 0;           // the whole first replay, driver calls included
  std::optional<double> warm_ns_per_event;  // median of further replays on the same instance
  std::optional<OutOfMemoryAt> out_of_memory;
};

// One policy on one trace, on the device and simulated (no lag: nothing runs but the allocator).
struct HardwareResult {
  std::string trace;
  std::string policy;
  std::uint64_t events = 0;
  std::uint64_t live_peak_bytes = 0;
  std::uint64_t capacity_bytes = 0;  // that was given; 0: none
  HardwareFigures hardware;
  ReplayFigures simulated;
  std::optional<std::uint64_t> min_capacity_bytes;  // on the device, when asked for
  std::string error;                                // why there are no figures; usually empty
};

// The trace's allocations and frees on a fresh context's memory, without delays and kernels: the
// cost of the allocator and the driver alone. `passes` further replays are timed; 0: none. Running
// out of memory is a result. Throws CudaError.
HardwareFigures replay_on_hardware(const std::shared_ptr<const CudaDriver>& driver, int index,
                                   const Workload& workload, const ReplaySetup& setup, int passes);

// All traces over all policies but `null` and `host`, one after another. The capacity is searched
// on the device itself (capacity.h). A policy that fails spoils its own result only.
std::vector<HardwareResult> survey_hardware(const std::shared_ptr<const CudaDriver>& driver,
                                            int index, std::span<const Workload> workloads,
                                            const SurveyOptions& options);

// The results as a table; as JSON.
std::string report_hardware_table(const std::vector<HardwareResult>& results);
std::string report_hardware_json(const std::vector<HardwareResult>& results);

}  // namespace tenon
