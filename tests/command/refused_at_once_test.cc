// Settings of the process and numbers that no command can work with: one line, before any work.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "support/command.h"
#include "support/temporary.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/read_limit.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::tenon_command;
using testing::TemporaryFile;

const std::string kGnn = TENON_SOURCE_DIR "/data/snapshots/gnn_sampled.pickle";

void expect_refused(const std::string& arguments, const std::string& message,
                    const std::string& before = "", int status = 2) {
  const Outcome run = tenon_command(arguments, before);
  EXPECT_EQ(run.status, status) << before << " " << arguments;
  EXPECT_EQ(run.out, "") << before << " " << arguments;
  EXPECT_THAT(run.err, HasSubstr(message));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
}

TEST(RefusedAtOnce, NumbersThatTheOptionCannotHold) {
  for (const std::string& command : {"explain " + kGnn, "advise " + kGnn})
    expect_refused(command + " --device 99999999999999999999",
                   "--device: 99999999999999999999 is no whole number");
  expect_refused("generate none --count -1", "--count: -1 is no whole number from 0");
  expect_refused("generate none --count 18446744073709551616", "is no whole number from 0");
  expect_refused("serve " + kGnn + " --port 65536", "no whole number from 0 to 65535");
  expect_refused("replay " + kGnn + " --passes 2.5", "2.5 is no whole number");
  expect_refused("vectors none --threads -5", "--threads: -5 is no whole number from 1 to 4096");
  expect_refused("plan none --effort nan", "nan is no number from 0.01 to 1000");
  expect_refused("fleet none --time-limit 1e10", "1e10 is no number of seconds from 0 to");
  expect_refused("fleet none --time-limit 0.5", "none: No such file or directory");
  expect_refused("advise none --capacity \"\"", "--capacity");
}

TEST(RefusedAtOnce, ValuesThatTheOptionDoesNotTake) {
  const std::string replay = "replay " + kGnn, advise = "advise " + kGnn;
  const TemporaryFile text(".txt", std::string(1000, 'a') + "b");
  const std::string train = "train text " + text.path();
  const std::pair<std::string, std::string> cases[] = {
      {advise + " --lag x", "--lag: \"x\" is no duration"},
      {"view " + kGnn + " --lag x", "--lag: \"x\" is no duration"},
      {replay + " --policy x", "--policy: \"x\" is no policy: the policies are null"},
      {"view " + kGnn + " --policy x", "--policy: \"x\" is no policy"},
      {replay + " --conf x", "--conf: \"x\" is no allocator setting; known are backend"},
      {"view " + kGnn + " --conf max_split_size_mb:x",
       "--conf: allocator setting max_split_size_mb: \"x\" is not accepted"},
      {replay + " --device x", "--device: \"x\" is no device: the kinds known are cpu"},
      {replay + " --page 3MiB", "--page 3MiB: the size of a page must be a multiple of 2 MiB"},
      {replay + " --passes x", "--passes: x is no whole number from 0 to 100000"},
      {replay + " --json-file /none/x.json", "/none/x.json: cannot be written"},
      {"synthesize 1 --steps 0", "--steps: 0 is no whole number from 1 to 100000"},
      {"synthesize 1 --streams 9", "--streams: 9 is no whole number from 1 to 8"},
      {"synthesize lora:x", "PROGRAM: \"x\" is no seed"},
      {"fleet none --jobs x", "--jobs: x is no whole number from 0 to 1024"},
      {"generate none --temperature x", "--temperature: x is no number from 0 to 100"},
      {"generate none --device x", "--device: \"x\" is no device"},
      {"vectors none --device x", "--device: \"x\" is no device"},
      {train + " --device x", "--device: \"x\" is no device"},
      {train + " --allocator x", "--allocator: \"x\" is no policy"},
      {train + " --heads 3", "--heads 3: the number must divide --width 128"},
      {train + " --learning-rate 1e999", "--learning-rate: 1e999 is no number from 0 on"},
      {train + " --precision x", "--precision: x is none of f32, bf16, f16"},
  };
  for (const auto& [arguments, message] : cases)
    expect_refused(arguments, message, "", message.starts_with("/none") ? 1 : 2);
}

