#include "tenon/lab/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "rigs/perfect_packing.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/lab/plan_validator.h"
#include "tenon/lab/workload.h"
#include "tenon/trace/load.h"

namespace tenon {
namespace {

// Every pair, the slow way.
void expect_no_overlap(const std::vector<PlanRequest>& requests, const Packing& packing,
                       std::uint64_t unit) {
  std::uint64_t highest = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::uint64_t begin = packing.offsets[i];
    const std::uint64_t end = begin + (requests[i].size + unit - 1) / unit * unit;
    EXPECT_EQ(begin % unit, 0u);
    highest = std::max(highest, end);
    for (std::size_t j = 0; j < i; ++j) {
      if (requests[i].end <= requests[j].begin || requests[j].end <= requests[i].begin) continue;
      ASSERT_TRUE(end <= packing.offsets[j] || packing.offsets[j] + requests[j].size <= begin)
          << "requests " << i << " and " << j;
    }
  }
  EXPECT_EQ(packing.peak_bytes, highest);
}

// Allocations and frees in order of time; at one time, frees first. A slot for each request.
std::vector<ReplayOp> ops_of(const std::vector<PlanRequest>& requests) {
  std::vector<std::tuple<std::uint32_t, bool, std::uint32_t>> order;
  for (std::uint32_t i = 0; i < requests.size(); ++i) {
    order.emplace_back(requests[i].begin, true, i);
    order.emplace_back(requests[i].end, false, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<ReplayOp> ops;
  for (const auto& [time, alloc, i] : order)
    ops.push_back({.size_bytes = requests[i].size, .slot = i, .alloc = alloc});
  return ops;
}

TEST(PlannerTest, NothingNeedsNothing) {
  const Packing packing = pack({}, 512);
  EXPECT_EQ(packing.peak_bytes, 0u);
  EXPECT_EQ(packing.lower_bound_bytes, 0u);
}

TEST(PlannerTest, BlocksThatNeverMeetShareTheirPlace) {
  const Packing packing = pack({{1000, 0, 1}, {1000, 1, 2}, {1024, 2, 9}}, 512);
  EXPECT_EQ(packing.offsets, (std::vector<std::uint64_t>{0, 0, 0}));
  EXPECT_EQ(packing.peak_bytes, 1024u);
  EXPECT_EQ(packing.lower_bound_bytes, 1024u);
}

TEST(PlannerTest, RefusesRequestsThatMakeNoSense) {
  EXPECT_THROW(pack({{0, 0, 1}}, 512), InvalidArgument);
  EXPECT_THROW(pack({{512, 1, 1}}, 512), InvalidArgument);
  EXPECT_THROW(pack({{std::uint64_t{1} << 60, 0, 1}}, 512), InvalidArgument);
}

TEST(PlannerTest, LessEffortStopsEarlierAtAPackingThatHolds) {
  Random random(3);
  std::vector<PlanRequest> requests;
  for (int i = 0; i < 400; ++i) {
    const auto begin = static_cast<std::uint32_t>(random.below(600));
    requests.push_back({random.between(1, 4000) * 512, begin,
                        begin + static_cast<std::uint32_t>(random.between(1, 200))});
  }
  const Packing little = pack(requests, 512, 0.01);
  EXPECT_GT(little.peak_bytes, pack(requests, 512).peak_bytes);
  expect_no_overlap(requests, little, 512);
}

// Large blocks, at any time as many bytes as at the peak: greedy orders leave gaps.
TEST(PlannerTest, ARecordingOfFewBlocksIsSearchedExactlyWhereHeuristicsNeedMore) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    const std::vector<PlanRequest> requests =
        rigs::cut_rectangle(random, 4096, 300, 120).requests;
    EXPECT_GT(pack(requests, 1).peak_bytes, 4096u + 41u);
    EXPECT_EQ(make_plan(ops_of(requests), 1).total_bytes(), 4096u);
  }
}

TEST(PlannerTest, RandomProgramsNeverOverlapAndStayNearTheBound) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    std::vector<PlanRequest> requests;
    for (int i = 0; i < 1200; ++i) {
      const auto begin = static_cast<std::uint32_t>(random.below(3000));
      const auto life = 1 + random.below(1ull << random.below(12));
      requests.push_back({1 + random.below(1ull << random.between(4, 20)), begin,
                          static_cast<std::uint32_t>(begin + life)});
    }
    const std::uint64_t unit = seed % 2 == 0 ? 512 : 1;
    const Packing packing = pack(requests, unit);
    expect_no_overlap(requests, packing, unit);
    EXPECT_GE(packing.peak_bytes, packing.lower_bound_bytes);
    EXPECT_LE(packing.peak_bytes, packing.lower_bound_bytes * 112 / 100);
    EXPECT_EQ(pack(requests, unit).offsets, packing.offsets) << "not deterministic";
  }
}

