#include "tenon/lab/replayer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/traces.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/failed_requests.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using testing::random_trace;
using testing::TraceMaker;

ReplaySetup over(const std::string& policy, std::uint64_t lag_ns = 5'000'000) {
  ReplaySetup setup;
  setup.policy = policy;
  setup.lag_ns = lag_ns;
  return setup;
}

TEST(Workload, KeepsAllocsAndCompletedFreesInReusedSlots) {
  const Workload load(TraceMaker("t")
                          .alloc(1, 100, 10)
                          .alloc(2, 90, 20, 5)  // the clock stands still
                          .request(1, 110)
                          .free(1, 120)
                          .alloc(3, 130, 30)
                          .free(3, 140)
                          .make());
  ASSERT_EQ(load.ops().size(), 5u);
  EXPECT_EQ(load.slots(), 2u);
  EXPECT_EQ(load.streams(), 2u);
  EXPECT_EQ(load.ops()[3].slot, load.ops()[0].slot);
  EXPECT_EQ(load.ops()[1].stream, 1u);
  EXPECT_EQ(load.times_ns(), (std::vector<std::uint64_t>{0, 0, 20'000, 30'000, 40'000}));
  EXPECT_EQ(load.event_number(2), 4u);
  EXPECT_EQ(load.live_peak_bytes(), 50u);
  EXPECT_EQ(load.duration_us(), 40u);
}

TEST(Replay, ChargesDriverCallsAndWaitsByTheCostModel) {
  const Workload load(TraceMaker().alloc(1, 0, 2 * kMiB).free(1, 100).make());
  // cudaMalloc 45 us and cudaFree 34 us for 2 MiB; the free comes while work queued at that very
  // moment has the whole lag before it.
  EXPECT_EQ(replay(load, over("system", 0)).ledger.stall_ns, 79'000u);
  EXPECT_EQ(replay(load, over("system", 5'000'000)).ledger.stall_ns, 5'079'000u);
  const ReplayFigures figures = replay(load, over("system"));
  EXPECT_EQ(figures.ledger.memory_calls(), 2u);
  EXPECT_EQ(figures.ledger.moving_stall_ns, 0u);
  EXPECT_EQ(figures.reserved_peak_bytes, 2 * kMiB);
}

// 40 MiB, then 60 MiB, which do not fit into the first segment. The second begins at event 2.
Trace two_blocks() {
  return TraceMaker()
      .alloc(1, 0, 40 * kMiB)
      .free(1, 100)
      .alloc(2, 200, 60 * kMiB)
      .free(2, 300)
      .make();
}

TEST(Replay, EmptiesTheCacheWhereTheProgramDid) {
  Trace trace = two_blocks();
  EXPECT_EQ(replay(Workload(trace), over("caching")).reserved_peak_bytes, 100 * kMiB);
  TraceMark call;
  call.kind = MarkKind::kEmptyCache;
  call.event = 2;
  trace.marks.push_back(call);
  EXPECT_EQ(replay(Workload(trace), over("caching")).reserved_peak_bytes, 60 * kMiB);
  const Workload served(with_failed_requests(trace));
  EXPECT_EQ(replay(served, over("caching")).reserved_peak_bytes, 60 * kMiB);
  EXPECT_EQ(Replayer(served, over("caching")).reserved_peak(kTiB), 60 * kMiB);
}

// As PyTorch does before it reports a failure. A request that is served leaves the cache alone.
TEST(Replay, EmptiesTheCacheWhereARequestFailed) {
  Trace trace = two_blocks();
  TraceMark failure;
  failure.kind = MarkKind::kOutOfMemory;
  failure.size_bytes = 50 * kMiB;
  failure.event = 2;
  trace.marks.push_back(failure);
  EXPECT_EQ(replay(Workload(trace), over("caching")).reserved_peak_bytes, 60 * kMiB);
  const Workload served(with_failed_requests(trace));
  EXPECT_EQ(replay(served, over("caching")).reserved_peak_bytes, 150 * kMiB);
}

TEST(Replay, MeasuresFragmentationWhenTheReservedPeakIsReached) {
  // 3000 live bytes in blocks that the device rounds up to 512; then less is live.
  const Workload load(
      TraceMaker().alloc(1, 0, 1000).alloc(2, 1, 2000).free(1, 2).alloc(3, 3, 100).make());
  const ReplayFigures figures = replay(load, over("system"));
  EXPECT_EQ(figures.reserved_peak_bytes, 1024u + 2048u);
  EXPECT_EQ(figures.live_at_peak_bytes, 3000u);
  EXPECT_DOUBLE_EQ(figures.fragmentation(), 1 - 3000.0 / 3072.0);
}

TEST(Replay, SaysAtWhichEventMemoryRanOutAndWhy) {
  const Workload load(TraceMaker()
                          .alloc(1, 0, kMiB)
                          .request(1, 1)
                          .free(1, 1)
                          .alloc(2, 2, 3 * kMiB)
                          .alloc(3, 3, 2 * kMiB)
                          .free(2, 4)
                          .make());
  ReplaySetup setup = over("system");
  setup.capacity_bytes = 4 * kMiB;
  const ReplayFigures figures = replay(load, setup);
  ASSERT_TRUE(figures.out_of_memory.has_value());
  EXPECT_EQ(figures.out_of_memory->event, 5u);
  EXPECT_THAT(figures.out_of_memory->message, HasSubstr("2 MiB"));
  EXPECT_FALSE(fits(load, setup));
  setup.capacity_bytes = 5 * kMiB;
  EXPECT_FALSE(replay(load, setup).out_of_memory.has_value());
  EXPECT_TRUE(fits(load, setup));
}

TEST(Replay, HashesEachStreamsLayoutApartFromTheOthers) {
  const auto hash = [](const Trace& trace) {
    return replay(Workload(trace), over("system")).layout_hash;
  };
  const std::uint64_t one =
      hash(TraceMaker().alloc(1, 0, 10, 0).alloc(2, 0, 10, 1).alloc(3, 0, 10, 0).make());
  const std::uint64_t interleaved =
      hash(TraceMaker().alloc(1, 0, 10, 0).alloc(3, 0, 10, 0).alloc(2, 0, 10, 1).make());
  const std::uint64_t other =
      hash(TraceMaker().alloc(1, 0, 10, 0).free(1, 0).alloc(2, 0, 10, 1).alloc(3, 0, 10, 0).make());
  EXPECT_EQ(one, interleaved);
  EXPECT_NE(one, other);
}

TEST(Replay, TimesAWarmInstance) {
  const Workload load(random_trace(1, 200, 2));
  const auto floor = measure_ns_per_event(load, over("null"), 5);
  const auto system = measure_ns_per_event(load, over("system"), 5);
  ASSERT_TRUE(floor && system);
  EXPECT_GT(*floor, 0);
  EXPECT_GT(*system, *floor);
  EXPECT_FALSE(measure_ns_per_event(Workload(Trace{}), over("null"), 5).has_value());
}

TEST(Replay, IsSameAgainOnTheSameInstance) {
  const Workload load(random_trace(2, 500, 3));
  Replayer replayer(load, over("system"));
  const std::uint64_t peak = replayer.run().reserved_peak_bytes;
  EXPECT_EQ(replayer.allocator().reserved_bytes(), 0u);  // blocks that stayed live were dropped
  EXPECT_EQ(replayer.run().reserved_peak_bytes, peak);
}

TEST(Replay, RefusesUnknownPolicies) {
  EXPECT_THROW(replay(Workload(Trace{}), over("nonsense")), InvalidArgument);
}

// What holds for every policy there is.
class EveryPolicy : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryPolicy, ReplaysRandomTracesTheSameWayEachTime) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Workload load(random_trace(seed, 800, seed % 3 + 1));
    const ReplayFigures first = replay(load, over(GetParam()));
    const ReplayFigures second = replay(load, over(GetParam()));
    EXPECT_FALSE(first.out_of_memory.has_value());
    EXPECT_EQ(first.layout_hash, second.layout_hash);
    EXPECT_EQ(first.reserved_peak_bytes, second.reserved_peak_bytes);
    EXPECT_EQ(first.ledger.stall_ns, second.ledger.stall_ns);
    EXPECT_GE(first.ledger.stall_ns, first.ledger.moving_stall_ns);
    const std::uint64_t bound = GetParam() == "null" ? 0 : load.live_peak_bytes();
    EXPECT_GE(first.reserved_peak_bytes, bound);
  }
}

TEST_P(EveryPolicy, RunsOutOfMemoryAsAResult) {
  if (GetParam() == "null") GTEST_SKIP() << "null holds nothing and never runs out";
  const Workload load(random_trace(9, 800));
  ReplaySetup setup = over(GetParam());
  setup.capacity_bytes = load.live_peak_bytes() / 2;
  EXPECT_TRUE(replay(load, setup).out_of_memory.has_value());
  EXPECT_FALSE(fits(load, setup));
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Policy& policy : policies()) names.push_back(policy.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, EveryPolicy, ::testing::ValuesIn(policy_names()),
                         [](const auto& policy) { return policy.param; });

}  // namespace
}  // namespace tenon
