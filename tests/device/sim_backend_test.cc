#include "tenon/device/sim/sim_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

std::uintptr_t address(const Segment& segment) {
  return reinterpret_cast<std::uintptr_t>(segment.base);
}

TEST(SimBackend, HandsOutDescendingAddressesAndNeverReusesOne) {
  SimBackend sim;
  const auto first = sim.allocate_segment(1000);
  EXPECT_EQ(first->size_bytes, 1024u);
  EXPECT_EQ(address(*first) + first->size_bytes, 0x7f0000000000u);
  const auto range = sim.reserve_address(4 * kMiB);
  EXPECT_LT(range->base, address(*first));
  sim.free_segment(*first);
  sim.release_address(*range);
  const auto next = sim.allocate_segment(1000);
  EXPECT_EQ(address(*next) + 1024, range->base);
}

TEST(SimBackend, HandsReleasedAddressesOutAgainOnceAllWereUsed) {
  SimBackend device;
  const AddressRange kept = *device.reserve_address(kTiB);
  AddressRange last = *device.reserve_address(kTiB);
  for (int i = 0; i < 300; ++i) {
    device.release_address(last);
    const auto next = device.reserve_address(kTiB);
    ASSERT_TRUE(next) << i;
    ASSERT_TRUE(next->base + kTiB <= kept.base || next->base >= kept.base + kTiB);
    last = *next;
  }
  std::vector<AddressRange> all;
  while (const auto range = device.reserve_address(kTiB)) all.push_back(*range);
  EXPECT_GT(all.size(), 100u) << "every gap is used";
  for (const AddressRange& range : all) device.release_address(range);
  device.release_address(last);
  device.release_address(kept);
}

TEST(SimBackend, CountsPhysicalBytesAgainstItsCapacity) {
  SimBackend sim({.capacity_bytes = 8 * kMiB});
  const auto segment = sim.allocate_segment(3 * kMiB);
  const auto pages = sim.create_pages(4 * kMiB);
  EXPECT_EQ(sim.used_bytes(), 7 * kMiB);
  EXPECT_EQ(sim.memory().free_bytes, 1 * kMiB);
  EXPECT_FALSE(sim.allocate_segment(1 * kMiB + 1));
  EXPECT_FALSE(sim.create_pages(2 * kMiB));
  sim.free_segment(*segment);
  EXPECT_TRUE(sim.create_pages(4 * kMiB));
  EXPECT_EQ(sim.peak_used_bytes(), 8 * kMiB);
  sim.release_pages(*pages);
  EXPECT_EQ(sim.used_bytes(), 4 * kMiB);
  sim.reset_peak();
  EXPECT_EQ(sim.peak_used_bytes(), 4 * kMiB);
  sim.set_capacity(2 * kMiB);
  EXPECT_EQ(sim.memory().free_bytes, 0u);
  EXPECT_FALSE(sim.allocate_segment(1));
}

TEST(SimBackend, ChargesCallsByTheCostModelPerHandle) {
  SimBackend sim;
  const auto range = sim.reserve_address(64 * kMiB);
  const auto small = sim.create_pages(2 * kMiB);
  const auto large = sim.create_pages(16 * kMiB);
  sim.reset_ledger();
  ASSERT_TRUE(sim.map(range->base, *small));
  ASSERT_TRUE(sim.map(range->base + 2 * kMiB, *large));
  EXPECT_NEAR(static_cast<double>(sim.ledger().stall_ns), 1700, 2);
  sim.reset_ledger();
  ASSERT_TRUE(sim.set_access(range->base, 18 * kMiB));
  EXPECT_EQ(sim.ledger().stall_ns, 24400u + 25200u);
  EXPECT_EQ(sim.ledger().count(DriverCall::kSetAccess), 1u);
  sim.reset_ledger();
  {
    const MovingScope moving(sim);
    sim.unmap(range->base, *small);
  }
  sim.unmap(range->base + 2 * kMiB, *large);
  EXPECT_EQ(sim.ledger().stall_ns, 16100u + 16700u);
  EXPECT_EQ(sim.ledger().moving_stall_ns, 16100u);
  EXPECT_EQ(sim.ledger().memory_calls(), 2u);
}

