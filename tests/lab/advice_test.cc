#include "tenon/lab/advice/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lab/traces.h"
#include "tenon/base/byte_size.h"
#include "tenon/lab/capacity.h"
#include "tenon/memory/caching/settings.h"
#include "tenon/trace/load.h"

namespace tenon {
namespace {

using ::testing::IsEmpty;

AdviceOptions quick() {
  AdviceOptions options;
  options.effort = 0.05;
  return options;
}

Workload recorded(const std::string& name) {
  return Workload(
      load_traces(std::string(TENON_SOURCE_DIR) + "/data/traces/" + name + ".csv.zst").at(0));
}

TEST(ConfChoices, AreAllAcceptedAndDistinct) {
  std::set<std::string> seen;
  for (const ConfChoice& choice : coarse_choices()) {
    EXPECT_NO_THROW(parse_caching_settings(choice.text())) << choice.text();
    EXPECT_TRUE(seen.insert(choice.text()).second) << choice.text();
    for (const ConfChoice& other : neighbours_of(choice)) {
      EXPECT_NO_THROW(parse_caching_settings(other.text())) << other.text();
      EXPECT_NE(other.text(), choice.text());
    }
  }
  EXPECT_THAT(ConfChoice{}.text(), IsEmpty());
}

TEST(Advise, IsAtLeastAsGoodAsPyTorchsOwnChoicesAndCanBeMadeAgain) {
  const Workload workload = recorded("gnn_sampled");
  const Advice advice = advise(workload, quick());
  EXPECT_TRUE(advice.best_in_both);
  EXPECT_LE(advice.best.reserved_peak_bytes,
            std::min(advice.default_settings.reserved_peak_bytes,
                     advice.expandable.reserved_peak_bytes));
  EXPECT_LE(*advice.best.min_capacity_bytes,
            std::min(*advice.default_settings.min_capacity_bytes,
                     *advice.expandable.min_capacity_bytes));
  ReplaySetup setup;
  setup.policy = advice.best.policy;
  setup.options.conf = advice.best.conf;
  EXPECT_EQ(replay(workload, setup).reserved_peak_bytes, advice.best.reserved_peak_bytes);
  EXPECT_EQ(find_min_capacity(workload, setup, advice.best.reserved_peak_bytes),
            advice.best.min_capacity_bytes);
}

TEST(Advise, DoesNotDependOnTheNumberOfThreads) {
  const Workload workload(testing::random_trace(4, 3000, 2));
  AdviceOptions options = quick();
  options.threads = 1;
  const Advice alone = advise(workload, options);
  options.threads = 3;
  const Advice together = advise(workload, options);
  EXPECT_EQ(alone.best.conf, together.best.conf);
  EXPECT_EQ(alone.least_reserved.conf, together.least_reserved.conf);
  EXPECT_EQ(alone.settings_tried, together.settings_tried);
}

TEST(Advise, SaysWhenTheProgramItselfIsTooLarge) {
  const Workload workload(testing::random_trace(4, 1000));
  AdviceOptions options = quick();
  options.capacity_bytes = workload.live_peak_bytes() - 1;
  const Advice advice = advise(workload, options);
  EXPECT_TRUE(advice.hopeless());
  EXPECT_FALSE(advice.best.fits.value_or(true));
  options.capacity_bytes = workload.live_peak_bytes() * 4 + 64 * kMiB;
  const Advice roomy = advise(workload, options);
  EXPECT_FALSE(roomy.hopeless());
  EXPECT_TRUE(roomy.best.fits.value_or(false));
}

TEST(Advise, PutsWhatFitsFirst) {
  const Workload workload = recorded("gnn_sampled");
  const Advice free = advise(workload, quick());
  AdviceOptions options = quick();
  options.capacity_bytes = *free.expandable.min_capacity_bytes;
  const Advice limited = advise(workload, options);
  EXPECT_FALSE(limited.default_settings.fits.value_or(true));
  EXPECT_TRUE(limited.best.fits.value_or(false));
}

TEST(Advise, TakesAProgramWithoutEvents) {
  const Advice advice = advise(Workload(testing::TraceMaker().make()), quick());
  EXPECT_EQ(advice.best.reserved_peak_bytes, 0u);
}

}  // namespace
}  // namespace tenon
