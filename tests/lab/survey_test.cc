#include "tenon/lab/survey.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lab/traces.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/report.h"
#include "tenon/lab/text_table.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using testing::random_trace;

std::vector<Workload> two_workloads() {
  std::vector<Workload> workloads;
  workloads.emplace_back(random_trace(1, 300));
  workloads.emplace_back(random_trace(2, 300, 2));
  return workloads;
}

SurveyOptions quick(std::vector<std::string> policies) {
  SurveyOptions options;
  options.policies = std::move(policies);
  options.passes = 0;
  return options;
}

TEST(Survey, GivesResultsByTraceThenPolicyOnAnyNumberOfThreads) {
  const std::vector<Workload> workloads = two_workloads();
  SurveyOptions options = quick({"system", "null", "caching"});
  options.find_capacity = true;
  options.threads = 1;
  const std::vector<SurveyResult> alone = survey(workloads, options);
  options.threads = 4;
  const std::vector<SurveyResult> together = survey(workloads, options);
  ASSERT_THAT(alone, SizeIs(6));
  EXPECT_EQ(alone[4].trace, "random2");
  EXPECT_EQ(alone[4].policy, "null");
  EXPECT_EQ(report_json(alone), report_json(together));
}

TEST(Survey, KeepsTheReservedPeakFreeOfTheCapacity) {
  const std::vector<Workload> workloads = two_workloads();
  SurveyOptions options = quick({"system"});
  const std::vector<SurveyResult> unlimited = survey(workloads, options);
  options.capacity_bytes = workloads[0].live_peak_bytes() / 2;
  const std::vector<SurveyResult> limited = survey(workloads, options);
  EXPECT_EQ(limited[0].reserved_peak_bytes, unlimited[0].reserved_peak_bytes);
  EXPECT_TRUE(limited[0].out_of_memory.has_value());
  EXPECT_EQ(unlimited[0].reserved_in_capacity_bytes, 0u);
  EXPECT_GT(limited[0].reserved_in_capacity_bytes, 0u);
  EXPECT_LE(limited[0].reserved_in_capacity_bytes, options.capacity_bytes);
  EXPECT_LT(limited[0].driver_calls, unlimited[0].driver_calls);
  EXPECT_FALSE(unlimited[0].out_of_memory.has_value());
}

TEST(Survey, TimesEveryPolicyAndTheFloor) {
  SurveyOptions options = quick({"system"});
  options.passes = 5;
  std::size_t steps = 0;
  const auto results =
      survey(two_workloads(), options,
             [&](std::size_t done, std::size_t all, std::string_view, std::string_view,
                 std::string_view) {
               EXPECT_EQ(done, steps++);
               EXPECT_EQ(all, 4u);
             });
  EXPECT_EQ(steps, 4u);
  for (const SurveyResult& result : results) {
    EXPECT_GT(result.ns_per_event.value_or(0), 0);
    EXPECT_GT(result.floor_ns.value_or(0), 0);
  }
}

TEST(Survey, RefusesUnknownPoliciesAndSettingsBeforeAnyWork) {
  EXPECT_THROW(survey({}, quick({"nonsense"})), InvalidArgument);
  SurveyOptions options = quick({"caching"});
  options.conf = "no_such_setting:1";
  EXPECT_THROW(survey({}, options), InvalidArgument);
}

TEST(Report, JsonHasTheAgreedKeys) {
  SurveyOptions options = quick({"system"});
  options.find_capacity = true;
  options.passes = 5;
  const auto json = nlohmann::json::parse(report_json(survey(two_workloads(), options)));
  ASSERT_EQ(json.size(), 2u);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json[0].items()) keys.push_back(key);
  EXPECT_THAT(keys, UnorderedElementsAre(
                        "trace", "policy", "events", "live_peak_bytes", "reserved_peak_bytes",
                        "min_capacity_bytes", "driver_calls", "driver_stall_us", "moving_stall_us",
                        "trace_duration_us", "ns_per_event", "out_of_memory", "layout_hash",
                        "fragmentation", "floor_ns_per_event"));
  EXPECT_EQ(json[0]["trace"], "random1");
  EXPECT_EQ(json[0]["out_of_memory"], false);
  EXPECT_THAT(json[0]["layout_hash"].get<std::string>(), SizeIs(16));
  EXPECT_TRUE(json[0]["min_capacity_bytes"].is_number_unsigned());
  EXPECT_TRUE(json[0]["ns_per_event"].is_number());
}

TEST(Report, JsonSaysNullForWhatWasNotAskedAndWhereMemoryRanOut) {
  SurveyOptions options = quick({"system"});
  options.capacity_bytes = kMiB;
  const auto json = nlohmann::json::parse(report_json(survey(two_workloads(), options)));
  EXPECT_TRUE(json[0]["min_capacity_bytes"].is_null());
  EXPECT_TRUE(json[0]["ns_per_event"].is_null());
  EXPECT_EQ(json[0]["out_of_memory"], true);
  EXPECT_EQ(json[0]["capacity_bytes"], kMiB);
  EXPECT_GT(json[0]["out_of_memory_event"], 0);
  EXPECT_THAT(json[0]["out_of_memory_message"].get<std::string>(), HasSubstr("out of memory"));
}

TEST(Report, JsonSurvivesNamesThatAreNotUtf8) {
  SurveyResult result;
  result.trace = "b\xff\xfe";
  EXPECT_TRUE(nlohmann::json::accept(report_json({result})));
}

TEST(Report, TableHasABlockForEachTraceAndMeans) {
  SurveyOptions options = quick({"null", "system"});
  const std::string table = report_table(survey(two_workloads(), options));
  EXPECT_THAT(table, HasSubstr("random1: 300 events"));
  EXPECT_THAT(table, HasSubstr("random2: 300 events"));
  EXPECT_THAT(table, HasSubstr("geometric means over 2 traces"));
  EXPECT_THAT(table, Not(HasSubstr("capacity")));
  options.capacity_bytes = kMiB;
  const std::string limited = report_table(survey(two_workloads(), options));
  EXPECT_THAT(limited, HasSubstr("in 1 MiB"));
  EXPECT_THAT(limited, HasSubstr("out at event"));
  EXPECT_THAT(limited, HasSubstr("fits: "));
  EXPECT_THAT(limited, HasSubstr("reserved and frag: without a limit"));
  EXPECT_THAT(limited, HasSubstr("smaller than the live peak"));
}

TEST(Report, AFailedPolicySpoilsItsOwnRowOnly) {
  SurveyResult good;
  good.trace = "t";
  good.policy = "good";
  SurveyResult bad = good;
  bad.policy = "bad";
  bad.error = "invariant 3";
  EXPECT_EQ(nlohmann::json::parse(report_json({good, bad})).size(), 1u);
  EXPECT_THAT(report_table({good, bad}), HasSubstr("bad failed: invariant 3"));
}

TEST(TextTable, LinesUpAndGroups) {
  TextTable table({"a", "bb"});
  table.add({"long", "1"});
  EXPECT_EQ(table.format(), "  a     bb\n  long   1\n");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(format_duration_ns(0), "0");
  EXPECT_EQ(format_duration_ns(1'234'567), "1.23 ms");
}

}  // namespace
}  // namespace tenon
