// The answers of the C interface beside the command's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenon/tenon.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

tenon_traces loaded(const std::string& path) {
  tenon_traces traces = 0;
  EXPECT_EQ(tenon_traces_load(path.c_str(), &traces), TENON_OK) << tenon_last_error();
  return traces;
}

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// How long a search or a plan took may differ.
std::string without_seconds(const std::string& text) {
  return std::regex_replace(text, std::regex("\"seconds\": [0-9.e+-]+"), "");
}

std::string printed(const std::string& command) {
  const testing::Outcome done = testing::tenon_command(command);
  EXPECT_EQ(done.status, 0) << command << ": " << done.err;
  return without_seconds(done.out);
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

// Of a snapshot, which says what it ran with.
TEST(CAnswersTest, AdviceIsTheCommandsToTheByte) {
  const std::string snapshot = TENON_SOURCE_DIR "/data/snapshots/multistream_prefetch.pickle";
  tenon_traces traces = 0;
  ASSERT_EQ(tenon_traces_load(snapshot.c_str(), &traces), TENON_OK) << tenon_last_error();
  char* json = nullptr;
  ASSERT_EQ(tenon_advise(traces, 0, 2ull << 30, 0.02, 0, &json), TENON_OK) << tenon_last_error();
  const std::string command = "advise --json --effort 0.02 --capacity 2GiB " + snapshot;
  EXPECT_EQ(without_seconds(taken(json)), printed(command));
  ASSERT_EQ(tenon_traces_follow_torch(traces, "2.6"), TENON_OK) << tenon_last_error();
  ASSERT_EQ(tenon_advise(traces, 0, 2ull << 30, 0.02, 0, &json), TENON_OK) << tenon_last_error();
  EXPECT_EQ(without_seconds(taken(json)), printed(command + " --torch 2.6"));
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

const std::string kFailed = TENON_SOURCE_DIR "/data/failed/gpt2.pickle";
const std::string kSnapshot = TENON_SOURCE_DIR "/data/snapshots/multistream_prefetch.pickle";

TEST(CAnswersTest, ReplaysHaveTheCommandsOptions) {
  const tenon_traces traces = loaded(kFailed);
  const testing::TemporaryFile plan("failed.plan");
  char* json = nullptr;
  tenon_plan_options how = sized<tenon_plan_options>();
  how.capacity_bytes = 2ull << 30;
  how.whole = how.own_memory = 1;
  ASSERT_EQ(tenon_plan_with(traces, 0, &how, plan.path().c_str(), &json), TENON_OK)
      << tenon_last_error();
  EXPECT_EQ(without_seconds(taken(json)),
            printed("plan --json --whole --own-memory --capacity 2GiB " + kFailed));
  const auto replayed = [&](void (*choose)(tenon_replay_options&), const char* plan_file) {
    auto options = sized<tenon_replay_options>();
    options.lag_ns = 5'000'000;
    options.plan_file = plan_file;
    choose(options);
    EXPECT_EQ(tenon_replay(traces, &options, &json), TENON_OK) << tenon_last_error();
    return taken(json);
  };
  const std::string command = "replay --json --passes 0 " + kFailed;
  EXPECT_EQ(replayed([](tenon_replay_options& o) { o.pytorch_settings = o.serve_failed = 1; },
                     nullptr),
            printed(command + " --serve-failed"));
  EXPECT_EQ(replayed([](tenon_replay_options&) {}, plan.path().c_str()),
            printed(command + " --plan " + plan.path()));
  EXPECT_EQ(replayed([](tenon_replay_options& o) { o.page_bytes = 8 << 20; }, nullptr),
            printed(command + " --page 8MiB"));
  auto both = sized<tenon_replay_options>();
  both.policies = "caching";
  both.pytorch_settings = 1;
  EXPECT_EQ(tenon_replay(traces, &both, &json), TENON_INVALID_ARGUMENT);
  EXPECT_THAT(tenon_last_error(), HasSubstr("set options.policies to null"));
  EXPECT_EQ(tenon_traces_destroy(traces), TENON_OK);
}

TEST(CAnswersTest, AdviceOnSeveralFilesIsTheCommands) {
  const tenon_traces files[] = {loaded(kFailed), loaded(kSnapshot)};
  auto options = sized<tenon_advise_options>();
  const std::uint64_t reserve = 1 << 20;
  options.effort = 0.02;
  options.lag_ns = 20'000'000;
  options.card = "rtx3090";
  options.reserve_for_context_bytes = &reserve;
  char* json = nullptr;
  ASSERT_EQ(tenon_advise_files(files, 2, &options, &json), TENON_OK) << tenon_last_error();
  EXPECT_EQ(without_seconds(taken(json)),
            printed("advise --json --effort 0.02 --lag 20ms --card rtx3090 "
                    "--reserve-for-context 1MiB " + kFailed + " " + kSnapshot));
  options.card = "abacus";
  EXPECT_EQ(tenon_advise_files(files, 2, &options, &json), TENON_INVALID_ARGUMENT);
  EXPECT_EQ(tenon_advise_files(files, 0, nullptr, &json), TENON_INVALID_ARGUMENT);
  EXPECT_THAT(tenon_last_error(), HasSubstr("count is 0"));
  for (const tenon_traces file : files) EXPECT_EQ(tenon_traces_destroy(file), TENON_OK);
}

TEST(CAnswersTest, ReportsAndDifferencesAreTheCommands) {
  const tenon_traces files[] = {loaded(kFailed), loaded(kSnapshot)};
  auto options = sized<tenon_report_options>();
  options.capacity_bytes = 4ull << 30;
  char* html = nullptr;
  char* json = nullptr;
  ASSERT_EQ(tenon_report(files, 2, &options, &html, &json), TENON_OK) << tenon_last_error();
  const testing::TemporaryFile page("ranks.html");
  EXPECT_EQ(taken(json), printed("report --json --capacity 4GiB -o " + page.path() + " " +
                                 kFailed + " " + kSnapshot));
  EXPECT_EQ(taken(html), contents(page.path()));
  options.no_advice = options.no_replay = 1;
  ASSERT_EQ(tenon_report(files, 1, &options, &html, nullptr), TENON_OK) << tenon_last_error();
  printed("report --no-advice --no-replay --capacity 4GiB -o " + page.path() + " " + kFailed);
  EXPECT_EQ(taken(html), contents(page.path()));

  ASSERT_EQ(tenon_explain_without_replay(files[0], &json), TENON_OK) << tenon_last_error();
  EXPECT_EQ(taken(json), printed("explain --json --no-replay " + kFailed));
  for (const int ignore_lines : {0, 1}) {
    ASSERT_EQ(tenon_diff(files[0], files[1], ignore_lines, &json), TENON_OK) << tenon_last_error();
    EXPECT_EQ(taken(json), printed(std::string("diff --json ") +
                                   (ignore_lines != 0 ? "--ignore-lines " : "") + kFailed + " " +
                                   kSnapshot));
  }
  EXPECT_EQ(tenon_diff(files[0], 0, 0, &json), TENON_INVALID_HANDLE);
  for (const tenon_traces file : files) EXPECT_EQ(tenon_traces_destroy(file), TENON_OK);
}

// Devices 3 and 5: their numbers are not their places in the file.
TEST(CAnswersTest, AnswersOfOneDeviceAreTheCommands) {
  const testing::TemporaryFile file("two.csv");
  {
    std::ofstream out(file.path());
    out << "time_us,op,id,size,stream,device\n0,alloc,1,4096,0,3\n1,alloc,1,8192,0,5\n"
           "2,free_requested,1,,,3\n2,free_completed,1,,,3\n3,alloc,2,100,7,5\n";
  }
  tenon_traces traces = loaded(file.path());
  EXPECT_EQ(tenon_traces_keep(traces, 2), TENON_INVALID_ARGUMENT);
  ASSERT_EQ(tenon_traces_keep(traces, 1), TENON_OK) << tenon_last_error();
  auto summary = sized<tenon_trace_summary>();
  ASSERT_EQ(tenon_trace_summarize(traces, 0, &summary), TENON_OK) << tenon_last_error();
  EXPECT_EQ(summary.device, 5u);
  EXPECT_EQ(summary.streams, 2u);
  EXPECT_EQ(summary.events, 2u);
  EXPECT_EQ(summary.live_peak_bytes, 8292u);
  EXPECT_EQ(summary.traced_peak_bytes, 8292u);
  char* json = nullptr;
  ASSERT_EQ(tenon_explain(traces, &json), TENON_OK) << tenon_last_error();
  EXPECT_EQ(taken(json), printed("explain --json --device 5 " + file.path()));
  auto options = sized<tenon_replay_options>();
  options.policies = "all";
  options.lag_ns = 5'000'000;
  ASSERT_EQ(tenon_replay(traces, &options, &json), TENON_OK) << tenon_last_error();
  EXPECT_EQ(taken(json), printed("replay --json --passes 0 --all --device 5 " + file.path()));
  EXPECT_EQ(tenon_traces_destroy(traces), TENON_OK);

  traces = loaded(file.path());
  const testing::TemporaryFile ours("ours.csv");
  const testing::TemporaryFile theirs("theirs.csv");
  ASSERT_EQ(tenon_traces_save(traces, ours.path().c_str()), TENON_OK) << tenon_last_error();
  printed("convert " + file.path() + " " + theirs.path());
  EXPECT_FALSE(contents(ours.path()).empty());
  EXPECT_EQ(contents(ours.path()), contents(theirs.path()));
  EXPECT_EQ(tenon_traces_save(traces, "no.ending"), TENON_INVALID_ARGUMENT);
  EXPECT_EQ(tenon_traces_destroy(traces), TENON_OK);
}

// The structures of the header before tenon_replay_options and tenon_trace_summary grew.
struct EarlierReplayOptions {
  std::size_t struct_bytes;
  const char *policies, *conf;
  std::uint64_t capacity_bytes, lag_ns;
  int find_capacity, passes, threads;
};
struct EarlierTraceSummary {
  std::size_t struct_bytes;
  std::uint64_t events, live_peak_bytes, duration_us;
};

// What stands behind a caller's shorter structure is neither read nor written.
TEST(CAnswersTest, ProgramsOfAnEarlierHeaderGoOn) {
  const tenon_traces traces = loaded(kTrace);
  alignas(16) std::array<unsigned char, 256> memory;
  memory.fill(0xEE);
  EarlierTraceSummary summary = {sizeof(summary), 0, 0, 0};
  std::memcpy(memory.data(), &summary, sizeof(summary));
  ASSERT_EQ(tenon_trace_summarize(traces, 0,
                                  reinterpret_cast<tenon_trace_summary*>(memory.data())),
            TENON_OK) << tenon_last_error();
  std::memcpy(&summary, memory.data(), sizeof(summary));
  EXPECT_EQ(summary.struct_bytes, sizeof(summary));
  EXPECT_GT(summary.live_peak_bytes, 0u);
  EXPECT_TRUE(std::all_of(memory.begin() + sizeof(summary), memory.end(),
                          [](unsigned char byte) { return byte == 0xEE; }));

  memory.fill(0xEE);  // the padding after `threads`, too
  EarlierReplayOptions options = {sizeof(options), "caching", nullptr, 0, 5'000'000, 0, 0, 0};
  std::memcpy(memory.data(), &options, offsetof(EarlierReplayOptions, threads) + sizeof(int));
  char* json = nullptr;
  ASSERT_EQ(tenon_replay(traces, reinterpret_cast<tenon_replay_options*>(memory.data()), &json),
            TENON_OK) << tenon_last_error();
  EXPECT_EQ(taken(json), printed("replay --json --passes 0 --policy caching " + kTrace));
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{8}, sizeof(options) - 8,
                                  sizeof(options) + 8, sizeof(tenon_replay_options) + 8}) {
    auto whole = sized<tenon_replay_options>();
    whole.struct_bytes = wrong;
    EXPECT_EQ(tenon_replay(traces, &whole, &json), TENON_INVALID_ARGUMENT) << wrong;
  }
  EXPECT_EQ(tenon_traces_destroy(traces), TENON_OK);
}

}  // namespace
}  // namespace tenon
