// tenon plan, validate and advise, as their users meet them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command.h"
#include "support/temporary.h"

namespace tenon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFile;
using testing::Outcome;
using testing::shipped;
using testing::tenon_command;

TEST(PlanCommand, SolvesAProblemAtItsCapacityAndValidatesIt) {
  const TemporaryFile solution(".csv");
  const std::string problem = shipped("plans/F.1048576.csv");
  const Outcome plan = tenon_command("plan " + problem + " --capacity 1048576 --json -o " +
                                     solution.path());
  EXPECT_EQ(plan.status, 0) << plan.err;
  const auto json = nlohmann::json::parse(plan.out);
  EXPECT_EQ(json["solved"], true);
  EXPECT_EQ(json["peak_bytes"], 1048576);
  EXPECT_EQ(json["lower_bound_bytes"], 1048576);
  EXPECT_GE(json["seconds"].get<double>(), 0);
  const std::string check = "validate " + solution.path() + " ";
  EXPECT_EQ(tenon_command(check + problem + " --capacity 1048576").status, 0);
  EXPECT_EQ(tenon_command(check + problem + " --capacity 1048575").status, 1);
  EXPECT_EQ(tenon_command(check + shipped("plans/A.1048576.csv")).status, 1);
}

TEST(PlanCommand, GroupsTheDigitsOfItsFigures) {
  const TemporaryFile problem(".csv", "id,lower,upper,size\na,0,2,10000\nb,1,3,2000\n");
  EXPECT_THAT(tenon_command("plan " + problem.path()).out,
              AllOf(HasSubstr("peak         11.72 KiB (12,000 bytes)"),
                    HasSubstr("lower bound  11.72 KiB (12,000 bytes)")));
}

TEST(PlanCommand, SaysWhenACapacityIsImpossible) {
  const TemporaryFile problem(".csv", "id,lower,upper,size\na,0,2,10\nb,1,3,10\n");
  const Outcome plan = tenon_command("plan " + problem.path() + " --capacity 19 --json");
  EXPECT_EQ(plan.status, 0);
  const auto json = nlohmann::json::parse(plan.out);
  EXPECT_EQ(json["solved"], false);
  EXPECT_EQ(json["proved_impossible"], true);
  EXPECT_EQ(json["lower_bound_bytes"], 20);
}

TEST(PlanCommand, PlansATraceThatReplayServesAndValidateAccepts) {
  const TemporaryFile file(".plan.zst");
  const std::string trace = shipped("traces/gpt2.csv.zst");
  const Outcome plan = tenon_command("plan " + trace + " --json -o " + file.path());
  ASSERT_EQ(plan.status, 0) << plan.err;
  const auto json = nlohmann::json::parse(plan.out);
  EXPECT_EQ(json["solved"], true);
  EXPECT_EQ(json["loop"], true);
  EXPECT_EQ(json["iterations"]["allocations_each"], 1433);
  EXPECT_LE(json["peak_bytes"].get<double>(), 1.005 * json["lower_bound_bytes"].get<double>());
  const Outcome valid = tenon_command("validate " + file.path() + " " + trace);
  EXPECT_EQ(valid.status, 0) << valid.out;
  const Outcome other =
      tenon_command("validate " + file.path() + " " + shipped("traces/gnn_sampled.csv.zst"));
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.out, HasSubstr("not valid"));
  const Outcome replay = tenon_command("replay " + trace +
                                       " --policy plan --passes 0 --json --plan " + file.path());
  ASSERT_EQ(replay.status, 0) << replay.err;
  EXPECT_EQ(nlohmann::json::parse(replay.out)[0]["reserved_peak_bytes"], json["peak_bytes"]);
}

TEST(PlanCommand, RefusesBadInputWithOneLine) {
  const TemporaryFile junk(".csv", "id,lower,upper,size\na,0,0,1\n");
  const Outcome bad = tenon_command("plan " + junk.path());
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, HasSubstr(":2:"));
  EXPECT_EQ(tenon_command("plan no_such_file.csv").status, 2);
  EXPECT_EQ(tenon_command("plan " + shipped("traces/gpt2.csv.zst") + " --capacity nonsense").status,
            2);
  EXPECT_EQ(tenon_command("validate " + junk.path()).status, 2);
  const TemporaryFile plan(".plan", "tenon-plan 1\nunit 512\n");
  EXPECT_EQ(tenon_command("validate " + plan.path() + " " + shipped("traces/gpt2.csv.zst")).status,
            2);
}

}  // namespace
}  // namespace tenon