TEST(SimBackend, WorkFinishesLagAfterItWasQueued) {
  SimBackend sim({.lag_ns = 5'000'000});
  const Stream stream{sim.device(), 0};
  sim.advance_to(1'000'000);
  sim.queue_work(stream);
  const Event event = sim.record(stream);
  EXPECT_FALSE(sim.query(event));
  sim.advance_to(5'990'000);
  EXPECT_FALSE(sim.query(event));
  sim.advance_to(6'000'000);
  EXPECT_TRUE(sim.query(event));
}

TEST(SimBackend, WaitsStallTheHostUntilTheWorkIsFinished) {
  SimBackend sim({.lag_ns = 5'000'000});
  const Stream stream{sim.device(), 0};
  const auto segment = sim.allocate_segment(2 * kMiB);
  sim.reset_ledger();
  const std::uint64_t start_ns = sim.now_ns();
  sim.queue_work(stream);
  sim.wait(sim.record(stream));
  EXPECT_EQ(sim.now_ns(), start_ns + 5'000'000);
  EXPECT_EQ(sim.ledger().stall_ns, 5'000'000u);
  EXPECT_EQ(sim.ledger().count(DriverCall::kHostWait), 1u);
  sim.queue_work(stream);
  sim.free_segment(*segment);
  EXPECT_EQ(sim.ledger().stall_ns, 10'000'000u + 34'000u);
  EXPECT_EQ(sim.ledger().count(DriverCall::kHostWait), 1u);
  sim.synchronize();
  EXPECT_EQ(sim.ledger().stall_ns, 10'034'000u);
}

TEST(SimBackend, OrderIsInheritedAcrossStreamWait) {
  SimBackend sim({.lag_ns = 5'000'000});
  const Stream first{sim.device(), 0};
  const Stream second = sim.create_stream();
  sim.queue_work(first);
  const Event produced = sim.record(first);
  EXPECT_TRUE(sim.query(sim.record(second)));
  sim.stream_wait(second, produced);
  const Event consumed = sim.record(second);
  EXPECT_FALSE(sim.query(consumed));
  sim.synchronize(second);
  EXPECT_TRUE(sim.query(consumed));
  EXPECT_TRUE(sim.query(produced));
}

TEST(SimBackend, FailsTheCallThatATestNames) {
  SimBackend sim;
  sim.fail_call(DriverCall::kAllocate, 2);
  sim.fail_call(DriverCall::kEventRecord, 1);
  EXPECT_TRUE(sim.allocate_segment(1));
  EXPECT_FALSE(sim.allocate_segment(1));
  EXPECT_TRUE(sim.allocate_segment(1));
  EXPECT_THROW(sim.record(Stream{sim.device(), 0}), DeviceError);
  EXPECT_EQ(sim.ledger().count(DriverCall::kAllocate), 3u);
}

TEST(SimBackend, FailureRateFollowsTheSeed) {
  const auto failures = [](std::uint64_t seed) {
    SimBackend sim({.seed = seed});
    sim.set_failure_rate(0.3);
    std::string text;
    for (int i = 0; i < 1000; ++i) text += sim.allocate_segment(512) ? '.' : 'x';
    return text;
  };
  EXPECT_EQ(failures(1), failures(1));
  EXPECT_NE(failures(1), failures(2));
  const std::string text = failures(3);
  EXPECT_NEAR(static_cast<double>(std::count(text.begin(), text.end(), 'x')), 300, 60);
}

TEST(SimBackend, RealMemoryIsOneMemoryAtTwoAddresses) {
  SimBackend sim({.capacity_bytes = 64 * kMiB, .real_memory = true});
  const auto range = sim.reserve_address(8 * kMiB);
  const auto pages = sim.create_pages(2 * kMiB);
  ASSERT_TRUE(sim.map(range->base, *pages));
  ASSERT_TRUE(sim.map(range->base + 4 * kMiB, *pages));
  ASSERT_TRUE(sim.set_access(range->base, 2 * kMiB));
  ASSERT_TRUE(sim.set_access(range->base + 4 * kMiB, 2 * kMiB));
  auto* low = reinterpret_cast<char*>(range->base);
  std::strcpy(low, "one page");
  EXPECT_STREQ(low + 4 * kMiB, "one page");
  sim.release_pages(*pages);
  sim.unmap(range->base, *pages);
  EXPECT_EQ(sim.used_bytes(), 2 * kMiB);
  EXPECT_STREQ(low + 4 * kMiB, "one page");
  sim.unmap(range->base + 4 * kMiB, *pages);
  EXPECT_EQ(sim.used_bytes(), 0u);
}

}  // namespace
}  // namespace tenon
