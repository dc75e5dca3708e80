// tenon explain, diff and convert as their users meet them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command.h"
#include "support/temporary.h"
#include "tenon/trace/load.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using testing::TemporaryFile;
using testing::Outcome;
using testing::tenon_command;

std::string snapshot_path(const std::string& name) {
  return TENON_SOURCE_DIR "/data/snapshots/" + name + ".pickle";
}

TEST(ExplainCommand, TellsInWordsAndInJson) {
  const Outcome words = tenon_command("explain " + snapshot_path("multistream_prefetch"));
  ASSERT_EQ(words.status, 0) << words.err;
  for (const char* part : {"Live peak: 1.42 GiB (1,524,805,619 bytes)", "_conv_forward",
                           "stranded on other streams", "segments held by one block", "Leaks"})
    EXPECT_THAT(words.out, HasSubstr(part));
  const Outcome json = tenon_command("explain --json " + snapshot_path("multistream_prefetch"));
  ASSERT_EQ(json.status, 0);
  const auto parsed = nlohmann::json::parse(json.out);
  std::ifstream file(TENON_SOURCE_DIR "/data/snapshots/multistream_prefetch.expect.json");
  const auto expect = nlohmann::json::parse(file);
  for (const auto& [key, value] : expect.items()) EXPECT_EQ(parsed.at(key), value) << key;
}

TEST(ExplainCommand, SaysThatTheCallThatFailedHasNoStack) {
  const TemporaryFile log(".csv", "Thread,Time,Action,Pointer,Size,Stream\n"
                                  "1,10:00:00:000100,allocate,0x7f00,1024,0\n"
                                  "1,10:00:00:000200,allocate failure,(nil),2048,0\n");
  const Outcome words = tenon_command("explain " + log.path());
  ASSERT_EQ(words.status, 0) << words.err;
  EXPECT_THAT(words.out, HasSubstr("2 KiB were asked for by a call that has no stack while 1 KiB"));
}

TEST(ExplainCommand, SaysInOneLineWhatIsWrongWithAFile) {
  using namespace std::string_literals;
  const TemporaryFile evil(".pickle", "\x80\x02" "cos\nsystem\nU\x0ctouch /evil1\x85R."s);
  const TemporaryFile text(".pickle", "this is no pickle");
  const TemporaryFile cut(".pickle", "\x80\x04}(\x8c\x08segm"s);
  for (const auto& [path, reason] :
       {std::pair(evil.path(), "GLOBAL would import"), std::pair(text.path(), "is no pickle"),
        std::pair(cut.path(), "truncated"), std::pair("/no/such.pickle"s, "No such file")}) {
    const Outcome outcome = tenon_command("explain " + path);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr(reason));
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1);
    EXPECT_THAT(outcome.out, IsEmpty());
  }
}

TEST(DiffCommand, FindsNothingBetweenARecordingAndItself) {
  const std::string path = snapshot_path("gnn_sampled");
  const Outcome same = tenon_command("diff " + path + " " + path);
  EXPECT_EQ(same.status, 0);
  EXPECT_THAT(same.out, HasSubstr("call site: no difference"));
  const Outcome json = tenon_command("diff --json " + path + " " + snapshot_path("gpt2"));
  EXPECT_EQ(nlohmann::json::parse(json.out).at(0).at("after_peak_bytes"), 7701353160);
}

TEST(ConvertCommand, WritesEveryFormat) {
  const TemporaryFile csv(".csv.zst");
  const TemporaryFile pickle(".pickle");
  const TemporaryFile json(".json");
  const std::string from = snapshot_path("gnn_sampled");
  for (const TemporaryFile* to : {&csv, &pickle, &json})
    ASSERT_EQ(tenon_command("convert " + from + " " + to->path()).status, 0);
  EXPECT_EQ(load_traces(csv.path()).at(0).live_peak_bytes(), 758940216u);
  EXPECT_EQ(load_traces(pickle.path()).at(0).live_peak_bytes(), 758940216u);
  EXPECT_GT(nlohmann::json::parse(json.contents()).at("traceEvents").size(), 400u);
  const Outcome refused = tenon_command("convert " + from + " trace.xml");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("the ending names no format"));
}

