// Policies that grow by shares: what they hold follows what the program uses.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/growth_share.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

class GrowthShare : public ::testing::TestWithParam<std::string> {
 protected:
  std::uint64_t calls(DriverCall call) const { return backend_.ledger().count(call); }

  SimBackend backend_;
  const std::unique_ptr<DeviceAllocator> allocator_ =
      make_policy(GetParam(), backend_, {.grows_by_shares = true});
};

INSTANTIATE_TEST_SUITE_P(Policies, GrowthShare, ::testing::Values("pool", "unified"),
                         [](const auto& policy) { return policy.param; });

// As models do: weights that stay.
TEST_P(GrowthShare, HeldMemoryIsAShareAboveTheLiveAtMost) {
  Random random(3);
  std::vector<DataPtr> live;
  std::uint64_t live_bytes = 0;
  while (live_bytes < 4 * kGiB) {
    const std::uint64_t size = random.between(256, 4 * kMiB) & ~std::uint64_t{255};
    live.push_back(allocator_->allocate(size));
    live_bytes += size;
    // Ends of segments that are too small for a request add to that, twice with `unified`.
    ASSERT_LE(allocator_->reserved_bytes(), live_bytes + growth_share(live_bytes) + 16 * kMiB);
  }
  EXPECT_LE(calls(DriverCall::kAllocate), 100u);
  allocator_->check_invariants();
}

TEST_P(GrowthShare, RequestsOfOneSizeLeaveNoEndsOfSegments) {
  constexpr std::uint64_t kSize = 576 * kKiB;
  std::vector<DataPtr> live;
  for (std::uint64_t live_bytes = kSize; live_bytes < 200 * kSize; live_bytes += kSize) {
    live.push_back(allocator_->allocate(kSize));
    ASSERT_LE(allocator_->reserved_bytes(), live_bytes + growth_share(live_bytes) + kSize);
  }
}

// Weights, and activations on top: of a model in training that is small for a device.
TEST_P(GrowthShare, ASmallProgramHoldsAFewPerCentMoreThanItUses) {
  std::vector<DataPtr> live;
  std::uint64_t live_bytes = 0;
  for (const std::uint64_t size : {12 * kMiB, 784 * kKiB, 784 * kKiB, 256 * kKiB, 256 * kKiB,
                                   4 * kMiB, 4 * kMiB, 4 * kMiB}) {
    live.push_back(allocator_->allocate(size));
    live_bytes += size;
  }
  EXPECT_LE(static_cast<double>(allocator_->reserved_bytes()),
            1.03 * static_cast<double>(live_bytes));
}

TEST_P(GrowthShare, BlocksOfAllSizesShareSegments) {
  for (int round = 0; round < 2; ++round) {
    std::vector<DataPtr> live;
    for (int i = 0; i < 16; ++i) live.push_back(allocator_->allocate(512 * kKiB));
    const std::uint64_t held = allocator_->reserved_bytes();
    live.clear();
    live.push_back(allocator_->allocate(8 * kMiB));
    EXPECT_LE(allocator_->reserved_bytes(), held);
  }
}

TEST_P(GrowthShare, FreedNeighboursMergeBeforeOtherMemoryIsCut) {
  static_cast<void>(allocator_->allocate(6 * kMiB));
  static_cast<void>(allocator_->allocate(2 * kMiB));
  const DataPtr low = allocator_->allocate(3 * kMiB / 2);
  const DataPtr high = allocator_->allocate(4 * kMiB);
  EXPECT_EQ(allocator_->reserved_bytes(), 6 * kMiB);
  allocator_->check_invariants();
}

TEST_P(GrowthShare, FreeSegmentsThatAreTooSmallGoBackBeforeALargerOneComes) {
  for (int i = 0; i < 3; ++i) static_cast<void>(allocator_->allocate((10 + 4 * i) * kMiB));
  EXPECT_EQ(allocator_->reserved_bytes(), 18 * kMiB);
  const DataPtr block = allocator_->allocate(18 * kMiB);
  EXPECT_EQ(allocator_->reserved_bytes(), 18 * kMiB);
  EXPECT_EQ(calls(DriverCall::kAllocate), 3u);
  allocator_->check_invariants();
}

// A step like that of a model: activations, then gradients of which each frees one.
TEST_P(GrowthShare, ARepeatedStepSoonMakesNoDriverCall) {
  const auto step = [&] {
    Random random(5);
    std::vector<DataPtr> activations, gradients;
    for (int i = 0; i < 60; ++i)
      activations.push_back(allocator_->allocate(random.between(1, 4 * kMiB)));
    for (int i = 0; i < 60; ++i) {
      gradients.push_back(allocator_->allocate(random.between(1, 2 * kMiB)));
      activations.pop_back();
    }
  };
  for (int i = 0; i < 4; ++i) step();
  const std::uint64_t before = backend_.ledger().memory_calls();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(backend_.ledger().memory_calls(), before);
}

}  // namespace
}  // namespace tenon
