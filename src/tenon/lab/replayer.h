// Replays a workload over a policy on the simulated device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/device/driver_ledger.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/lab/workload.h"
#include "tenon/memory/policies.h"

namespace tenon {

// Which policy, on which device.
struct ReplaySetup {
  std::string policy;
  PolicyOptions options;
  // Of the device, or the limit of a policy that keeps one by its own rules (Policy::limits_itself,
  // as PyTorch's memory fraction); 0: none.
  std::uint64_t capacity_bytes = 0;
  std::uint64_t lag_ns = 5'000'000;    // a stream's work ends this long after it was queued
};

// Where a replay ran out of memory.
struct OutOfMemoryAt {
  std::uint64_t event = 0;  // number in the trace, from 1; 0: when the policy was made
  std::string message;
};

// What one replay on the simulated clock found.
struct ReplayFigures {
  std::uint64_t reserved_peak_bytes = 0;  // most physical bytes ever held from the driver
  std::uint64_t live_at_peak_bytes = 0;   // requested bytes live when that peak was first reached
  DriverLedger ledger;
  std::uint64_t layout_hash = 0;
  std::optional<OutOfMemoryAt> out_of_memory;  // then the figures are of the events before

  // The share of the reserved peak that was not requested: 1 - live / reserved at that moment.
  double fragmentation() const {
    if (reserved_peak_bytes <= live_at_peak_bytes) return 0;
    return 1 - static_cast<double>(live_at_peak_bytes) / static_cast<double>(reserved_peak_bytes);
  }
};

// The device and the policy's options of a replay. A capacity is held by the device, except for
// policies that test it by rules of their own.
SimOptions replay_device(const ReplaySetup& setup);
PolicyOptions replay_options(const Workload& workload, const ReplaySetup& setup);

// One policy on a fresh simulated device, and the slots that hold the trace's blocks.
// Not thread-safe; several may run side by side. A replay is O(events) calls of the policy.
class Replayer {
 public:
  // Throws what make_policy throws.
  Replayer(const Workload& workload, const ReplaySetup& setup);
  ~Replayer();

  // One replay in which the device's clock follows the trace's: it advances to each event's time
  // before the event. Work is queued on the block's stream after an alloc and before a free.
  ReplayFigures run();
  // The same without keeping figures: whether it completed.
  bool completes();
  // The reserved peak alone, without the clock; only for policies whose layout does not depend on
  // it (Policy::limits_itself). Ends early with nothing once the peak exceeds `stop_above_bytes`,
  // or when memory runs out.
  std::optional<std::uint64_t> reserved_peak(std::uint64_t stop_above_bytes);
  // Allocates and frees as the trace says and does nothing else; blocks that stay live are dropped
  // at the end, outside the measured time. Returns nanoseconds.
  std::uint64_t timed_pass();

  // The policy's, as long as the Replayer lives.
  DeviceAllocator& allocator() { return *allocator_; }

 private:
  void drop_blocks();
  void give_back();

  const Workload& workload_;
  SimBackend backend_;
  // Whether completes() keeps the clock: PyTorch's policies place blocks alike at every lag.
  const bool follows_clock_;
  std::vector<Stream> streams_;
  std::unique_ptr<DeviceAllocator> allocator_;
  std::vector<DataPtr> blocks_;  // by slot
};

// Replays once on a new device. Running out of memory is a result, from the policy's start on.
ReplayFigures replay(const Workload& workload, const ReplaySetup& setup);

// The same for its reserved peak alone, as Replayer::reserved_peak; nothing where it ended early.
std::optional<std::uint64_t> reserved_peak(const Workload& workload, const ReplaySetup& setup,
                                           std::uint64_t stop_above_bytes);

// Whether the workload completes within the setup's capacity.
bool fits(const Workload& workload, const ReplaySetup& setup);

// Nanoseconds per event (alloc or free), warm: the median over `passes` replays on one instance
// without capacity limit or lag. The first replay is not counted. Short traces are replayed more
// often. Empty for a trace without events, or one that no memory would be enough for.
std::optional<double> measure_ns_per_event(const Workload& workload, ReplaySetup setup, int passes);

}  // namespace tenon
