// A short run of the stress rounds: bench_stress makes long ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "rigs/stress/round.h"

namespace tenon {
namespace {

class Stress : public ::testing::TestWithParam<std::string> {};

TEST_P(Stress, ServesEveryThreadWhileOthersPollEndAndForkAndMemoryIsShort) {
  RoundResult sum;
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    sum += Round(find_policy(GetParam()), seed, 3, 8).run();
    ASSERT_EQ(sum.violation, "") << "seed " << seed;
  }
  EXPECT_GT(sum.operations, 50'000u);
  EXPECT_GE(sum.threads, 4 * 3 * 2u);
  EXPECT_GT(sum.polls, 0u);
  EXPECT_GT(sum.out_of_memory, 0u);
}

std::vector<std::string> policies_to_stress() {
  std::vector<std::string> names;
  for (const Policy& policy : policies())
    if (policy.name != "null" && policy.name != "system") names.push_back(policy.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Policies, Stress, ::testing::ValuesIn(policies_to_stress()),
                         [](const auto& which) { return which.param; });

}  // namespace
}  // namespace tenon
