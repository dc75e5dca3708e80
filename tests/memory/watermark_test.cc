#include "tenon/memory/watermark.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "tenon/base/error.h"

namespace tenon {
namespace {

constexpr std::uint64_t kSet = 1000;

TEST(Watermarks, DefaultToRatiosOfTheRecommendedWorkingSet) {
  const Watermarks marks(kSet);
  EXPECT_DOUBLE_EQ(marks.high_ratio(), 1.7);
  EXPECT_DOUBLE_EQ(marks.low_ratio(), 1.4);
  EXPECT_EQ(marks.high_limit_bytes(), 1700u);
  EXPECT_EQ(marks.low_limit_bytes(), 1400u);
  EXPECT_EQ(marks.recommended_bytes(), kSet);
}

TEST(Watermarks, ZeroTurnsAMarkOff) {
  Watermarks marks(kSet);
  marks.set_high_ratio(0);
  marks.set_low_ratio(0);
  EXPECT_EQ(marks.high_limit_bytes(), Watermarks::kNoLimit);
  EXPECT_EQ(marks.low_limit_bytes(), Watermarks::kNoLimit);
  EXPECT_GT(marks.low_headroom_bytes(std::uint64_t{1} << 60), 0);
}

TEST(Watermarks, RefuseRatiosOutOfRangeAndKeepTheOldOnes) {
  Watermarks marks(kSet);
  for (const double bad : {-0.1, 2.01, std::nan("")}) {
    EXPECT_THROW(marks.set_high_ratio(bad), InvalidArgument);
    EXPECT_THROW(marks.set_low_ratio(bad), InvalidArgument);
  }
  EXPECT_THROW(marks.set_low_ratio(1.8), InvalidArgument) << "above the high mark";
  EXPECT_EQ(marks.high_limit_bytes(), 1700u);
  EXPECT_EQ(marks.low_limit_bytes(), 1400u);
  marks.set_high_ratio(2.0);
  marks.set_low_ratio(1.8);
  EXPECT_EQ(marks.low_limit_bytes(), 1800u);
}

TEST(Watermarks, LoweringTheHighMarkTakesTheLowOneWithIt) {
  Watermarks marks(kSet);
  marks.set_high_ratio(0.5);
  EXPECT_EQ(marks.low_limit_bytes(), 500u);
  marks.set_high_ratio(0);
  EXPECT_EQ(marks.low_limit_bytes(), 500u) << "a mark that is off bounds nothing";
}

TEST(Watermarks, TellTheHeadroom) {
  const Watermarks marks(kSet);
  EXPECT_EQ(marks.low_headroom_bytes(1000), 400);
  EXPECT_EQ(marks.low_headroom_bytes(1500), -100);
  EXPECT_EQ(marks.high_headroom_bytes(1500), 200);
}

TEST(Watermarks, WithoutARecommendationBothAreOff) {
  const Watermarks marks(0);
  EXPECT_EQ(marks.high_limit_bytes(), Watermarks::kNoLimit);
  EXPECT_EQ(marks.low_limit_bytes(), Watermarks::kNoLimit);
}

TEST(PressureCallbacks, RunInOrderUntilEnoughWasLetGo) {
  PressureCallbacks callbacks;
  std::vector<int> order;
  std::vector<std::uint64_t> wanted;
  for (const int which : {1, 2, 3})
    callbacks.add([&, which](std::uint64_t bytes) {
      order.push_back(which);
      wanted.push_back(bytes);
      return std::uint64_t{60};
    });
  const PressureCallbacks::Relief relief = callbacks.relieve(100);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(wanted, (std::vector<std::uint64_t>{100, 40}));
  EXPECT_EQ(relief.freed_bytes, 120u);
  EXPECT_EQ(relief.called, 2);
}

TEST(PressureCallbacks, SwallowAndCountExceptions) {
  PressureCallbacks callbacks;
  bool ran = false;
  callbacks.add([](std::uint64_t) -> std::uint64_t { throw std::runtime_error("no"); });
  callbacks.add([&](std::uint64_t) {
    ran = true;
    return std::uint64_t{1};
  });
  EXPECT_EQ(callbacks.relieve(10).called, 2);
  EXPECT_TRUE(ran);
  EXPECT_EQ(callbacks.errors(), 1u);
}

TEST(PressureCallbacks, MayRemoveThemselvesAndDoNotRunInsideThemselves) {
  PressureCallbacks callbacks;
  int calls = 0;
  PressureCallbacks::Id id = 0;
  id = callbacks.add([&](std::uint64_t) {
    ++calls;
    EXPECT_EQ(callbacks.relieve(5).called, 0);
    callbacks.remove(id);
    return std::uint64_t{0};
  });
  callbacks.relieve(10);
  callbacks.relieve(10);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(callbacks.empty());
  EXPECT_THROW(callbacks.add(nullptr), InvalidArgument);
}

}  // namespace
}  // namespace tenon
