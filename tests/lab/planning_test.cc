// The exact search, iterations, loops, and the files of plans and problems.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lab/traces.h"
#include "rigs/perfect_packing.h"
#include "tenon/base/error.h"
#include "tenon/lab/plan_validator.h"
#include "tenon/lab/planner.h"
#include "tenon/lab/planning/capacity_search.h"
#include "tenon/lab/planning/fit.h"
#include "tenon/lab/planning/instance.h"
#include "tenon/lab/planning/loop.h"
#include "tenon/lab/planning/pack.h"
#include "tenon/lab/planning/plan_file.h"
#include "tenon/lab/workload.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using testing::TraceMaker;

const std::filesystem::path kData = std::filesystem::path(TENON_SOURCE_DIR) / "data";

std::string error_of(const std::vector<PlanRequest>& requests,
                     const std::vector<std::uint64_t>& offsets, std::uint64_t capacity) {
  std::vector<PlacedBuffer> placed;
  for (std::size_t i = 0; i < requests.size(); ++i)
    placed.push_back({requests[i].begin, requests[i].end, requests[i].size, offsets.at(i)});
  return find_packing_error(placed, capacity);
}

TEST(FitWithin, FindsPackingsThatLeaveNoByteFree) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const rigs::PerfectPacking perfect = rigs::cut_rectangle(random, 64, 30, 24);
    const std::vector<PlanRequest>& requests = perfect.requests;
    ASSERT_EQ(error_of(requests, perfect.offsets, 64), "");
    std::uint64_t area = 0;
    for (const PlanRequest& r : requests) area += r.size * (r.end - r.begin);
    ASSERT_EQ(area, 64 * 30);
    const FitResult found = fit_within(requests, 64, 200'000);
    ASSERT_EQ(found.fit, Fit::kFits);
    EXPECT_EQ(error_of(requests, found.offsets, 64), "");
    EXPECT_EQ(fit_within(requests, 64, 200'000).offsets, found.offsets) << "not deterministic";
  }
}

// Every order of up to six requests at every offset, the slow way.
bool fits_by_trying(const std::vector<PlanRequest>& requests, std::uint64_t capacity,
                    std::vector<std::uint64_t>& offsets) {
  const std::size_t next = offsets.size();
  if (next == requests.size()) return true;
  for (std::uint64_t at = 0; at + requests[next].size <= capacity; ++at) {
    bool free = true;
    for (std::size_t i = 0; i < next && free; ++i)
      free = requests[i].end <= requests[next].begin || requests[next].end <= requests[i].begin ||
             offsets[i] + requests[i].size <= at || at + requests[next].size <= offsets[i];
    if (!free) continue;
    offsets.push_back(at);
    if (fits_by_trying(requests, capacity, offsets)) return true;
    offsets.pop_back();
  }
  return false;
}

TEST(FitWithin, AgreesWithTryingEverything) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<PlanRequest> requests;
    for (int i = 0; i < 7; ++i) {
      const auto begin = static_cast<std::uint32_t>(random.below(6));
      requests.push_back({1 + random.below(4), begin,
                          begin + 1 + static_cast<std::uint32_t>(random.below(4))});
    }
    const std::uint64_t bound = pack(requests, 1).lower_bound_bytes;
    std::vector<std::uint64_t> tried;
    const bool expected = fits_by_trying(requests, bound, tried);
    const FitResult found = fit_within(requests, bound, 1'000'000);
    EXPECT_EQ(found.fit, expected ? Fit::kFits : Fit::kImpossible);
    if (expected) {
      EXPECT_EQ(error_of(requests, found.offsets, bound), "");
    }
    EXPECT_EQ(fit_within(requests, bound - 1, 1'000'000).fit, Fit::kImpossible);
  }
}

// Fourteen requests of which at most 8 bytes live at once, and which do not fit into 8.
TEST(FitWithin, ProvesThatTheBoundCannotAlwaysBeReached) {
  const std::vector<PlanRequest> requests = {
      {2, 5, 7}, {4, 7, 9},   {4, 4, 5}, {4, 0, 3},   {1, 10, 13}, {4, 8, 10}, {1, 0, 2},
      {2, 11, 13}, {4, 4, 6}, {4, 11, 13}, {1, 9, 11}, {2, 6, 8},  {3, 0, 1},  {1, 5, 8}};
  EXPECT_EQ(pack(requests, 1).lower_bound_bytes, 8u);
  std::vector<std::uint64_t> tried;
  EXPECT_FALSE(fits_by_trying(requests, 8, tried));
  EXPECT_EQ(fit_within(requests, 8, 1'000'000).fit, Fit::kImpossible);
  EXPECT_EQ(fit_within(requests, 9, 1'000'000).fit, Fit::kFits);
  // The same with single bytes that fill what is free.
  std::vector<PlanRequest> full = requests;
  for (std::uint32_t moment = 0; moment < 13; ++moment) {
    std::uint64_t live = 0;
    for (const PlanRequest& r : requests) live += r.begin <= moment && moment < r.end ? r.size : 0;
    for (; live < 8; ++live) full.push_back({1, moment, moment + 1});
  }
  EXPECT_EQ(fit_within(full, 8, 1'000'000).fit, Fit::kImpossible);
}