// More than enough requests for the small ones to be treated apart.
TEST(PlannerTest, ManyRequestsOfWhichMostAreSmallNeverOverlap) {
  Random random(3);
  std::vector<PlanRequest> requests;
  for (std::uint32_t i = 0; i < 6000; ++i) {
    const bool large = random.chance(0.1);
    requests.push_back({large ? 1 + random.below(1 << 24) : 1 + random.below(700), 2 * i,
                        2 * i + 1 + static_cast<std::uint32_t>(random.below(200))});
  }
  const Packing packing = pack(requests, 256);
  expect_no_overlap(requests, packing, 256);
  EXPECT_LE(packing.peak_bytes, packing.lower_bound_bytes * 110 / 100);
}

TEST(PlannerTest, RecordedProgramsComeCloseToEachStreamsBound) {
  const std::filesystem::path folder = std::filesystem::path(TENON_SOURCE_DIR) / "data/traces";
  for (const char* name : {"gnn_sampled", "gpt2", "resnet50_amp", "multistream_prefetch"}) {
    SCOPED_TRACE(name);
    const Trace trace = load_traces((folder / (std::string(name) + ".csv.zst")).string()).at(0);
    const Plan plan = make_plan(trace);
    EXPECT_EQ(find_plan_error(plan, trace), "");
    std::uint64_t bound = 0;  // sum of each stream's own live peak
    std::vector<std::uint64_t> live(trace.streams.size()), peak(trace.streams.size());
    for (const TraceEvent& event : trace.events) {
      if (event.op == TraceOp::kFreeRequested) continue;
      std::uint64_t& now = live[event.stream];
      now = event.op == TraceOp::kAlloc ? now + event.size_bytes : now - event.size_bytes;
      peak[event.stream] = std::max(peak[event.stream], now);
    }
    for (const std::uint64_t p : peak) bound += p;
    EXPECT_LE(plan.total_bytes(), bound + bound * 3 / 200);
  }
}

// --- The validator finds what is wrong, not only that nothing is.

class PlanValidatorTest : public ::testing::Test {
 protected:
  PlanValidatorTest() {
    trace_.streams = {0};
    trace_.blocks = 3;
    const auto add = [this](TraceOp op, std::uint32_t block, std::uint64_t size) {
      trace_.events.push_back({0, size, block, 0, op});
    };
    add(TraceOp::kAlloc, 0, 1000);
    add(TraceOp::kAlloc, 1, 500);
    add(TraceOp::kFreeCompleted, 0, 1000);
    add(TraceOp::kAlloc, 2, 1024);
  }
  std::string error_of(std::vector<PlanSlot> slots) {
    Plan plan(512);
    plan.set_stream(0, std::move(slots));
    return find_plan_error(plan, trace_);
  }
  Trace trace_;
};

TEST_F(PlanValidatorTest, AGoodPlanHasNoError) {
  EXPECT_EQ(error_of({{0, 1024}, {1024, 512}, {0, 1024}}), "");
  EXPECT_EQ(find_plan_error(make_plan(trace_), trace_), "");
}

TEST_F(PlanValidatorTest, NamesWhatIsWrong) {
  EXPECT_NE(error_of({{0, 1024}, {512, 512}, {0, 1024}}).find("overlaps"), std::string::npos);
  EXPECT_NE(error_of({{0, 1024}, {1024, 512}, {512, 1024}}).find("overlaps"), std::string::npos);
  EXPECT_NE(error_of({{0, 512}, {1024, 512}, {0, 1024}}).find("its slot has 512"),
            std::string::npos);
  EXPECT_NE(error_of({{0, 1024}, {1024, 512}}).find("has no slot"), std::string::npos);
  EXPECT_NE(error_of({{0, 1024}, {1024, 512}, {0, 1024}, {0, 512}}).find("4 slots for 3"),
            std::string::npos);
}

}  // namespace
}  // namespace tenon