TEST(RefusedAtOnce, SizesAndDurationsWithAllThatCanBeMeant) {
  const std::string replay = "replay " + kGnn, advise = "advise " + kGnn;
  const TemporaryFile text(".txt", std::string(1000, 'a') + "b");
  const std::string bytes_or_more = ": the size has no unit (B, KiB, MiB, GiB, TiB, or powers of "
                                    "10: kB, MB, GB, TB); write 123456B, 123456MiB or 123456GiB";
  const std::vector<std::string> sizes = {
      replay + " --capacity",
      replay + " --page",
      advise + " --capacity",
      advise + " --reserve-for-context",
      "report " + kGnn + " --capacity",
      "view " + kGnn + " --capacity",
      "serve " + kGnn + " --capacity",
      "plan " + kGnn + " --capacity",
      "synthesize 1 -o none/x.csv --live",
      "fleet none --memory",
      "train text " + text.path() + " --memory-limit",
  };
  for (const std::string& command : sizes)
    expect_refused(command + " 123456",
                   command.substr(command.rfind(' ') + 1) + " 123456" + bytes_or_more);
  const std::pair<std::string, std::string> cases[] = {
      {replay + " --capacity 7.5", "TB); write 7.5MiB or 7.5GiB"},
      {replay + " --capacity 24Gx", "\"gx\" is no unit; write a number and a unit (B, KiB, MiB,"},
      {replay + " --capacity -5GiB", "it does not start with a number; write a number and a unit"},
      {replay + " --lag 5", "--lag 5: the duration has no unit (ns, us, ms, s); write 5ms or 5s"},
      {advise + " --lag 5", "--lag 5: the duration has no unit"},
      {"view " + kGnn + " --lag 5", "--lag 5: the duration has no unit"},
      {replay + " --lag 5min", "\"min\" is no unit; write a number with ns, us, ms or s, from 0"},
      {replay + " --lag ms", "it does not start with a number; write a number with ns"},
      {replay + " --lag 4000000ms", "it is more than an hour; write a number with ns"},
      {replay + " --lag -5ms", "it is below 0; write a number with ns"},
      {replay + " --lag nan", "\"nan\" is no duration: it does not start with a number"},
      {"fleet none --time-limit 10m", "--time-limit: 10m is no number of seconds from 0 to"},
  };
  for (const auto& [arguments, message] : cases) expect_refused(arguments, message);
}

TEST(RefusedAtOnce, NamesThatAreNoFiles) {
  for (const char* arguments :
       {"replay {}", "explain {}", "advise {}", "plan {}", "validate {}", "view {}", "serve {}",
        "report {}", "fleet {}", "convert {} x.csv", "generate {}", "train text {}", "vectors {}",
        "synthesize 1 -o {}", "replay x --json-file {}", "train text x --save {}"}) {
    expect_refused(fmt::format(fmt::runtime(arguments), "''"), ": the value is empty; see tenon ");
    expect_refused(fmt::format(fmt::runtime(arguments), "-"),
                   ": - stands for no file: standard input is /dev/stdin");
  }
}

// One that has no size of its own and no end.
TEST(RefusedAtOnce, AnEndlessInput) {
  expect_refused("explain /proc/self/pagemap",
                 "gave more than 1 MiB: write it to a file first, or TENON_READ_LIMIT=1GiB",
                 "TENON_READ_LIMIT=1MiB");
  EXPECT_EQ(stream_limit_bytes(), kGiB);
}

