// tenon fleet over mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "distributed/launched.h"
#include "support/command.h"
#include "support/temporary.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::tenon_command;
namespace fs = std::filesystem;

class FleetRanksTest : public ::testing::Test {
 protected:
  FleetRanksTest() { fs::create_directory(path("in")); }

  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  void make(int files) const {
    for (int seed = 1; seed <= files; ++seed)
      tenon_command("synthesize " + std::to_string(seed) + " --steps 2 -o " +
                    path("in/" + std::to_string(seed) + ".csv"));
  }
  std::string arguments(const std::string& results) const {
    return "fleet " + path("in") + " --results " + path(results);
  }
  Outcome launch(int ranks, const std::string& arguments, const std::string& before = "") const {
    // Open MPI's launcher may not return where a rank was killed (docs/limits.md).
    return tenon_command(arguments, before + " timeout -s KILL 120 " TENON_LAUNCH " -n " +
                                        std::to_string(ranks));
  }
  std::size_t answers() const {
    std::error_code missing;
    std::size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(path("results"), missing))
      count += entry.is_regular_file() ? 1 : 0;
    return count;
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(FleetRanksTest, TheReportHasTheSameBytesForAnyNumberOfRanks) {
  make(10);
  const Outcome alone = tenon_command(arguments("alone"));
  ASSERT_EQ(alone.status, 0) << alone.err;
  for (const int ranks : {1, 2, 3, 8, 12}) {
    const Outcome run = launch(ranks, arguments(std::to_string(ranks)));
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out, alone.out) << ranks;
  }
  const Outcome jobs = launch(2, arguments("jobs") + " --jobs 3");
  EXPECT_EQ(jobs.out, alone.out) << jobs.err;
}

TEST_F(FleetRanksTest, AFileThatCannotBeReadChangesTheStatusAlone) {
  make(3);
  std::ofstream(path("in/empty.csv"));
  const Outcome run = launch(2, arguments("results"));
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.out, tenon_command(arguments("alone")).out);
  EXPECT_EQ(run.err.find("MPI_ABORT"), std::string::npos) << run.err;
}

// Replays on devices that are too small fail: that is their answer.
TEST_F(FleetRanksTest, ARecordingOfItsReplaysKeepsNoFailureApart) {
  make(2);
  fs::create_directory(path("kept"));
  const Outcome run = launch(2, arguments("results"), "TENON_RECORD=" + path("kept/run.%p.csv"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err.find("the recording is in"), std::string::npos) << run.err;
  for (const auto& entry : fs::directory_iterator(path("kept")))
    EXPECT_EQ(entry.path().string().find(".oom."), std::string::npos) << entry.path();
}

TEST_F(FleetRanksTest, RanksThatAreAskedOtherwiseAreToldOnce) {
  make(2);
  const Outcome run = tenon_command(
      arguments("results"), TENON_LAUNCH " -n 1 " TENON_COMMAND " " + arguments("results") +
                                " --torch 2.6 : -n 2");
  EXPECT_EQ(run.status, 2) << run.err;
  EXPECT_THAT(run.err, HasSubstr("ranks must run the same: the question of rank 1"));
  EXPECT_EQ(run.err.find("tenon: "), run.err.rfind("tenon: ")) << run.err;
  const Outcome nothing = launch(3, "fleet " + path("nothing"));
  EXPECT_THAT(nothing.err, HasSubstr("nothing: No such file or directory"));
  EXPECT_EQ(nothing.err.find("tenon: "), nothing.err.rfind("tenon: ")) << nothing.err;
}

TEST_F(FleetRanksTest, ARankThatIsKilledEndsTheOthersAndTheNextRunGoesOn) {
  make(24);
  const std::string longer = " --effort 0.3";
  const std::string whole = tenon_command(arguments("whole") + longer).out;
  const std::string mark = std::to_string(::getpid());
  for (const std::size_t victim : {0, 2}) {
    fs::remove_all(path("results"));
    std::thread launcher(
        [&] { launch(3, arguments("results") + longer, "TENON_TEST_RUN=" + mark); });
    std::vector<pid_t> ranks;
    for (int i = 0; i < 2000 && (ranks.size() < 3 || answers() < 3); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ranks = testing::ranks_of(mark);
    }
    std::sort(ranks.begin(), ranks.end());
    ASSERT_EQ(ranks.size(), 3u);
    const auto start = std::chrono::steady_clock::now();
    ::kill(ranks[victim], SIGKILL);
    launcher.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    EXPECT_TRUE(testing::ranks_of(mark).empty());
    const std::size_t kept = answers();
    EXPECT_GE(kept, 3u);
    EXPECT_LT(kept, 24u);
    EXPECT_EQ(launch(2, arguments("results") + longer).out, whole);
  }
}

TEST_F(FleetRanksTest, ARankThatIsStoppedEndsTheOthersAndIsNamed) {
  make(24);
  const std::string mark = std::to_string(::getpid());
  for (const std::size_t victim : {0, 1}) {
    fs::remove_all(path("results"));
    Outcome run;
    std::thread launcher([&] {
      run = launch(3, arguments("results") + " --effort 0.3",
                   "TENON_RANK_TIMEOUT=4 TENON_TEST_RUN=" + mark);
    });
    std::vector<pid_t> ranks;
    for (int i = 0; i < 2000 && (ranks.size() < 3 || answers() < 3); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ranks = testing::ranks_of(mark);
    }
    std::sort(ranks.begin(), ranks.end());
    if (ranks.size() == 3) ::kill(ranks[victim], SIGSTOP);
    launcher.join();
    ASSERT_EQ(ranks.size(), 3u);
    EXPECT_THAT(run.err, HasSubstr(victim == 0 ? "rank 0 hands out files and has not been heard of"
                                               : "reads files and has not been heard of"));
    EXPECT_EQ(run.err.find("tenon: "), run.err.rfind("tenon: ")) << run.err;
  }
}

// A FIFO without a reader holds up rank 0.
TEST_F(FleetRanksTest, ARankThatHangsWhileItWritesTheReportIsNamed) {
  make(3);
  ASSERT_EQ(::mkfifo(path("report").c_str(), 0600), 0);
  const Outcome run =
      launch(3, arguments("results") + " -o " + path("report"), "TENON_RANK_TIMEOUT=3");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("rank 0 reads files or writes the report and has not been heard "
                                 "of for 3 s"));
  EXPECT_EQ(run.err.find("tenon: "), run.err.rfind("tenon: ")) << run.err;
}

}  // namespace
}  // namespace tenon
