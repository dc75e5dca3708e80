// What leaving a recorder on costs: an allocation and its free, without and with.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/recorder.h"

namespace {

using namespace tenon;

double processor_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Nanoseconds of processor time for a pair, the best of several rounds.
double ns_per_pair(DeviceAllocator& allocator, std::uint64_t size_bytes) {
  constexpr int kPairs = 20'000;
  double best = 1e30;
  for (int round = 0; round < 15; ++round) {
    const double start = processor_ns();
    for (int i = 0; i < kPairs; ++i) {
      const DataPtr a = allocator.allocate(size_bytes);
      const DataPtr b = allocator.allocate(size_bytes / 2);
    }
    best = std::min(best, (processor_ns() - start) / (2 * kPairs));
  }
  return best;
}

}  // namespace

int main() {
  SimBackend device;
  const auto allocator = make_policy("caching", device);
  fmt::print("ns for an allocation and its free, policy caching\n");
  fmt::print("{:<48} {:>9} {:>9}\n", "", "64 KiB", "8 MiB");
  const auto row = [&](const char* name, RecorderOptions* options) {
    double ns[2];
    for (int i = 0; i < 2; ++i) {
      const std::uint64_t size = i == 0 ? 64 << 10 : 8 << 20;
      if (options == nullptr) {
        ns[i] = ns_per_pair(*allocator, size);
        continue;
      }
      Recorder recorder("bench", *options);
      const ObserverGuard guard(allocator->observers(), recorder);
      ns[i] = ns_per_pair(*allocator, size);
    }
    fmt::print("{:<48} {:>9.0f} {:>9.0f}\n", name, ns[0], ns[1]);
  };
  row("no recorder", nullptr);
  RecorderOptions options;
  row("recorder: time, thread, tag", &options);
  options.stack_depth = 24;
  row("... and stacks of 1 MiB and more (the default)", &options);
  options.stack_min_bytes = 0;
  row("... and stacks of everything", &options);
  return 0;
}
