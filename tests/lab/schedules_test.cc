// A short version of bench/stress/schedules.cc: whole policies keep the stream rule, broken ones
// are caught. tests/memory/stream_order_test.cc has few long schedules, this many short ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"
#include "rigs/schedules/trial.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = ScheduleStep::Kind;

TEST(Schedules, AreTheSameForTheSameSeedAndCoverEveryKindOfStep) {
  std::set<Kind> kinds;
  std::set<std::string> texts;
  bool second_thread = false;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Schedule schedule = random_schedule(seed);
    EXPECT_EQ(to_string(schedule), to_string(random_schedule(seed)));
    EXPECT_TRUE(texts.insert(to_string(schedule)).second) << "seed " << seed;
    for (const ScheduleStep& step : schedule.steps) {
      kinds.insert(step.kind);
      second_thread |= step.on_second_thread;
    }
  }
  EXPECT_EQ(kinds.size(), 8u);
  EXPECT_TRUE(second_thread);
}

class StreamRuleTrials : public ::testing::TestWithParam<std::string> {};

TEST_P(StreamRuleTrials, WholePoliciesKeepTheRule) {
  Trial trial(GetParam());
  std::uint64_t out_of_memory = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    const TrialResult result = trial.run(random_schedule(seed));
    ASSERT_THAT(result.faults, IsEmpty()) << "seed " << seed;
    out_of_memory += result.out_of_memory;
  }
  EXPECT_GT(out_of_memory, 0u) << "memory must be short now and then";
}

TEST_P(StreamRuleTrials, TheSameScheduleGivesTheSameResult) {
  Trial trial(GetParam(), Breakage::kOneStream);
  Trial again(GetParam(), Breakage::kOneStream);
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const TrialResult one = trial.run(random_schedule(seed));
    const TrialResult two = again.run(random_schedule(seed));
    ASSERT_EQ(one.faults, two.faults) << "seed " << seed;
    ASSERT_EQ(one.out_of_memory, two.out_of_memory) << "seed " << seed;
    ASSERT_EQ(one.operations, two.operations) << "seed " << seed;
  }
}

