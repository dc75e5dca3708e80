// When the whole machine, or the control group, is short of memory. poll: O(allocators).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tenon/memory/device_allocator.h"
#include "tenon/memory/watermark.h"

namespace tenon {

// The files that Linux tells it in. A file that is absent says nothing.
struct PressureSources {
  std::string stalls = "/proc/pressure/memory";  // PSI: "some avg10=1.23 ..."
  std::string group_events;                      // memory.events: "high 3", "max 0"
};
// The machine's PSI file, and the events of the process's own control group (version 2).
PressureSources machine_pressure_sources();

// What one look found.
struct PressureReading {
  double stalled_percent = 0;      // share of the last 10 s in which some task waited for memory
  std::uint64_t group_events = 0;  // times the group passed memory.high or memory.max, ever
  bool is_pressed = false;
};

// Reads the sources. Pressed means that tasks stalled for at least `stalled_percent` of the last
// ten seconds, or that the group passed a limit since the last call. Then it reclaims the idle
// memory of the host (reclaim.h), empties the caches of the allocators that were added, and asks
// callbacks() for all they can spare. Thread-safe. Allocators are not owned and must outlive this.
class MachinePressure {
 public:
  static constexpr double kStalledPercent = 10;

  explicit MachinePressure(PressureSources sources = machine_pressure_sources(),
                           double stalled_percent = kStalledPercent);
  ~MachinePressure();
  MachinePressure(const MachinePressure&) = delete;
  MachinePressure& operator=(const MachinePressure&) = delete;

  // Its empty_cache is called under pressure. For allocators of other devices whose memory the
  // machine provides: those of the host need not be added.
  void add(DeviceAllocator& allocator);
  // Asked under pressure; a UnifiedAllocator's or PressureAdaptor's may be passed on to from one.
  PressureCallbacks& callbacks() { return callbacks_; }

  // One look, and what follows from it.
  PressureReading poll();
  // Polls at this interval until the object ends. Throws InvalidArgument when it does already, or
  // for an interval of 0.
  void watch(std::chrono::milliseconds interval);

 private:
  const PressureSources sources_;
  const double stalled_percent_;
  PressureCallbacks callbacks_;
  std::mutex mutex_;  // of polls, one after another, and of the lists
  std::vector<DeviceAllocator*> allocators_;
  std::uint64_t seen_events_ = 0;
  std::mutex watch_mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread watcher_;
};

}  // namespace tenon
