// Programs on a Vulkan device, recorded there and replayed on the simulated device.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/vulkan.h"
#include "tenon/base/random.h"
#include "tenon/lab/replayer.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/recorder.h"

namespace tenon {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// Blocks of 1 KiB to 4 MiB, at most 64 MiB of them alive.
void run_program(DeviceAllocator& allocator) {
  Random random(7);
  std::vector<std::pair<DataPtr, std::uint64_t>> live;
  std::uint64_t live_bytes = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t size = random.between(1024, 4096) << random.below(11);
    while (live_bytes + size > 64 * kMiB) {
      std::swap(live[random.below(live.size())], live.back());
      live_bytes -= live.back().second;
      live.pop_back();
    }
    live.emplace_back(allocator.allocate(size), size);
    live_bytes += size;
  }
}

TEST(VulkanRecording, ReplaysToTheSameReservedPeakToTheByte) {
  for (const auto& driver : testing::vulkan_drivers()) {
    const testing::Vulkan vulkan(driver.name);
    for (const std::string policy : {"unified", "pool", "caching", "buddy"}) {
      const auto backend = vulkan.backend();
      const auto allocator = make_policy(policy, *backend);
      Recorder recorder("program");
      {
        const ObserverGuard guard(allocator->observers(), recorder);
        run_program(*allocator);
      }
      const Workload workload(recorder.take());
      const ReplayFigures replayed = replay(workload, {.policy = policy, .lag_ns = 0});
      EXPECT_FALSE(replayed.out_of_memory) << policy;
      EXPECT_EQ(replayed.reserved_peak_bytes,
                static_cast<std::uint64_t>(allocator->stats().reserved_bytes[0].peak))
          << policy << " on " << driver.name;
    }
  }
}

}  // namespace
}  // namespace tenon
