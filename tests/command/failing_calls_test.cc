// Every call of the system that a command makes to write fails once: afterwards the exit status is
// right, one line says why, and each file is the earlier one or the new one, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "support/command.h"
#include "support/temporary.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using ::testing::StartsWith;
using testing::Outcome;
using testing::tenon_command;
using testing::TemporaryFolder;

struct Failure {
  const char* call;
  int error;
};
constexpr Failure kFailures[] = {{"open", EMFILE}, {"write", ENOSPC}, {"fsync", EIO},
                                 {"rename", EXDEV}, {"linkat", EDQUOT}, {"mmap", ENOMEM},
                                 {"madvise", EINVAL}, {"mremap", ENOMEM}, {"thread", EAGAIN}};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class FailingCallsTest : public ::testing::Test {
 protected:
  FailingCallsTest() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_ = true;  // sanitizers want to be loaded first
#endif
    std::ofstream(in("small.csv")) << "time_us,op,id,size,stream\n"
                                      "0,alloc,0,1000000,0\n"
                                      "10,alloc,1,2000000,7\n"
                                      "20,free_completed,0,1000000,0\n";
  }
  void SetUp() override {
    if (skip_) GTEST_SKIP() << "not under a sanitizer";
  }

  std::string in(const std::string& name) const { return folder_.path() + "/" + name; }

  // Fails each call in turn until the command makes no more of them; `exists`: an earlier file is
  // there. Returns how many calls failed.
  int fail_each(const std::string& arguments, const std::string& output, bool exists,
                std::span<const Failure> failures = kFailures) {
    const Outcome whole = tenon_command(arguments);
    EXPECT_EQ(whole.status, 0) << whole.err;
    const std::string wanted = contents(output);
    EXPECT_FALSE(wanted.empty());
    const std::size_t files = count_files();
    int failed = 0;
    for (const Failure& failure : failures)
      for (int nth = 1;; ++nth) {
        fs::remove(output);
        if (exists) std::ofstream(output) << "the earlier file";
        const std::string mark = in("mark");
        const Outcome run = tenon_command(
            arguments, "LD_PRELOAD=" TENON_FAILING_CALLS_LIBRARY " TENON_FAIL_MARK=" + mark +
                           " TENON_FAIL_CALL=" + failure.call + ":" + std::to_string(nth) + ":" +
                           std::to_string(failure.error));
        if (!fs::remove(mark)) break;  // there were no more
        SCOPED_TRACE(arguments + ": " + failure.call + " number " + std::to_string(nth));
        ++failed;
        check(run, output, wanted, exists);
        EXPECT_LE(count_files(), files) << "a temporary file is left";
      }
    return failed;
  }

 private:
  std::size_t count_files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }
  static void check(const Outcome& run, const std::string& output, const std::string& wanted,
                    bool exists) {
    const std::string now = contents(output);
    if (run.status == 0) {  // there was another way
      EXPECT_EQ(now, wanted);
      return;
    }
    EXPECT_TRUE(run.status == 1 || run.status == 2) << run.status;
    EXPECT_THAT(run.err, StartsWith("tenon: "));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    // The folder may fail to reach the disk after the file has its name.
    EXPECT_TRUE(now == (exists ? "the earlier file" : "") || now == wanted);
  }

  const TemporaryFolder folder_;
  bool skip_ = false;
};

TEST_F(FailingCallsTest, EveryCommandThatWritesAFile) {
  struct Case {
    std::string arguments;
    std::string output;
  };
  const std::vector<Case> cases = {
      {"view " + in("small.csv") + " -o " + in("out.html"), in("out.html")},
      {"convert " + in("small.csv") + " " + in("out.pickle"), in("out.pickle")},
      {"convert " + in("small.csv") + " " + in("out.csv.zst"), in("out.csv.zst")},
      {"plan " + in("small.csv") + " -o " + in("out.plan"), in("out.plan")},
      {"explain " + in("small.csv") + " --json-file " + in("out.json"), in("out.json")}};
  for (const Case& one : cases)
    for (const bool exists : {false, true}) {
      const int failed = fail_each(one.arguments, one.output, exists);
      EXPECT_GE(failed, 5) << one.arguments;
      fs::remove(one.output);
    }
}

// Every 127th request of memory that a command makes. Not those that print JSON: nlohmann-json's
// destructor allocates, and a request that fails there ends the process.
TEST_F(FailingCallsTest, MemoryOfACommand) {
  const std::string snapshot = TENON_SOURCE_DIR "/data/snapshots/gnn_sampled.pickle";
  for (const std::string& arguments :
       {"explain " + snapshot, "convert " + snapshot + " " + in("out.csv.zst"),
        "replay " + in("small.csv") + " --policy all --passes 0", "plan " + in("small.csv")}) {
    const std::string wanted = tenon_command(arguments).out;
    int failed = 0;
    for (int nth = 1;; nth += 127, ++failed) {
      const std::string mark = in("mark");
      const Outcome run = tenon_command(
          arguments, "LD_PRELOAD=" TENON_FAILING_CALLS_LIBRARY " TENON_FAIL_MARK=" + mark +
                         " TENON_FAIL_CALL=malloc:" + std::to_string(nth) + ":12");
      if (!fs::remove(mark)) break;
      SCOPED_TRACE(arguments + ": request number " + std::to_string(nth));
      if (run.status == 0) {
        EXPECT_EQ(run.out, wanted) << "a result that says less, without a word why";
        continue;
      }
      EXPECT_TRUE(run.status == 1 || run.status == 2) << run.status;
      EXPECT_THAT(run.err, StartsWith("tenon: "));
      EXPECT_THAT(run.err, ::testing::HasSubstr("memory"));
      EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    }
    EXPECT_GE(failed, 10) << arguments;
  }
}

// Without open and mmap, which the BLAS and the threads of the run call, too.
TEST_F(FailingCallsTest, ATrainingRunThatIsSaved) {
  std::ofstream text(in("text"));
  for (int i = 0; i < 40; ++i) text << "the quick brown fox jumps over the lazy dog\n";
  text.close();
  const int failed = fail_each("train text " + in("text") +
                                   " --length 8 --layers 1 --width 8 --heads 1 --batch 64"
                                   " --epochs 1 --save " + in("run.safetensors"),
                               in("run.safetensors"), true, std::span(kFailures).subspan(1, 4));
  EXPECT_GE(failed, 5);
}

}  // namespace
}  // namespace tenon
