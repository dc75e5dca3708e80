// The command as its users meet it: what it prints, where, and its exit status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command.h"
#include "support/temporary.h"
#include "tenon/memory/policies.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using testing::TemporaryFile;
using testing::Outcome;
using testing::shipped;
using testing::tenon_command;

constexpr const char* kSmall =
    "time_us,op,id,size,stream\n"
    "0,alloc,0,1000000,0\n"
    "10,alloc,1,2000000,7\n"
    "20,free_requested,0,1000000,0\n"
    "20,free_completed,0,1000000,0\n"
    "40,alloc,2,500000,0\n";

TEST(Command, HelpExplainsItself) {
  const Outcome help = tenon_command("--help");
  EXPECT_EQ(help.status, 0);
  for (const char* word : {"replay", "policies", "info", "Examples"})
    EXPECT_THAT(help.out, HasSubstr(word));
  const Outcome replay = tenon_command("replay --help");
  EXPECT_EQ(replay.status, 0);
  for (const char* word : {"--find-capacity", "--lag", "--conf", "live peak", "fragmentation",
                           "moving stall", "Examples", "Exit status"})
    EXPECT_THAT(replay.out, HasSubstr(word));
  EXPECT_EQ(tenon_command("--version").status, 0);
}

TEST(Command, PoliciesGivesEachALine) {
  const Outcome list = tenon_command("policies");
  EXPECT_EQ(list.status, 0);
  for (const Policy& policy : policies()) {
    EXPECT_THAT("\n" + list.out, HasSubstr("\n" + policy.name + " "));
    EXPECT_THAT(list.out, HasSubstr(policy.summary));
  }
}

TEST(Command, InfoShowsDevicesLimitsAndBuild) {
  const Outcome info = tenon_command("info");
  EXPECT_EQ(info.status, 0);
  for (const char* word : {"devices", "sim:0", "limits", "build", "compiler"})
    EXPECT_THAT(info.out, HasSubstr(word));
}

TEST(Command, InfoSaysInOneLineWhyThereIsNoVulkan) {
  EXPECT_THAT(tenon_command("info").out, HasSubstr("vulkan"));
  const Outcome none = tenon_command("info", "TENON_VULKAN_LOADER=libno_vulkan.so");
  EXPECT_EQ(none.status, 0);
  EXPECT_THAT(none.out, HasSubstr("vulkan    none: no Vulkan loader: libno_vulkan.so"));
}

TEST(Command, ReplayPrintsATable) {
  const TemporaryFile trace(".csv", kSmall);
  const Outcome replay = tenon_command("replay --policy null,system " + trace.path());
  EXPECT_EQ(replay.status, 0);
  EXPECT_THAT(replay.err, IsEmpty());
  EXPECT_THAT(replay.out, HasSubstr("4 events in 40.0 us, live peak 2.86 MiB (3,000,000 bytes)"));
  EXPECT_THAT(replay.out, HasSubstr("\n  system "));
}

TEST(Command, EventsWithoutTimesHaveNoDuration) {
  const TemporaryFile trace(
      ".csv", "time_us,op,id,size,stream\n0,alloc,0,1000,0\n0,alloc,1,5,0\n");
  EXPECT_THAT(tenon_command("replay --policy null " + trace.path()).out,
              HasSubstr(": 2 events, live peak 1005 B"));
  EXPECT_THAT(tenon_command("explain " + trace.path()).out,
              AllOf(HasSubstr("Live peak: "), Not(HasSubstr(" 0 after the recording"))));
}

TEST(Command, ReplayPrintsJsonAndWritesIt) {
  const TemporaryFile trace(".csv", kSmall);
  const TemporaryFile json_file(".json");
  const Outcome replay =
      tenon_command("replay " + trace.path() + " --policy all --find-capacity --json --json-file " +
                    json_file.path());
  ASSERT_EQ(replay.status, 0) << replay.err;
  EXPECT_EQ(replay.out, json_file.contents());
  const auto json = nlohmann::json::parse(replay.out);
  ASSERT_EQ(json.size(), policies().size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    EXPECT_EQ(json[i]["policy"], policies()[i].name);
    EXPECT_EQ(json[i]["events"], 4);
    EXPECT_EQ(json[i]["live_peak_bytes"], 3'000'000);
    EXPECT_EQ(json[i]["trace_duration_us"], 40);
    EXPECT_EQ(json[i]["out_of_memory"], false);
  }
}

TEST(Command, ReplaysSnapshots) {
  const Outcome replay =
      tenon_command("replay --json --passes 0 --policy system " + shipped("snapshots/gpt2.pickle"));
  ASSERT_EQ(replay.status, 0) << replay.err;
  const auto json = nlohmann::json::parse(replay.out);
  EXPECT_EQ(json[0]["trace"], "gpt2");
  EXPECT_EQ(json[0]["live_peak_bytes"], 7701353160);
  EXPECT_TRUE(json[0]["ns_per_event"].is_null());
}

TEST(Command, RunningOutOfMemoryIsAResult) {
  const TemporaryFile trace(".csv", kSmall);
  const Outcome replay =
      tenon_command("replay " + trace.path() + " --policy system --json --capacity 2500kB");
  EXPECT_EQ(replay.status, 0);
  EXPECT_THAT(replay.err, HasSubstr("smaller than the live peak"));
  const auto json = nlohmann::json::parse(replay.out);
  EXPECT_EQ(json[0]["out_of_memory"], true);
  EXPECT_EQ(json[0]["out_of_memory_event"], 2);
  EXPECT_GE(json[0]["reserved_peak_bytes"], 3'000'000);
}

