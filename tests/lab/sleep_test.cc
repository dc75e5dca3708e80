// Recordings of memory that sleeps: replayed and explained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tenon/lab/explain/explain.h"
#include "tenon/lab/replayer.h"
#include "tenon/lab/view/policy_view.h"
#include "tenon/trace/csv.h"

namespace tenon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kWeights = 41943040;  // 40 MiB

// 40 MiB of weights on one stream sleep while 40 MiB of another stream are live, twice.
std::string recording() {
  return "time_us,op,id,size,stream,tag\n"
         "0,alloc,0,41943040,1,\n"
         "100,free_completed,0,41943040,1,\n"
         "100,sleep_dropped,4096,41943040,0,weights\n"
         "110,alloc,1,41943040,2,\n"
         "200,free_completed,1,41943040,2,\n"
         "300,wake,4096,41943040,0,weights\n"
         "300,alloc,2,41943040,1,\n"
         "400,free_completed,2,41943040,1,\n"
         "400,sleep_to_host,4096,41943040,0,weights\n"
         "450,alloc,3,1000,1,\n";
}

TEST(SleepTest, ReplayGivesBackWhatSleeps) {
  const std::string asleep = recording().substr(0, recording().find("300,wake"));
  std::string awake = asleep;
  const std::size_t mark = awake.find("100,sleep_dropped");
  awake.erase(mark, awake.find('\n', mark) + 1 - mark);
  for (const char* policy : {"caching", "expandable", "stitched", "arena"}) {
    SCOPED_TRACE(policy);
    ReplaySetup setup;
    setup.policy = policy;
    const Workload slept(parse_csv(asleep, "run.csv"));
    const std::uint64_t peak = replay(slept, setup).reserved_peak_bytes;
    EXPECT_LT(peak, 2 * kWeights);
    const Workload kept(parse_csv(awake, "run.csv"));
    if (setup.policy != "stitched") {  // which moves it to the other stream
      EXPECT_GE(replay(kept, setup).reserved_peak_bytes, 2 * kWeights) << "in the cache";
    }
    EXPECT_EQ(reserved_peak(slept, setup, ~0ull), peak);
    EXPECT_EQ(view_policy(slept, setup).figures.reserved_peak_bytes, peak);
  }
}

TEST(SleepTest, IsExplained) {
  Snapshot snapshot;
  snapshot.traces.push_back(parse_csv(recording(), "run.csv"));
  const Explanation explanation = explain(snapshot, "run.csv");
  ASSERT_EQ(explanation.devices[0].sleeps.size(), 1u);
  const TagSleep& sleep = explanation.devices[0].sleeps[0];
  EXPECT_EQ(sleep.tag, "weights");
  EXPECT_EQ(sleep.times, 2u);
  EXPECT_EQ(sleep.most_bytes, kWeights);
  EXPECT_EQ(sleep.dropped_bytes, kWeights);
  EXPECT_EQ(sleep.asleep_us, 250);
  EXPECT_EQ(sleep.at_peak_bytes, 0u);
  EXPECT_EQ(sleep.at_end_bytes, kWeights);
  EXPECT_EQ(explanation.devices[0].live_peak.bytes, kWeights) << "what sleeps is not live";
  EXPECT_THAT(explanation_text(explanation),
              AllOf(HasSubstr("Memory that slept"),
                    HasSubstr("weights      2   40 MiB         40 MiB    250.0 us")));
  const auto json = nlohmann::json::parse(explanation_json(explanation));
  EXPECT_EQ(json["devices"][0]["sleeps"][0]["most_bytes"], kWeights);
}

}  // namespace
}  // namespace tenon
