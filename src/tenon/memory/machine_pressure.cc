#include "tenon/memory/machine_pressure.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tenon/base/error.h"
#include "tenon/memory/reclaim.h"

namespace tenon {
namespace {

// The number behind "some avg10=".
double stalled_percent_in(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind, average;
    if (!(words >> kind >> average) || kind != "some" || !average.starts_with("avg10=")) continue;
    double percent = 0;
    std::istringstream number(average.substr(6));
    return number >> percent ? percent : 0;
  }
  return 0;
}

// "high" counts throttling at memory.high, "max" refusals at memory.max.
std::uint64_t events_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t sum = 0;
  std::string name;
  for (std::uint64_t count = 0; file >> name >> count;)
    if (name == "high" || name == "max") sum += count;
  return sum;
}

}  // namespace

PressureSources machine_pressure_sources() {
  PressureSources sources;
  std::ifstream membership("/proc/self/cgroup");
  for (std::string line; std::getline(membership, line);)
    if (line.starts_with("0::/"))
      sources.group_events =
          (std::filesystem::path("/sys/fs/cgroup") / line.substr(4) / "memory.events").string();
  return sources;
}

MachinePressure::MachinePressure(PressureSources sources, double stalled_percent)
    : sources_(std::move(sources)),
      stalled_percent_(stalled_percent),
      seen_events_(events_in(sources_.group_events)) {}

MachinePressure::~MachinePressure() {
  {
    const std::lock_guard lock(watch_mutex_);
    is_ending_ = true;
  }
  ends_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

void MachinePressure::add(DeviceAllocator& allocator) {
  const std::lock_guard lock(mutex_);
  allocators_.push_back(&allocator);
}

PressureReading MachinePressure::poll() {
  const std::lock_guard lock(mutex_);
  PressureReading reading{stalled_percent_in(sources_.stalls), events_in(sources_.group_events)};
  reading.is_pressed =
      reading.stalled_percent >= stalled_percent_ || reading.group_events > seen_events_;
  seen_events_ = reading.group_events;
  if (!reading.is_pressed) return reading;
  reclaim_idle({.place = {}, .of_driver = true});
  for (DeviceAllocator* allocator : allocators_)
    ignore_refusal([&] { allocator->empty_cache(); });
  callbacks_.relieve(Watermarks::kNoLimit);
  return reading;
}

void MachinePressure::watch(std::chrono::milliseconds interval) {
  const std::lock_guard lock(watch_mutex_);
  if (interval.count() <= 0 || watcher_.joinable())
    throw InvalidArgument("machine pressure: one watch, at an interval above 0 ms");
  watcher_ = std::thread([this, interval] {
    std::unique_lock waiting(watch_mutex_);
    while (!ends_.wait_for(waiting, interval, [this] { return is_ending_; })) {
      waiting.unlock();
      poll();
      waiting.lock();
    }
  });
}

}  // namespace tenon
