// tenon advise as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/command.h"
#include "support/temporary.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::TemporaryFile;
using testing::shipped;
using testing::tenon_command;
using Json = nlohmann::json;

Json advice(const std::string& arguments) {
  const Outcome outcome = tenon_command("advise --json --effort 0.2 " + arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return Json::parse(outcome.out);
}

class AdviseOnShippedFiles : public ::testing::TestWithParam<const char*> {};

TEST_P(AdviseOnShippedFiles, IsNeverWorseAndComesBackFromReplaysToTheByte) {
  const std::string file = shipped(GetParam());
  const Json json = advice(file);
  for (const char* figure : {"reserved_peak_bytes", "min_capacity_bytes"})
    EXPECT_LE(json["best"][figure], json["recorded"][figure]);
  for (const char* settings : {"best", "recorded", "default", "expandable"}) {
    const std::string conf = json[settings]["conf"];
    const Outcome replay = tenon_command(
        "replay --json --passes 0 --find-capacity --policy caching --conf '" + conf + "' " + file);
    ASSERT_EQ(replay.status, 0) << replay.err;
    const Json again = Json::parse(replay.out)[0];
    for (const char* figure : {"reserved_peak_bytes", "min_capacity_bytes", "driver_stall_us"})
      EXPECT_EQ(json[settings][figure], again[figure]) << settings << ' ' << figure;
  }
}

INSTANTIATE_TEST_SUITE_P(All, AdviseOnShippedFiles,
                         ::testing::Values("traces/gnn_sampled.csv.zst", "snapshots/gpt2.pickle",
                                           "snapshots/gnn_sampled.pickle",
                                           "snapshots/multistream_prefetch.pickle"));

TEST(AdviseCommand, PrintsOneLineToPaste) {
  const std::string trace = shipped("traces/gnn_sampled.csv.zst");
  const Outcome text = tenon_command("advise --effort 0.2 " + trace);
  EXPECT_EQ(text.status, 0) << text.err;
  const std::size_t line = text.out.find("export PYTORCH_CUDA_ALLOC_CONF=");
  ASSERT_NE(line, std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("export", line + 1), std::string::npos);
  EXPECT_THAT(text.out, HasSubstr("assumed: the recording does not say"));
  EXPECT_THAT(tenon_command("advise --effort 0.2 --torch 2.9 " + trace).out,
              HasSubstr("export PYTORCH_ALLOC_CONF="));
}

TEST(AdviseCommand, LeavesOutWhatAVersionLacks) {
  const std::string trace = shipped("traces/gnn_sampled.csv.zst");
  const Json old = advice("--torch 2.0 " + trace);
  EXPECT_THAT(old["conf"].get<std::string>(), Not(HasSubstr("expandable")));
  EXPECT_FALSE(old.contains("expandable"));
  EXPECT_THAT(advice("--torch 2.6 " + trace)["conf"].get<std::string>(),
              Not(HasSubstr("large_segment")));
  for (const char* version : {"new", "2", "1.13", "2.x"})
    EXPECT_EQ(tenon_command("advise --torch " + std::string(version) + " " + trace).status, 2);
}

TEST(AdviseCommand, NeedsNothingWhereTheProgramFits) {
  const std::string snapshot = shipped("snapshots/gpt2.pickle");
  const Json json = advice("--capacity 80GiB " + snapshot);
  EXPECT_EQ(json["outcome"], "nothing needed");
  EXPECT_EQ(json["conf"], "");
  EXPECT_EQ(json["recorded_conf_known"], true);
  EXPECT_EQ(json["recorded_reserved_bytes"], json["reserved_peak_bytes"])
      << "the replay of a whole recording is PyTorch's own figure";
  EXPECT_THAT(tenon_command("advise --capacity 80GiB " + snapshot).out,
              Not(HasSubstr("export")));
}

TEST(AdviseCommand, FindsWhatFitsWhereTheRecordedSettingsDoNot) {
  const Json json = advice("--capacity 2500MiB --reserve-for-context 100MiB " +
                           shipped("traces/gnn_sampled.csv.zst"));
  EXPECT_EQ(json["outcome"], "set");
  EXPECT_EQ(json["recorded"]["fits"], false);
  EXPECT_EQ(json["best"]["fits"], true);
  EXPECT_EQ(json["capacity_bytes"], 2400ull << 20);
}

TEST(AdviseCommand, SaysByHowMuchTheProgramIsTooLarge) {
  const std::string arguments =
      "--reserve-for-context 1MiB --capacity 2049MiB " + shipped("traces/gnn_sampled.csv.zst");
  EXPECT_THAT(tenon_command("advise " + arguments).out, HasSubstr("nothing helps"));
  const Json json = advice(arguments);
  EXPECT_EQ(json["helps"], false);
  EXPECT_EQ(json["missing_bytes"], json["live_peak_bytes"].get<std::uint64_t>() - (2ull << 30));
}

TEST(AdviseCommand, CountsWhatTheCardHoldsBesidePyTorch) {
  const std::string snapshot = shipped("snapshots/gnn_sampled.pickle");
  EXPECT_EQ(advice(snapshot)["outside_bytes"], 512ull << 20);
  EXPECT_EQ(advice("--card rtx3090 " + snapshot)["outside_bytes"], 256ull << 20);
  EXPECT_EQ(advice("--card rtx3090 " + snapshot)["card_bytes"], 24ull << 30);
  EXPECT_EQ(advice("--reserve-for-context 2GiB " + snapshot)["outside_bytes"], 2ull << 30);
  EXPECT_EQ(advice("--reserve-for-context 0 " + snapshot)["outside_bytes"], 0);
  EXPECT_EQ(tenon_command("advise --card z80 " + snapshot).status, 2);
  const Outcome too_small = tenon_command("advise --capacity 100MiB " + snapshot);
  EXPECT_EQ(too_small.status, 2);
  EXPECT_THAT(too_small.err, HasSubstr("larger capacity, or less to reserve for the context"));
}

TEST(AdviseCommand, GivesSeveralRanksOneSettingAndNamesTheWorst) {
  const std::string files =
      shipped("traces/gnn_sampled.csv.zst") + " " + shipped("snapshots/gnn_sampled.pickle");
  const Json json = advice(files);
  ASSERT_EQ(json["best"]["programs"].size(), 2u);
  for (std::size_t i = 0; i < 2; ++i)
    for (const char* figure : {"reserved_peak_bytes", "min_capacity_bytes"})
      EXPECT_LE(json["best"]["programs"][i][figure], json["recorded"]["programs"][i][figure]);
  EXPECT_EQ(json["programs"].size(), 2u);
  EXPECT_EQ(json["outside_bytes"], (512ull + 544) << 20) << "the context and NCCL";
  EXPECT_THAT(tenon_command("advise --effort 0.2 " + files).out,
              HasSubstr("the recording that needs most: gnn_sampled"));
}

TEST(AdviseCommand, TakesARequestThatNoDeviceHasRoomFor) {
  const TemporaryFile huge(".csv",
                           "time_us,op,id,size,stream\n0,alloc,0,2199023255552,0\n"
                           "5,alloc,1,1000,0\n9,free_completed,0,0,0\n");
  const Json json = advice(huge.path());
  EXPECT_EQ(json["live_peak_bytes"], 2199023256552);
  const Outcome replay = tenon_command("replay --passes 0 " + huge.path());
  EXPECT_EQ(replay.status, 0) << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("out of memory"));
}

TEST(AdviseCommand, RefusesARecordingWithoutHistory) {
  const TemporaryFile still(
      ".pickle", testing::pickled::snapshot(
                     {testing::pickled::segment(
                         0, 0, 4096, {testing::pickled::block(0, 4096, "active_allocated")})},
                     {}));
  const Outcome outcome = tenon_command("advise " + still.path());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("device 0 has no history"));
}

TEST(AdviseCommand, NamesTheDevicesThatThereAre) {
  const Outcome outcome = tenon_command("advise --device 2 " + shipped("snapshots/gpt2.pickle"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("it has events of device 0"));
}

}  // namespace
}  // namespace tenon
