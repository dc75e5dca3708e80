#include "tenon/lab/jobs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "lab/traces.h"
#include "tenon/base/interruption.h"
#include "tenon/lab/advice/advice.h"
#include "tenon/lab/planner.h"
#include "tenon/lab/replayer.h"
#include "tenon/lab/survey.h"
#include "tenon/lab/view/policy_view.h"
#include "tenon/lab/view/view_data.h"

namespace tenon {
namespace {

TEST(JobsTest, EachRunsOnce) {
  std::vector<std::atomic<int>> runs(100);
  run_jobs(runs.size(), 3, [&](std::size_t i) { ++runs[i]; });
  for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
}

TEST(JobsTest, TheFirstFailureInOrderIsThrownAndEndsTheRest) {
  std::atomic<int> begun = 0;
  try {
    run_jobs(10'000, 4, [&](std::size_t i) {
      ++begun;
      if (i >= 5) throw std::runtime_error(std::to_string(i));
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "5");
  }
  EXPECT_LT(begun, 20);
}

TEST(JobsTest, AThreadObeysItsCallersRequestToStop) {
  std::atomic<bool> stop = false;
  const StopScope scope(&stop);
  std::atomic<int> begun = 0;
  EXPECT_THROW(run_jobs(10'000, 4,
                        [&](std::size_t) {
                          ++begun;
                          stop = true;
                        }),
               Interrupted);
  EXPECT_LT(begun, 10);
}

// Each kind of long work notices a request that is there from the beginning, on whatever thread.
TEST(InterruptionTest, LongWorkOfTheLabStops) {
  const Trace trace = testing::random_trace(7, 3000);
  const std::vector<Workload> workloads = [&] {
    std::vector<Workload> made;
    made.emplace_back(trace);
    return made;
  }();
  SurveyOptions survey_options;
  survey_options.policies = {"caching", "stitched"};
  ViewOptions view_options;
  view_options.policies = {"caching", "stitched"};
  ReplaySetup setup;
  setup.policy = "caching";

  const std::atomic<bool> stop = true;
  const StopScope scope(&stop);
  EXPECT_THROW(replay(workloads[0], setup), Interrupted);
  EXPECT_THROW(fits(workloads[0], setup), Interrupted);
  EXPECT_THROW(measure_ns_per_event(workloads[0], setup, 3), Interrupted);
  EXPECT_THROW(survey(workloads, survey_options), Interrupted);
  EXPECT_THROW(advise(workloads[0], {}), Interrupted);
  EXPECT_THROW(make_view(trace, view_options, ColumnsAt::kPage), Interrupted);
  EXPECT_THROW(view_policy(workloads[0], setup), Interrupted);
}

TEST(InterruptionTest, PackingStopsAndCanBeDoneAgain) {
  // Far from its bound at once, so that the packer goes on to search.
  const Workload workload(testing::random_trace(11, 2000));
  std::atomic<bool> stop = true;
  {
    const StopScope scope(&stop);
    EXPECT_THROW(make_plan(workload.ops()), Interrupted);
    EXPECT_THROW(workload.plan(), Interrupted);
  }
  EXPECT_NO_THROW(stop_if_asked());
  EXPECT_EQ(workload.plan().total_bytes(), make_plan(workload.ops()).total_bytes());
}

}  // namespace
}  // namespace tenon
