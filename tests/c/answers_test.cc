// The answers of the C interface beside the command's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenon/tenon.h>

#include <cstdint>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "support/command.h"
#include "support/temporary.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

const std::string kTrace = TENON_SOURCE_DIR "/data/traces/gnn_sampled.csv.zst";

template <typename T>
T sized() {
  T made{};
  made.struct_bytes = sizeof(T);
  return made;
}

std::string taken(char* text) {
  std::string copy = text;
  tenon_string_free(text);
  return copy;
}

TEST(CAnswersTest, AnswersAreTheCommandsToTheByte) {
  tenon_traces traces = 0;
  ASSERT_EQ(tenon_traces_load(kTrace.c_str(), &traces), TENON_OK) << tenon_last_error();
  std::size_t count = 0;
  EXPECT_EQ(tenon_traces_count(traces, &count), TENON_OK);
  EXPECT_EQ(count, 1u);
  char* json = nullptr;
  ASSERT_EQ(tenon_explain(traces, &json), TENON_OK) << tenon_last_error();
  EXPECT_EQ(taken(json), testing::tenon_command("explain --json " + kTrace).out);
  auto options = sized<tenon_replay_options>();
  options.policies = "caching,stitched";
  options.lag_ns = 5'000'000;
  ASSERT_EQ(tenon_replay(traces, &options, &json), TENON_OK) << tenon_last_error();
  EXPECT_EQ(taken(json), testing::tenon_command("replay --json --passes 0 --policy "
                                                "caching,stitched " + kTrace).out);
  const testing::TemporaryFile ours("c.plan");
  const testing::TemporaryFile theirs("command.plan");
  ASSERT_EQ(tenon_plan(traces, 0, ours.path().c_str(), &json), TENON_OK) << tenon_last_error();
  tenon_string_free(json);
  testing::tenon_command("plan " + kTrace + " -o " + theirs.path());
  const auto contents = [](const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  };
  EXPECT_FALSE(contents(ours.path()).empty());
  EXPECT_EQ(contents(ours.path()), contents(theirs.path()));
  EXPECT_EQ(tenon_plan(traces, 1, nullptr, &json), TENON_INVALID_ARGUMENT);
  options.policies = "caching,none";
  EXPECT_EQ(tenon_replay(traces, &options, &json), TENON_INVALID_ARGUMENT);
  options.policies = "caching";
  options.passes = -1;
  EXPECT_EQ(tenon_replay(traces, &options, &json), TENON_INVALID_ARGUMENT);
  EXPECT_THAT(tenon_last_error(), HasSubstr("options.passes is -1: it may be 0 to 100000"));
  options.passes = 0;
  options.threads = 257;
  EXPECT_EQ(tenon_replay(traces, &options, &json), TENON_INVALID_ARGUMENT);
  EXPECT_THAT(tenon_last_error(), HasSubstr("options.threads is 257: it may be 0 to 256"));
  EXPECT_EQ(tenon_advise(traces, 0, 0, 0.0, 1, &json), TENON_INVALID_ARGUMENT);
  EXPECT_EQ(tenon_advise(traces, 0, 0, 1.0, -1, &json), TENON_INVALID_ARGUMENT);
  EXPECT_EQ(tenon_traces_destroy(traces), TENON_OK);
  EXPECT_EQ(tenon_traces_load("/no/such/file", &traces), TENON_PARSE_ERROR);
  EXPECT_THAT(tenon_last_error(), HasSubstr("/no/such/file"));
}

// Of a snapshot, which says what it ran with. How long the search took may differ.
TEST(CAnswersTest, AdviceIsTheCommandsToTheByte) {
  const std::string snapshot = TENON_SOURCE_DIR "/data/snapshots/multistream_prefetch.pickle";
  tenon_traces traces = 0;
  ASSERT_EQ(tenon_traces_load(snapshot.c_str(), &traces), TENON_OK) << tenon_last_error();
  char* json = nullptr;
  ASSERT_EQ(tenon_advise(traces, 0, 2ull << 30, 0.02, 0, &json), TENON_OK) << tenon_last_error();
  const std::regex seconds("\"seconds\": [0-9.e+-]+");
  const auto without = [&](const std::string& text) {
    return std::regex_replace(text, seconds, "");
  };
  const std::string command = "advise --json --effort 0.02 --capacity 2GiB " + snapshot;
  EXPECT_EQ(without(taken(json)), without(testing::tenon_command(command).out));
  ASSERT_EQ(tenon_traces_follow_torch(traces, "2.6"), TENON_OK) << tenon_last_error();
  ASSERT_EQ(tenon_advise(traces, 0, 2ull << 30, 0.02, 0, &json), TENON_OK) << tenon_last_error();
  EXPECT_EQ(without(taken(json)), without(testing::tenon_command(command + " --torch 2.6").out));
  EXPECT_EQ(tenon_traces_destroy(traces), TENON_OK);
}

TEST(CAnswersTest, AnswersFollowAPyTorchThatIsNamed) {
  const std::string maskrcnn = TENON_SOURCE_DIR "/data/traces/maskrcnn.csv.zst";
  tenon_traces traces = 0;
  ASSERT_EQ(tenon_traces_load(maskrcnn.c_str(), &traces), TENON_OK) << tenon_last_error();
  for (const char* wrong : {"nightly", "1.13", ""})
    EXPECT_EQ(tenon_traces_follow_torch(traces, wrong), TENON_INVALID_ARGUMENT) << wrong;
  auto options = sized<tenon_replay_options>();
  options.policies = "caching";
  options.lag_ns = 5'000'000;
  std::string before;
  for (const std::string version : {"2.11", "2.13"}) {
    ASSERT_EQ(tenon_traces_follow_torch(traces, version.c_str()), TENON_OK) << tenon_last_error();
    char* json = nullptr;
    ASSERT_EQ(tenon_replay(traces, &options, &json), TENON_OK) << tenon_last_error();
    const std::string ours = taken(json);
    EXPECT_EQ(ours, testing::tenon_command("replay --json --passes 0 --policy caching --torch " +
                                           version + " " + maskrcnn)
                        .out);
    EXPECT_NE(ours, before);
    before = ours;
  }
  EXPECT_EQ(tenon_traces_destroy(traces), TENON_OK);
  EXPECT_EQ(tenon_traces_follow_torch(traces, "2.13"), TENON_INVALID_HANDLE);
}

}  // namespace
}  // namespace tenon