std::vector<std::string> policies_with_memory() {
  std::vector<std::string> names;
  for (const Policy& policy : policies())
    if (policy.name != "null") names.push_back(policy.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, StreamRuleTrials, ::testing::ValuesIn(policies_with_memory()),
                         [](const auto& policy) { return policy.param; });

// Which fault each way of breaking a policy must lead to. What is not here uses nothing of what is
// broken, but for system: the driver that it gives every block back to waits for the whole device.
struct Expected {
  std::string policy;
  Breakage breakage;
  std::string fault;
};

std::vector<Expected> expected() {
  std::vector<Expected> all;
  const auto add = [&](std::vector<std::string> names, Breakage breakage, std::string fault) {
    for (std::string& name : names) all.push_back({std::move(name), breakage, fault});
  };
  add({"host", "buddy", "pool", "caching", "expandable", "unified", "stitched", "arena", "plan"},
      Breakage::kOneStream, "early reuse");
  add({"caching", "expandable", "unified", "stitched", "arena"}, Breakage::kLostRecordStream,
      "early reuse");
  add({"caching", "expandable", "unified", "stitched", "plan"}, Breakage::kEarlyEvents,
      "early reuse");
  add({"unified", "stitched", "arena"}, Breakage::kLostStreamWait, "early reuse");
  add({"caching", "unified"}, Breakage::kLostHostWait, "early reuse");
  add({"expandable", "stitched"}, Breakage::kEarlyEvents, "unmap in use");
  add({"expandable", "stitched"}, Breakage::kLostHostWait, "unmap in use");
  return all;
}

class BrokenPolicies : public ::testing::TestWithParam<Expected> {};

TEST_P(BrokenPolicies, AreCaught) {
  Trial trial(GetParam().policy, GetParam().breakage);
  for (std::uint64_t seed = 1; seed <= 2000; ++seed)
    for (const std::string& fault : trial.run(random_schedule(seed)).faults)
      if (fault.starts_with(GetParam().fault)) return;
  ADD_FAILURE() << "not caught";
}

INSTANTIATE_TEST_SUITE_P(All, BrokenPolicies, ::testing::ValuesIn(expected()),
                         [](const auto& which) {
                           std::string name = which.param.policy + "_" +
                                              key_of(which.param.breakage) + "_" +
                                              which.param.fault;
                           for (char& c : name)
                             if (c == '-' || c == ' ') c = '_';
                           return name;
                         });

TEST(Shrinking, LeavesNoStepThatIsNotNeeded) {
  Trial trial("caching", Breakage::kLostRecordStream);
  std::uint64_t seed = 1;
  while (trial.run(random_schedule(seed)).faults.empty()) ++seed;
  const Schedule small = shrink(random_schedule(seed), trial);
  EXPECT_THAT(trial.run(small).faults.front(), HasSubstr("early reuse"));
  for (std::size_t i = 0; i < small.steps.size(); ++i) {
    Schedule without = small;
    without.steps.erase(without.steps.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(trial.run(without).faults, IsEmpty()) << "without step " << i;
  }
  // A block is made and lent, freed, and its memory asked for again.
  EXPECT_EQ(small.steps.size(), 4u) << to_string(small);
}

// A page came from stream 3 to stream 1, which waited for it; memory ran out before a block was
// placed there, and the page went on to stream 0, which must wait too. Found by a random schedule.
TEST(StreamRuleRegressions, APageThatNobodyUsedOnItsWayIsStillOrdered) {
  constexpr std::uint64_t kSmaller = 8143784;
  constexpr std::uint64_t kLarger = 28456633;
  struct Request {
    std::uint32_t block;
    std::uint64_t size_bytes;
    std::uint8_t stream;
    std::uint64_t pause_ns;
  };
  Schedule schedule;
  schedule.streams = 4;
  schedule.lag_ns = 5'000'000;
  schedule.capacity_bytes = 287 * kMiB;
  schedule.page_bytes = 2 * kMiB;
  const auto allocate = [&](std::initializer_list<Request> requests) {
    for (const Request& r : requests)
      schedule.steps.push_back({.kind = Kind::kAllocate, .stream = r.stream, .block = r.block,
                                .size_bytes = r.size_bytes, .pause_ns = r.pause_ns});
  };
  const auto free = [&](std::uint32_t block, std::uint64_t pause_ns) {
    schedule.steps.push_back({.kind = Kind::kFree, .block = block, .pause_ns = pause_ns});
  };
  allocate({{18, kSmaller, 0, 5622},  {19, kSmaller, 0, 15277}, {20, kSmaller, 0, 9390},
            {22, kLarger, 1, 10420},  {24, kLarger, 0, 12312},  {25, kLarger, 3, 8242},
            {26, kSmaller, 2, 4443},  {27, kLarger, 3, 8363},   {28, kLarger, 2, 12023},
            {30, kLarger, 1, 6386},   {33, kSmaller, 3, 19162}, {34, kSmaller, 1, 4760},
            {35, kSmaller, 3, 12080}, {36, kLarger, 2, 14057},  {37, kSmaller, 2, 7012},
            {38, kSmaller, 3, 14693}, {39, kLarger, 1, 16051}});
  free(35, 4926);
  allocate({{40, kSmaller, 0, 7657}, {41, kLarger, 1, 835}});
  free(28, 1845);
  allocate({{45, kLarger, 0, 9645}});
  Trial trial("stitched");
  EXPECT_THAT(trial.run(schedule).faults, IsEmpty());
}

TEST(Breakages, HaveKeysThatFindThem) {
  for (const Breakage breakage : breakages()) EXPECT_EQ(find_breakage(key_of(breakage)), breakage);
  EXPECT_THROW(find_breakage("nonsense"), InvalidArgument);
}

// What the second thread throws is thrown where the task was given.
TEST(SecondThread, TakesItsTurnAndPassesExceptionsOn) {
  SecondThread second;
  int steps = 0;
  const auto here = std::this_thread::get_id();
  for (int i = 0; i < 100; ++i)
    second.run([&] { steps += std::this_thread::get_id() != here ? 1 : 0; });
  EXPECT_EQ(steps, 100);
  EXPECT_THROW(second.run([] { throw InvalidArgument("there"); }), InvalidArgument);
  second.run([&] { ++steps; });
  EXPECT_EQ(steps, 101);
}

}  // namespace
}  // namespace tenon