// Any program: here the command itself, whose replay allocates from simulated devices.
TEST(Recording, IsAskedForByTheEnvironment) {
  const TemporaryFile trace(".csv", "time_us,op,id,size,stream\n0,alloc,0,1000,0\n"
                                    "10,alloc,1,2000,0\n20,free_completed,0,1000,0\n");
  const TemporaryFile recording(".csv.zst");
  const Outcome replay = tenon_command("replay --passes 0 --policy system " + trace.path(),
                                       "TENON_RECORD=" + recording.path());
  ASSERT_EQ(replay.status, 0) << replay.err;
  const std::vector<Trace> traces = load_traces(recording.path());
  ASSERT_THAT(traces, SizeIs(1));
  EXPECT_EQ(traces[0].device_name, "sim:0");
  EXPECT_EQ(traces[0].live_peak_bytes(), 3000u);
  const Outcome again = tenon_command("replay --passes 0 --policy caching " + recording.path());
  EXPECT_EQ(again.status, 0) << again.err;
}

// Replays on devices that are too small fail: that is their answer.
TEST(Recording, OfReplaysKeepsNoFailureApart) {
  const testing::TemporaryFolder folder;
  const std::string trace = folder.path() + "/trace.csv";
  std::ofstream(trace) << "time_us,op,id,size,stream\n0,alloc,0,9000000,0\n";
  const Outcome replay =
      tenon_command("replay --passes 0 --policy system --capacity 2MiB " + trace,
                    "TENON_RECORD=" + folder.path() + "/run.csv");
  EXPECT_THAT(replay.out, HasSubstr("out of memory on sim:0"));
  EXPECT_THAT(replay.err, Not(HasSubstr("the recording is in")));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/run.csv"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/run.oom.csv"));
}

// The first begins before the second and ends after it.
TEST(Recording, OfTwoProcessesWithOneNameKeepsBoth) {
  const testing::TemporaryFolder folder;
  const int status = std::system(
      ("cd " + folder.path() + R"(; exec 2>errors; export TENON_RECORD=run.csv; mkfifo fifo
tenon() { )" TENON_COMMAND R"( replay --passes 0 --policy system "$@" >out; }
printf 'time_us,op,id,size,stream\n0,alloc,0,1000,0\n' >trace.csv
tenon fifo & first=$!
exec 3>fifo && tenon trace.csv && cp run.csv seconds.csv || exit 3
sed s/1000/3000/ trace.csv >&3; exec 3>&-; wait $first || exit 4
cmp run.csv seconds.csv && mv run.[0-9]*.csv firsts.csv)").c_str());
  std::ifstream in(folder.path() + "/errors");
  const std::string errors(std::istreambuf_iterator<char>(in), {});
  EXPECT_EQ(status, 0) << errors;
  EXPECT_THAT(errors, HasSubstr("tenon: TENON_RECORD: run.csv is by another process: this one's "
                                "recording is run."));
  EXPECT_EQ(load_traces(folder.path() + "/seconds.csv").at(0).live_peak_bytes(), 1000u);
  EXPECT_EQ(load_traces(folder.path() + "/firsts.csv").at(0).live_peak_bytes(), 3000u);
}

TEST(ExplainCommand, TellsOneDeviceWhereAskedTo) {
  const TemporaryFile two(".pickle",
                          testing::pickled::snapshot(
                              {}, {{testing::pickled::entry("alloc", 1, 512, 1)},
                                   {testing::pickled::entry("alloc", 1, 1024, 1),
                                    testing::pickled::entry("alloc", 4096, 1024, 2)}}));
  const Outcome one = tenon_command("explain --device 1 " + two.path());
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("Device 1 ("));
  EXPECT_THAT(one.out, Not(HasSubstr("Device 0 (")));
  EXPECT_EQ(tenon_command("explain --device 5 " + two.path()).status, 2);
}

TEST(ExplainCommand, WritesNothingOverTheRecording) {
  const TemporaryFile file(".csv", "time_us,op,id,size,stream\n0,alloc,0,512,0\n");
  const std::string before = file.contents();
  for (const std::string& command :
       {"report " + file.path() + " -o ", "view " + file.path() + " -o ",
        "convert " + file.path() + " ", "explain " + file.path() + " --json-file "}) {
    const Outcome outcome = tenon_command(command + file.path());
    EXPECT_EQ(outcome.status, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr("is a file that is read"));
    EXPECT_EQ(file.contents(), before) << command;
  }
}

}  // namespace
}  // namespace tenon