// Requests that live in [0, 6) and fill 6 bytes at every moment.
std::vector<PlanRequest> full_requests(Random& random) {
  std::vector<std::uint64_t> rest(6, 6);
  std::vector<PlanRequest> requests;
  for (std::uint32_t begin = 0; begin < rest.size();) {
    if (rest[begin] == 0) {
      ++begin;
      continue;
    }
    const std::uint64_t size = random.between(1, std::min<std::uint64_t>(3, rest[begin]));
    std::uint32_t end = begin;
    do {
      rest[end++] -= size;
    } while (end < rest.size() && rest[end] >= size && random.chance(0.6));
    requests.push_back({size, begin, end});
  }
  return requests;
}

TEST(FitWithin, AgreesWithTryingAllWhereNoByteMayBeFree) {
  Random random(3);
  int compared = 0;
  for (int i = 0; i < 400; ++i) {
    SCOPED_TRACE(i);
    const std::vector<PlanRequest> requests = full_requests(random);
    if (requests.size() > 13) continue;  // too many to try all
    std::vector<std::uint64_t> tried;
    const bool fits = fits_by_trying(requests, 6, tried);
    const FitResult found = fit_within(requests, 6, 1'000'000);
    ASSERT_EQ(found.fit, fits ? Fit::kFits : Fit::kImpossible);
    if (fits) {
      EXPECT_EQ(error_of(requests, found.offsets, 6), "");
    }
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

TEST(FitWithin, FindsPackingsOfThousandsOfRequestsWithoutAFreeByte) {
  for (const std::size_t count : {300, 1000, 2000}) {
    SCOPED_TRACE(count);
    Random random(count);
    const std::vector<PlanRequest> requests =
        rigs::cut_rectangle(random, 1 << 20, 20'000, count).requests;
    const FitResult found = fit_within(requests, 1 << 20, 100'000);
    ASSERT_EQ(found.fit, Fit::kFits);
    EXPECT_EQ(error_of(requests, found.offsets, 1 << 20), "");
  }
}

// Many sets of requests have the same size.
TEST(FitWithin, FindsPackingsOfSizesOfFewUnitsWithoutAFreeByte) {
  for (const std::uint64_t capacity : {16, 256})
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      SCOPED_TRACE(seed);
      Random random(seed);
      const std::vector<PlanRequest> requests =
          rigs::cut_rectangle(random, capacity, 100, 90).requests;
      const FitResult found = fit_within(requests, capacity, 1'000'000);
      ASSERT_EQ(found.fit, Fit::kFits);
      EXPECT_EQ(error_of(requests, found.offsets, capacity), "");
    }
}

TEST(FitWithin, SaysWhenItGaveUpAndTakesNothing) {
  EXPECT_EQ(fit_within({}, 0, 10).fit, Fit::kFits);
  Random random(5);
  EXPECT_EQ(fit_within(rigs::cut_rectangle(random, 1 << 20, 1000, 300).requests, 1 << 20, 50).fit,
            Fit::kUnknown);
}

TEST(PackTightly, SolvesAPublishedProblemThatNoGreedyOrderDoes) {
  const FileBytes bytes((kData / "plans/C.1048576.csv").string());
  const Instance instance = parse_instance(bytes.view(), "C.1048576.csv");
  const std::vector<PlanRequest> requests = requests_of(instance);
  EXPECT_GT(pack(requests, 1).peak_bytes, 1048576u);
  const FitResult found = fit_within(requests, 1048576, 2'000'000);
  ASSERT_EQ(found.fit, Fit::kFits);
  EXPECT_EQ(error_of(requests, found.offsets, 1048576), "");
}

TEST(PackTightly, IsNeverWorseThanPackAndReachesTheBoundWhereItCan) {
  Random random(9);
  const std::vector<PlanRequest> requests =
      rigs::cut_rectangle(random, 1000, 60, 60).requests;
  const Packing tight = pack_tightly(requests, 1);
  EXPECT_EQ(tight.peak_bytes, 1000u);
  EXPECT_EQ(error_of(requests, tight.offsets, tight.peak_bytes), "");
}

// Thousands of requests that overlap at random: the greedy runs would take minutes.
TEST(Pack, EndsEarlyWhereRequestsOverlapAtRandom) {
  Random random(5);
  std::vector<PlanRequest> requests;
  for (std::uint32_t i = 0; i < 12'000; ++i) {
    const auto begin = static_cast<std::uint32_t>(random.below(24'000));
    const auto end = static_cast<std::uint32_t>(random.between(begin + 1, 24'001));
    requests.push_back({random.between(1, 1 << 20), begin, end});
  }
  const Packing packing = pack(requests, 1, 0.05);
  EXPECT_EQ(error_of(requests, packing.offsets, packing.peak_bytes), "");
}

TEST(FindIterations, FindsTheShortestPeriodOfTheLongestEnd) {
  std::vector<std::uint64_t> requests = {7, 7, 1, 9};
  for (int i = 0; i < 5; ++i) requests.insert(requests.end(), {1, 2, 1, 3});
  requests.push_back(1);
  const auto found = find_iterations(requests);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->period, 4u);
  EXPECT_EQ(found->begin, 4u);
  EXPECT_DOUBLE_EQ(found->count, 21 / 4.0);
}

TEST(FindIterations, FindsNoneWhereNothingRepeats) {
  EXPECT_FALSE(find_iterations({}).has_value());
  EXPECT_FALSE(find_iterations(std::vector<std::uint64_t>{1}).has_value());
  EXPECT_FALSE(find_iterations(std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}).has_value());
  // A short repetition at the end of a long program is no iteration.
  std::vector<std::uint64_t> requests;
  for (std::uint64_t i = 0; i < 100; ++i) requests.push_back(i);
  requests.insert(requests.end(), {1000, 1000, 1000});
  EXPECT_FALSE(find_iterations(requests).has_value());
}

// A model of two weights, then steps of three blocks; the batch lives on until the next batch is
// there.
Trace training(int steps) {
  TraceMaker maker;
  maker.alloc(1, 0, 5'000'000).alloc(2, 1, 700);
  for (int step = 0; step < steps; ++step) {
    const auto id = static_cast<std::uint64_t>(100 + 10 * step);
    const std::int64_t time = 100 * (step + 1);
    maker.alloc(id, time, 4096);
    if (step > 0) maker.free(id - 10, time + 1);
    maker.alloc(id + 1, time + 2, 10000).alloc(id + 2, time + 3, 600);
    maker.free(id + 1, time + 4).free(id + 2, time + 5);
  }
  return maker.make();
}

TEST(PlanProgram, PlansALoopThatServesMoreStepsThanWereRecorded) {
  PlanOptions options;
  options.find_loops = true;
  const PlanResult result = plan_program(Workload(training(9)).ops(), options);
  ASSERT_TRUE(result.iterations.has_value());
  EXPECT_EQ(result.iterations->period, 3u);
  const StreamPlan& stream = *result.plan.stream(0);
  EXPECT_GT(stream.loop_begin, 0u);
  EXPECT_LT(stream.slots.size(), 2u + 9 * 3);
  EXPECT_EQ(find_plan_error(result.plan, training(9)), "");
  EXPECT_EQ(find_plan_error(result.plan, training(40)), "");
}

TEST(PlanProgram, AWholePlanHasASlotForEachAllocation) {
  const PlanResult result = plan_program(Workload(training(9)).ops());
  EXPECT_EQ(result.plan.stream(0)->slots.size(), 2u + 9 * 3);
  EXPECT_EQ(result.plan.stream(0)->loop_begin, 0u);
}

TEST(PlanProgram, StreamsShareWhereTheyPeakAtDifferentTimes) {
  TraceMaker maker;
  maker.alloc(1, 0, 1 << 20, 0).free(1, 1).alloc(2, 2, 1 << 20, 1).free(2, 3);
  const Trace trace = maker.make();
  const Plan plan = plan_program(Workload(trace).ops()).plan;
  EXPECT_TRUE(plan.shared());
  EXPECT_EQ(plan.total_bytes(), 1u << 20);
  EXPECT_EQ(find_plan_error(plan, trace), "");
  PlanOptions apart;
  apart.share_streams = false;
  EXPECT_EQ(plan_program(Workload(trace).ops(), apart).plan.total_bytes(), 2u << 20);
}

TEST(PlanProgram, AQuickPlanIsAPlanToo) {
  PlanOptions options;
  options.quick = true;
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Trace trace = testing::random_trace(seed, 2000, 3);
    const PlanResult quick = plan_program(Workload(trace).ops(), options);
    const PlanResult best = plan_program(Workload(trace).ops());
    EXPECT_EQ(find_plan_error(quick.plan, trace), "");
    EXPECT_GE(quick.plan.total_bytes(), best.plan.total_bytes());
    EXPECT_LE(quick.plan.total_bytes(), 2 * best.plan.total_bytes());
  }
}

TEST(PlanFile, ComesBackAsItWas) {
  PlanOptions options;
  options.find_loops = true;
  for (const Trace& trace : {training(9), testing::random_trace(3, 500, 3)}) {
    const Plan plan = plan_program(Workload(trace).ops(), options).plan;
    const std::string text = format_plan(plan);
    const Plan again = parse_plan(text, "a.plan");
    EXPECT_EQ(format_plan(again), text);
    EXPECT_EQ(again.shared(), plan.shared());
    EXPECT_EQ(again.total_bytes(), plan.total_bytes());
    EXPECT_EQ(find_plan_error(again, trace), "");
  }
}

TEST(PlanFile, RefusesWhatIsCutChangedOrHostile) {
  const std::string text = format_plan(plan_program(Workload(training(9)).ops()).plan);
  for (std::size_t end = 0; end < text.size(); ++end)
    EXPECT_THROW(parse_plan(text.substr(0, end), "cut"), ParseError) << end;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == '1' ? '2' : '1';
    EXPECT_THROW(parse_plan(changed, "changed"), ParseError) << i;
  }
  EXPECT_THROW(parse_plan(text + "x", "longer"), ParseError);
  const std::string head = "tenon-plan 1\nunit 512\nshared 0\nstreams 1\n";
  for (const char* line :
       {"stream 0 slots 99999999999 loop 0\n", "stream 9999999 slots 0 loop 0\n",
        "stream 0 slots 18446744073709551616 loop 0\n", "stream 0 slots 1 loop 1\n1 1\n",
        "stream 0 slots 1 loop 0\n99999999999999999999 1\n", "stream 0 slots 1 loop 0\n1 0\n"})
    EXPECT_THROW(parse_plan(head + line, "hostile"), ParseError) << line;
  try {
    parse_plan("tenon-plan 2\n", "newer");
    FAIL();
  } catch (const ParseError& error) {
    EXPECT_THAT(error.what(), HasSubstr("version 2"));
  }
}

TEST(InstanceFile, ReadsColumnsInAnyOrderAndComesBack) {
  const Instance read = parse_instance("size,upper,id,lower\r\n10,5,a,-3\n\n20,9,b,5\n", "x.csv");
  ASSERT_EQ(read.buffers.size(), 2u);
  EXPECT_EQ(read.buffers[0].lower, -3);
  EXPECT_FALSE(read.solved);
  const Instance again = parse_instance(format_instance(read, {0, 7}), "x.csv");
  EXPECT_TRUE(again.solved);
  EXPECT_EQ(again.buffers[1].offset, 7u);
  EXPECT_EQ(requests_of(read)[1].begin, requests_of(read)[0].end);
}

TEST(InstanceFile, NamesLineColumnAndReason) {
  const auto refused = [](const std::string& text) {
    try {
      parse_instance(text, "x.csv");
    } catch (const ParseError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::string head = "id,lower,upper,size\n";
  EXPECT_THAT(refused(""), HasSubstr("no header"));
  EXPECT_THAT(refused("id,lower,upper\n"), HasSubstr("size is missing"));
  EXPECT_THAT(refused("id,lower,upper,size,alignment\n"), HasSubstr("unknown column"));
  EXPECT_THAT(refused("id,lower,begin,upper,size\n"), HasSubstr("twice"));
  EXPECT_THAT(refused(head + "a,0,1\n"), HasSubstr("x.csv:2:1: 3 fields"));
  EXPECT_THAT(refused(head + "a,0,1,x\n"), HasSubstr("x.csv:2:7: size"));
  EXPECT_THAT(refused(head + "a,0,1,0\n"), HasSubstr("size"));
  EXPECT_THAT(refused(head + "a,4,4,1\n"), HasSubstr("empty"));
  EXPECT_THAT(refused(head + "a,0,1,1\na,0,1,1\n"), HasSubstr("twice"));
  EXPECT_THAT(refused(head + "a,0,1,999999999999999999999\n"), HasSubstr("whole number"));
}

TEST(FindPackingError, NamesWhatIsWrong) {
  EXPECT_EQ(find_packing_error({{0, 2, 10, 0}, {2, 4, 10, 0}, {0, 4, 5, 10}}, 15), "");
  EXPECT_THAT(find_packing_error({{0, 2, 10, 0}, {1, 4, 10, 9}}, 19), HasSubstr("overlap"));
  EXPECT_THAT(find_packing_error({{0, 2, 10, 5}, {1, 4, 10, 0}}, 19), HasSubstr("overlap"));
  EXPECT_THAT(find_packing_error({{0, 2, 10, 6}}, 15), HasSubstr("beyond the capacity"));
  EXPECT_THAT(find_packing_error({{0, 2, 10, UINT64_MAX}}, 15), HasSubstr("beyond the capacity"));
}

}  // namespace
}  // namespace tenon
