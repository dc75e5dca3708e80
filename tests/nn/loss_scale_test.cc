// When the factor of the loss changes.
#include "tenon/nn/loss_scale.h"

#include <gtest/gtest.h>

#include "tenon/base/error.h"

namespace tenon::nn {
namespace {

TEST(LossScale, IsHalvedByAnOverflowAndDoubledAfterManyGoodSteps) {
  LossScale scale;
  EXPECT_EQ(scale.value(), LossScale::kFirst);
  EXPECT_TRUE(scale.update(true));
  EXPECT_TRUE(scale.update(false));
  EXPECT_EQ(scale.value(), LossScale::kFirst / 2);
  EXPECT_EQ(scale.state().skipped, 1u);
  for (std::uint64_t i = 1; i < LossScale::kStepsToGrow; ++i) scale.update(true);
  EXPECT_EQ(scale.value(), LossScale::kFirst / 2);
  scale.update(true);
  EXPECT_EQ(scale.value(), LossScale::kFirst);
  EXPECT_EQ(scale.state().good_steps, 0u);
}

TEST(LossScale, HasLimits) {
  LossScale small({1, 0, 0});
  EXPECT_FALSE(small.update(false)) << "no smaller scale would help";
  EXPECT_EQ(small.value(), 1);
  LossScale large({LossScale::kMost, LossScale::kStepsToGrow - 1, 7});
  EXPECT_TRUE(large.update(true));
  EXPECT_EQ(large.value(), LossScale::kMost);
  EXPECT_EQ(large.state().skipped, 7u);
  for (const double wrong : {0.0, 0.5, 3.0, -2.0, 2 * LossScale::kMost})
    EXPECT_THROW(LossScale({wrong, 0, 0}), InvalidArgument) << wrong;
}

}  // namespace
}  // namespace tenon::nn