TEST(RefusedAtOnce, AnArgumentTooLongToBeShownWhole) {
  const Outcome run = tenon_command("plan none --effort " + std::string(100'000, 'a'));
  EXPECT_EQ(run.status, 2);
  EXPECT_LT(run.err.size(), 10'000U);
  EXPECT_THAT(run.err, ::testing::StartsWith("tenon: --effort: aaa"));
  EXPECT_THAT(run.err, ::testing::EndsWith(
                           "a is no number from 0.01 to 1000; see tenon plan --help\n"));
}

TEST(RefusedAtOnce, ThreadsThatAreNoNumber) {
  const std::string vectors = TENON_SOURCE_DIR "/data/vectors";
  for (const char* bad : {"bad", "0", "-1", "2x", "4097", "99999999999999999999"})
    expect_refused("vectors " + vectors,
                   std::string("TENON_NUM_THREADS: \"") + bad + "\" is not allowed",
                   std::string("TENON_NUM_THREADS=") + bad);
  const TemporaryFile text(".txt", "the quick brown fox");
  expect_refused("train text " + text.path(), "TENON_NUM_THREADS", "TENON_NUM_THREADS=bad");
}

TEST(RefusedAtOnce, EnvironmentVariablesThatAreNotAllowed) {
  for (const std::string variable : {"TENON_FALLBACK", "TENON_NUM_THREADS", "TENON_RANK_TIMEOUT",
                                     "TENON_READ_LIMIT", "TENON_VULKAN_STAGE",
                                     "TENON_VULKAN_VALIDATION"}) {
    expect_refused("policies", variable + ": \"x\uFFFDy\" is not allowed: give ",
                   variable + "=\"$(printf 'x\\033y')\"");
    expect_refused("generate none", variable + ": \"-1\" is not allowed: give ",
                   variable + "=-1");
    EXPECT_EQ(tenon_command("policies", variable + "=").status, 0);
  }
  for (const std::string good : {"TENON_FALLBACK=error", "TENON_NUM_THREADS=4096",
                                 "TENON_RANK_TIMEOUT=0.5", "TENON_READ_LIMIT=8GiB",
                                 "TENON_VULKAN_VALIDATION=0"})
    EXPECT_EQ(tenon_command("policies", good).status, 0) << good;
}

TEST(RefusedAtOnce, ARecordingOfTheCommandThatCannotBegin) {
  for (const char* command : {"policies", "train text none"})
    for (const char* name : {"/none/x\033y.csv", "x\033y"})
      expect_refused(command, "TENON_RECORD: ",
                     fmt::format("TENON_RECORD=\"$(printf '{}')\"", name), 1);
  EXPECT_THAT(tenon_command("policies", "TENON_RECORD=\"$(printf '/none/x\\033y.csv')\"").err,
              HasSubstr("/none/x\uFFFDy.csv"));
}

// Lavapipe does not check its requests for memory.
TEST(RefusedAtOnce, DriversWithoutRoom) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes more addresses than that";
#endif
  for (int kibibytes = 26'000; kibibytes < 70'000; kibibytes += 1'000) {
    const Outcome run = tenon_command("info", fmt::format("ulimit -d {};", kibibytes));
    EXPECT_EQ(run.status, 0) << kibibytes << " KiB of data: " << run.err;
    EXPECT_THAT(run.out, HasSubstr("vulkan    none: "));
  }
  EXPECT_EQ(tenon_command("info", "ulimit -v 275000;").status, 0);
}

// A kilobyte that asks for 50 TiB: what the replays keep of its pages fits into 1 GiB of addresses.
TEST(RefusedAtOnce, MoreMemoryThanAnyDeviceHas) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes more addresses than that";
#endif
  std::string trace = "time_us,op,id,size,stream\n";
  for (int i = 0; i < 50; ++i)
    trace += fmt::format("{0},alloc,{0},{1},{2}\n", i, (std::uint64_t{1} << 40) - i, i % 3);
  const TemporaryFile file(".csv", trace);
  const TemporaryFile page(".html");
  const Outcome run = tenon_command("replay --policy all --passes 0 " + file.path(),
                                    "ulimit -v 1048576;");
  EXPECT_THAT(run.out, HasSubstr("limit 4 TiB"));
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(tenon_command("view --json " + file.path(), "ulimit -v 1048576;").status, 0);
  const Outcome larger =
      tenon_command("replay --policy caching --passes 0 --capacity 60TiB " + file.path());
  EXPECT_THAT(larger.out, ::testing::Not(HasSubstr("out of memory")));
}

// Each policy has a heap or a list for each stream, and one that looks at all of them at each event
// does not end within a minute of processor time.
TEST(RefusedAtOnce, ThousandsOfStreamsDoNotStopAReplay) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes more time than that";
#endif
  std::string trace = "time_us,op,id,size,stream\n";
  for (int i = 0; i < 8000; ++i) {
    trace += fmt::format("{0},alloc,{0},{1},{2}\n", i, 1000 + i, i % 4000);
    if (i >= 4000) trace += fmt::format("{},free_completed,{},,\n", i, i - 4000);
  }
  const TemporaryFile file(".csv", trace);
  const Outcome run = tenon_command("replay --policy all --passes 0 " + file.path(),
                                    "ulimit -t 60;");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("unified"));
}

// Files of a few blocks that seem to have a terabyte of zeros.
TEST(RefusedAtOnce, SparseFiles) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer has not that many addresses";
#endif
  constexpr std::uintmax_t kBytes = std::uintmax_t{1} << 40;
  const TemporaryFile text(".csv", "time_us,op,id,size,stream\n0,alloc,0,1000,0\n");
  const TemporaryFile pickle(".pickle", "\x80\x04]");
  const TemporaryFile zeros(".pkl");
  for (const TemporaryFile* file : {&text, &pickle, &zeros}) {
    std::error_code failed;
    std::filesystem::resize_file(file->path(), kBytes, failed);
    if (failed) GTEST_SKIP() << "this file system has no such files: " << failed.message();
  }
  expect_refused("explain " + text.path(), ":3:1: the line has more than 64 MiB");
  expect_refused("explain " + pickle.path(), "this reader takes plain data only");
  const std::string plan = pickle.path();  // is none
  expect_refused("replay --policy plan --plan " + plan + " " + kGnn, plan + ":1:1: ");
  expect_refused("validate " + text.path(), "unknown column");
  expect_refused("explain " + zeros.path(), "is no pickle of protocol 2 or later");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  expect_refused("explain " + text.path(), "has 1 TiB, for which this process has no addresses",
                 "ulimit -v 8000000;");
#endif
}

TEST(RefusedAtOnce, AStackThatIsTooSmall) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own start needs more stack";
#endif
  for (const std::string& arguments : {"explain " + kGnn, "replay " + kGnn})
    expect_refused(arguments, "the stack may take 64 KiB (ulimit -s): raise that limit to 256 KiB",
                   "ulimit -s 64;");
  for (const std::string& arguments :
       {"explain " + kGnn, "replay --policy all --passes 0 " + kGnn, "plan " + kGnn,
        std::string("vectors " TENON_SOURCE_DIR "/data/vectors")})
    EXPECT_EQ(tenon_command(arguments, "ulimit -s 256;").status, 0) << arguments;
}

}  // namespace
}  // namespace tenon
