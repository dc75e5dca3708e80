#include "tenon/lab/capacity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "lab/traces.h"
#include "tenon/base/byte_size.h"

namespace tenon {
namespace {

TEST(CapacitySearch, BisectsAtTheMiddleAndReportsTheUpperEnd) {
  std::vector<std::uint64_t> tried;
  const std::uint64_t found =
      search_capacity(100 * kMiB, 140 * kMiB, [&](std::uint64_t capacity_bytes) {
        tried.push_back(capacity_bytes / kMiB);
        return capacity_bytes >= 113 * kMiB;
      });
  EXPECT_EQ(tried, (std::vector<std::uint64_t>{120, 110, 115}));
  EXPECT_EQ(found, 115 * kMiB);  // 115 - 110 is within 8 MiB
}

TEST(CapacitySearch, StopsAtAFiveHundredthOfALargeLivePeak) {
  int tries = 0;
  search_capacity(100 * kGiB, 102 * kGiB, [&](std::uint64_t) {
    ++tries;
    return true;
  });
  EXPECT_EQ(tries, 4);  // 2 GiB, 1, 1/2, 1/4, 1/8 <= 100/500
}

TEST(CapacitySearch, FollowsSuccessThatIsNotMonotone) {
  const auto passes = [](std::uint64_t capacity_bytes) {
    return capacity_bytes >= 3540 * kMiB ||
           (capacity_bytes >= 2602 * kMiB && capacity_bytes <= 3317 * kMiB);
  };
  EXPECT_LE(search_capacity(2000 * kMiB, 4000 * kMiB, passes), 2610 * kMiB);  // 3000 passes
  EXPECT_GE(search_capacity(2156 * kMiB, 7284 * kMiB, passes), 2602 * kMiB);
}

TEST(CapacitySearch, ReportsTheReservedPeakWhenThereIsNothingToSearch) {
  const auto never = [](std::uint64_t) -> bool {
    ADD_FAILURE() << "nothing to try";
    return false;
  };
  EXPECT_EQ(search_capacity(100, 100, never), 100u);
  EXPECT_EQ(search_capacity(100, 0, never), 0u);
  EXPECT_EQ(search_capacity(100 * kMiB, 108 * kMiB, never), 108 * kMiB);
}

TEST(CapacitySearch, FindsACapacityThatFits) {
  const Workload load(testing::random_trace(4, 1000));
  ReplaySetup setup;
  setup.policy = "caching";
  const std::uint64_t reserved = replay(load, setup).reserved_peak_bytes;
  const std::uint64_t found = find_min_capacity(load, setup, reserved);
  EXPECT_GE(found, load.live_peak_bytes());
  EXPECT_LE(found, reserved);
  setup.capacity_bytes = found;
  EXPECT_TRUE(fits(load, setup));
}

// What the process holds of the machine's memory.
std::uint64_t resident_bytes() {
  std::uint64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

TEST(CapacitySearch, LeavesNoMemoryOfManyStreamsBehind) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps freed memory";
#endif
  testing::TraceMaker maker;
  for (int i = 0; i < 2048; ++i)
    maker.alloc(static_cast<std::uint64_t>(i), i, 1024, static_cast<std::uint64_t>(i));
  const Workload load(maker.make());
  ReplaySetup setup;
  setup.policy = "caching";
  const std::uint64_t before = resident_bytes();
  replay(load, setup);
  setup.capacity_bytes = kGiB;
  EXPECT_FALSE(fits(load, setup));
  EXPECT_LT(resident_bytes(), before + 16 * kMiB);  // each replay takes 56 MiB
}

// PyTorch's own figures for the shipped traces, to the byte.
}  // namespace
}  // namespace tenon