TEST(Command, LayoutAndStallsAreTheSameInEveryRun) {
  const auto figures = [] {
    auto json = nlohmann::json::parse(
        tenon_command("replay --json --passes 0 " + shipped("traces/gnn_sampled.csv.zst")).out);
    return json.dump();
  };
  EXPECT_EQ(figures(), figures());
}

TEST(Command, LagMovesStalls) {
  const TemporaryFile trace(".csv", kSmall);
  const auto stall = [&](const std::string& lag) {
    return nlohmann::json::parse(tenon_command("replay --json --passes 0 --policy system --lag " +
                                               lag + " " + trace.path())
                                     .out)[0]["driver_stall_us"]
        .get<double>();
  };
  EXPECT_NEAR(stall("20ms") - stall("0"), 20'000, 50);
}

TEST(Command, OneBadFileDoesNotLoseTheOthers) {
  const TemporaryFile good(".csv", kSmall);
  const TemporaryFile bad(".csv", std::string(kSmall) + "50,free_completed,0,1,0\n");
  const Outcome replay = tenon_command("replay --json --passes 0 --policy system " + bad.path() +
                                       " /no/such.csv " + good.path());
  EXPECT_EQ(replay.status, 2);
  EXPECT_THAT(replay.err, HasSubstr(bad.path() + ":7:19: free_completed of id 0, which is free"));
  EXPECT_THAT(replay.err, HasSubstr("tenon: /no/such.csv"));
  EXPECT_EQ(nlohmann::json::parse(replay.out).size(), 1u);
}

TEST(Command, SaysInOneLineWhatIsWrongWithItsArguments) {
  const TemporaryFile trace(".csv", kSmall);
  const auto expect_refused = [&](const std::string& arguments, const std::string& reason) {
    const Outcome outcome = tenon_command(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_THAT(outcome.err, StartsWith("tenon: ")) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(reason)) << arguments;
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << arguments;
    EXPECT_THAT(outcome.out, IsEmpty()) << arguments;
  };
  expect_refused("", "subcommand is required");
  expect_refused("explain", "see tenon explain --help");
  expect_refused("train text", "see tenon train text --help");
  expect_refused("fly", "\"fly\" is no subcommand");
  expect_refused("''", "is no subcommand");
  expect_refused("replay", "TRACE");
  expect_refused("replay --no-such-flag " + trace.path(), "--no-such-flag");
  expect_refused("replay --policy fast " + trace.path(), "the policies are null, system");
  expect_refused("replay --policy '' " + trace.path(), "--policy: the value is empty");
  expect_refused("replay --capacity lots " + trace.path(), "lots");
  expect_refused("replay --capacity 0 " + trace.path(), "at least one byte");
  for (const char* command : {"replay", "plan", "view", "advise"})
    expect_refused(std::string(command) + " --capacity 7.3 " + trace.path(),
                   "--capacity 7.3: the size has no unit");
  expect_refused("replay --page 8 " + trace.path(), "--page 8: the size has no unit");
  expect_refused("advise --reserve-for-context 600 " + trace.path(), "no unit");
  for (const char* command : {"plan", "view", "advise"})
    expect_refused(std::string(command) + " --device 3 " + trace.path(), "of device 3");
  expect_refused("replay --lag 5 " + trace.path(), "--lag 5: the duration has no unit");
  expect_refused("replay --lag -5ms " + trace.path(), "-5ms");
  expect_refused("replay --passes -1 " + trace.path(), "--passes");
  expect_refused("replay --policy caching --conf nonsense:3 " + trace.path(), "nonsense");
  expect_refused("replay --page 0 " + trace.path(), "--page 0");
  expect_refused("replay --policy stitched --page 3MiB " + trace.path(), "multiple of 2 MiB");
}

TEST(Command, RefusesPicklesThatWouldRunCode) {
  using namespace std::string_literals;
  const TemporaryFile evil(".pickle", "\x80\x02" "cos\nsystem\nU\x0ctouch /evil1\x85R."s);
  const Outcome replay = tenon_command("replay " + evil.path());
  EXPECT_EQ(replay.status, 2);
  EXPECT_THAT(replay.err, HasSubstr("GLOBAL would import"));
}

TEST(Command, WarnsAndGoesOnWhenTimeRunsBackwards) {
  const TemporaryFile trace(".csv",
                            "time_us,op,id,size,stream\n9,alloc,0,10,0\n3,alloc,1,10,0\n");
  const Outcome replay = tenon_command("replay --passes 0 --policy system " + trace.path());
  EXPECT_EQ(replay.status, 0);
  EXPECT_THAT(replay.err, HasSubstr("warning: " + trace.path() + ":3: time runs backwards"));
  EXPECT_THAT(replay.out, HasSubstr("system"));
}

TEST(Command, ReportsAJsonFileThatCannotBeWritten) {
  const TemporaryFile trace(".csv", kSmall);
  const Outcome replay = tenon_command("replay --passes 0 --policy system --json-file /no/dir/x " +
                                       trace.path());
  EXPECT_NE(replay.status, 0);
  EXPECT_THAT(replay.err, HasSubstr("/no/dir/x"));
  EXPECT_THAT(replay.out, IsEmpty());  // found before any work
  const Outcome full = tenon_command("replay --passes 0 --policy system --json-file /dev/full " +
                                     trace.path());
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.out, Not(IsEmpty()));  // the table is not lost
}

}  // namespace
}  // namespace tenon
