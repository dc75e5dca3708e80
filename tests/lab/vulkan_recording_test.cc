// Programs on a Vulkan device, recorded there and replayed on the simulated device.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/vulkan.h"
#include "tenon/base/align.h"
#include "tenon/base/random.h"
#include "tenon/device/forwarding_backend.h"
#include "tenon/lab/replayer.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/recorder.h"

namespace tenon {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// Gives each segment the next higher address, as the simulated device does. A policy takes the
// block with the lowest address among equals, and a host's driver returns addresses in any order.
// Nothing here touches the bytes.
class AscendingAddresses : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  std::optional<Segment> allocate_segment(std::uint64_t size_bytes, MemoryKind kind) override {
    std::optional<Segment> segment = driver_.allocate_segment(size_bytes, kind);
    if (!segment) return segment;
    const std::uintptr_t address = std::exchange(next_, next_ + align_up(size_bytes, 2 * kMiB));
    real_[address] = std::exchange(segment->base, reinterpret_cast<void*>(address));
    return segment;
  }
  void free_segment(const Segment& segment) override {
    const auto found = real_.find(reinterpret_cast<std::uintptr_t>(segment.base));
    Segment real = segment;
    real.base = found->second;
    real_.erase(found);
    driver_.free_segment(real);
  }

 private:
  std::uintptr_t next_ = std::uintptr_t{1} << 40;
  std::map<std::uintptr_t, void*> real_;
};

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
      const auto driver_memory = vulkan.backend();
      AscendingAddresses backend(*driver_memory);
      const auto allocator = make_policy(policy, backend);
      Recorder recorder("program");
      {
        const ObserverGuard guard(allocator->observers(), recorder);
        run_program(*allocator);
      }
      const Workload workload(recorder.take());
      ReplaySetup setup;
      setup.policy = policy;
      setup.lag_ns = 0;
      const ReplayFigures replayed = replay(workload, setup);
      EXPECT_FALSE(replayed.out_of_memory) << policy;
      EXPECT_EQ(replayed.reserved_peak_bytes,
                static_cast<std::uint64_t>(allocator->stats().reserved_bytes[0].peak))
          << policy << " on " << driver.name;
    }
  }
}

}  // namespace
}  // namespace tenon
