// The files of the kernel are stood in for: no test may press the machine.
#include "tenon/memory/machine_pressure.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/gpu/caching_allocator.h"
#include "tenon/memory/host/host_allocator.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/placement/size_class_pool.h"

namespace tenon {
namespace {

class MachinePressureTest : public ::testing::Test {
 protected:
  void stalls(double percent) {
    std::ofstream(sources_.stalls) << "some avg10=" << percent
                                   << " avg60=0.00 avg300=0.00 total=12\n"
                                      "full avg10=99.00 avg60=0.00 avg300=0.00 total=3\n";
  }
  void events(int high, int max) {
    std::ofstream(sources_.group_events)
        << "low 7\nhigh " << high << "\nmax " << max << "\noom 9\noom_kill 0\n";
  }

  const testing::TemporaryFolder folder_;
  const PressureSources sources_{folder_.path() + "/pressure",
                                 folder_.path() + "/memory.events"};
};

TEST(MachinePressureSources, NameTheGroupsFileWithoutEmptyParts) {
  EXPECT_EQ(machine_pressure_sources().group_events.find("//"), std::string::npos);
}

TEST_F(MachinePressureTest, StallsGiveIdleMemoryBack) {
  stalls(2.5);
  HostBackend backend;
  HostAllocator host(backend);
  SimBackend device;
  CachingAllocator cache(device);
  SizeClassPool pool(*get_default_cpu_allocator());
  MachinePressure pressure(sources_);
  pressure.add(cache);
  std::uint64_t wanted = 0;
  pressure.callbacks().add([&](std::uint64_t bytes) { return wanted = bytes, std::uint64_t{0}; });
  host.allocate(20 << 20).clear();
  cache.allocate(1 << 20).clear();
  pool.allocate(1 << 20).clear();
  EXPECT_EQ(pressure.poll().stalled_percent, 2.5);
  EXPECT_GT(host.reserved_bytes(), 0u);
  EXPECT_GT(cache.reserved_bytes(), 0u);
  EXPECT_GT(pool.stats().free_bytes, 0u);
  stalls(12);
  EXPECT_TRUE(pressure.poll().is_pressed);
  EXPECT_EQ(host.reserved_bytes(), 0u);
  EXPECT_EQ(cache.reserved_bytes(), 0u);
  EXPECT_EQ(pool.stats().free_bytes, 0u);
  EXPECT_EQ(wanted, Watermarks::kNoLimit);
}

TEST_F(MachinePressureTest, TheGroupsLimitsCountFromTheLastLook) {
  events(5, 1);
  MachinePressure pressure(sources_);
  EXPECT_FALSE(pressure.poll().is_pressed) << "from before";
  events(6, 1);
  EXPECT_TRUE(pressure.poll().is_pressed);
  EXPECT_FALSE(pressure.poll().is_pressed);
  events(6, 2);
  EXPECT_EQ(pressure.poll().group_events, 8u);
}

TEST_F(MachinePressureTest, AbsentFilesSayNothing) {
  MachinePressure pressure(sources_);
  EXPECT_FALSE(pressure.poll().is_pressed);
  std::ofstream(sources_.stalls) << "some avg10=much\n";
  EXPECT_FALSE(pressure.poll().is_pressed);
}

TEST_F(MachinePressureTest, IsWatchedOnAThreadOfItsOwn) {
  stalls(50);
  std::atomic<int> asked = 0;
  {
    MachinePressure pressure(sources_);
    pressure.callbacks().add([&](std::uint64_t) { return ++asked, std::uint64_t{0}; });
    pressure.watch(std::chrono::milliseconds(1));
    EXPECT_THROW(pressure.watch(std::chrono::milliseconds(1)), InvalidArgument);
    while (asked == 0) std::this_thread::yield();
  }
  EXPECT_GT(asked, 0);
}

}  // namespace
}  // namespace tenon
