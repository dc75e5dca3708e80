#include "rigs/robson.h"

#include <gtest/gtest.h>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

constexpr std::uint64_t kLive = 256 * kMiB;
constexpr std::uint64_t kSmallest = 2 * kMiB;
constexpr std::uint64_t kLargest = 32 * kMiB;

// Reserved over live peak.
double held(const std::string& policy, std::uint64_t smallest, std::uint64_t largest,
            std::uint64_t page_bytes = 0) {
  SimBackend backend;
  PolicyOptions options;
  options.page_bytes = page_bytes;
  const auto allocator = make_policy(policy, backend, options);
  const RobsonFigures figures = run_robson(*allocator, kLive, smallest, largest);
  allocator->check_invariants();
  EXPECT_EQ(allocator->stats().allocation[0].current, 0);
  EXPECT_LE(figures.live_peak_bytes, kLive);
  return static_cast<double>(figures.reserved_peak_bytes) /
         static_cast<double>(figures.live_peak_bytes);
}

TEST(Robson, WhoCannotMoveMemoryHoldsWhatTheorySays) {
  const double bound = robson_bound(kLive, kSmallest, kLargest);
  EXPECT_DOUBLE_EQ(bound, 1 + 4 / 2.0 - 30.0 / 256);
  for (const char* policy : {"pool", "buddy", "caching", "expandable"})
    EXPECT_GE(held(policy, kSmallest, kLargest), bound * 0.99) << policy;
}

TEST(Robson, WhoMovesPagesHoldsLittleMoreThanLives) {
  EXPECT_LE(held("stitched", kSmallest, kLargest, 2 * kMiB), 1.05);
  EXPECT_LE(held("stitched", 16 * kMiB, 128 * kMiB), 1.1);
}

// Blocks smaller than a page keep its other parts from moving: theory binds there too.
TEST(Robson, BelowThePageSizeTheoryBindsEverybody) {
  EXPECT_GE(held("stitched", 512, kMiB), 2);
}

TEST(Robson, RefusesWhatIsNoPowerOfTwo) {
  SimBackend backend;
  const auto allocator = make_policy("stitched", backend);
  EXPECT_THROW(run_robson(*allocator, kLive, 3, 8), InvalidArgument);
  EXPECT_THROW(run_robson(*allocator, kLive, 16, 8), InvalidArgument);
  EXPECT_THROW(run_robson(*allocator, 4, 2, 8), InvalidArgument);
}

}  // namespace
}  // namespace tenon
