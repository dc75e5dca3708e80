// What the command writes arrives, or its exit status says so; what it writes to stays what it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/command.h"
#include "support/temporary.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using testing::contents;
using testing::Outcome;
using testing::TemporaryFile;
using testing::TemporaryFolder;

// A line for bash in which $T is the command; its own redirections count.
Outcome shell(const std::string& line) {
  const TemporaryFile out(".out");
  const TemporaryFile err(".err");
  const TemporaryFile script(".sh", "T=" TENON_COMMAND "\n" + line + "\n");
  const int raw = std::system(("bash " + script.path() + " >" + out.path() + " 2>" + err.path() +
                               " </dev/null")
                                  .c_str());
  return {WIFEXITED(raw) ? WEXITSTATUS(raw) : -1, out.contents(), err.contents()};
}

constexpr const char* kFourEvents =
    "time_us,op,id,size,stream\n"
    "0,alloc,0,1000000,0\n"
    "10,alloc,1,2000000,7\n"
    "20,free_completed,0,1000000,0\n"
    "40,alloc,2,500000,0\n";

class OutputTest : public ::testing::Test {
 protected:
  OutputTest() {
    std::ofstream(in("small.csv")) << kFourEvents;
    std::ofstream(in("before.csv")) << kFourEvents;
  }
  std::string in(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string small() const { return in("small.csv"); }

  const TemporaryFolder folder_;
};

TEST_F(OutputTest, AFullDiskFailsEveryCommandThatPrints) {
  for (const std::string& arguments :
       {std::string("--help"), std::string("replay --help"), std::string("--version"),
        std::string("policies"), std::string("info"), "replay --policy null " + small(),
        "replay --policy null --json " + small(), "explain " + small(),
        "explain --json " + small(), "plan " + small(), "plan --json " + small(),
        "diff " + small() + " " + in("before.csv"), "view --json " + small()}) {
    const Outcome run = shell("$T " + arguments + " >/dev/full");
    EXPECT_EQ(run.status, 1) << arguments;
    EXPECT_EQ(run.err, "tenon: standard output cannot be written: No space left on device\n")
        << arguments;
  }
}

TEST_F(OutputTest, AClosedStandardOutputIsAnError) {
  const Outcome run = shell("$T policies >&-");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("standard output cannot be written: Bad file descriptor"));
}

// Else the page would get the descriptor's number, and the printed path with it.
TEST_F(OutputTest, NothingPrintedGoesIntoAFileWhenStandardOutputIsClosed) {
  const Outcome run = shell("$T view " + small() + " -o " + in("page.html") + " >&-");
  EXPECT_EQ(run.status, 1);
  const std::string text = contents(in("page.html"));
  EXPECT_THAT(text, StartsWith("<!"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("page.html\n")));
}

TEST_F(OutputTest, AReaderThatGoesAwayEndsTheCommandQuietly) {
  for (const char* before : {"", "trap '' PIPE; "}) {  // killed by the signal, and with it ignored
    const Outcome run = shell(std::string(before) + "(sleep 0.2; $T replay --json --policy all " +
                              small() + "; echo status $? >&2) | true");
    EXPECT_THAT(run.err, HasSubstr("status 141"));
    EXPECT_THAT(run.err, ::testing::Not(HasSubstr("tenon:")));
  }
}

TEST_F(OutputTest, DevicesPipesAndDescriptorsAreWrittenTo) {
  const Outcome page = shell("$T view " + small() + " -o " + in("page.html"));
  ASSERT_EQ(page.status, 0) << page.err;
  const std::string wanted = contents(in("page.html"));
  EXPECT_EQ(shell("$T view " + small() + " -o /dev/null").status, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THAT(shell("$T view " + small() + " -o /dev/stdout").out, StartsWith(wanted));
  EXPECT_THAT(shell("$T view " + small() + " -o /dev/stdout | cat").out, StartsWith(wanted));
  // A pipe of the shell's: the file is complete when its reader has made the second one.
  const Outcome pipe = shell("$T view " + small() + " -o >(cat >" + in("copy") + "; touch " +
                             in("done") + "); while ! test -e " + in("done") +
                             "; do sleep 0.05; done");
  EXPECT_EQ(pipe.status, 0) << pipe.err;
  EXPECT_EQ(contents(in("copy")), wanted);
  const Outcome full = shell("$T view " + small() + " -o /dev/full");
  EXPECT_EQ(full.status, 1);
  EXPECT_EQ(full.err, "tenon: /dev/full: cannot be written: No space left on device\n");
}

// Written at the end, when the command has its answer.
TEST_F(OutputTest, ALostRecordingOfTheCommandFailsIt) {
  fs::create_symlink("/dev/full", in("full.csv"));
  const Outcome run =
      shell("TENON_RECORD=" + in("full.csv") + " $T replay --policy caching " + small());
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.out, HasSubstr("caching"));
  EXPECT_EQ(run.err, "tenon: TENON_RECORD: " + in("full.csv") +
                         ": cannot be written: No space left on device\n");
}

TEST_F(OutputTest, AFileKeepsItsModeAndALinkItsPlace) {
  std::ofstream(in("kept.json")) << "old";
  ::chmod(in("kept.json").c_str(), 0600);
  fs::create_symlink("kept.json", in("link.json"));
  const Outcome run =
      shell("$T replay --policy null " + small() + " --json-file " + in("link.json"));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(fs::is_symlink(in("link.json")));
  EXPECT_EQ(static_cast<unsigned>(fs::status(in("kept.json")).permissions()), 0600u);
  EXPECT_THAT(contents(in("kept.json")), StartsWith("["));
}

TEST_F(OutputTest, AFileSizeLimitLeavesTheEarlierFile) {
  std::ofstream(in("page.html")) << "old";
  const Outcome run = shell("ulimit -f 8; $T view " + small() + " -o " + in("page.html"));
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.err, "tenon: " + in("page.html") + ": cannot be written: File too large\n");
  EXPECT_EQ(contents(in("page.html")), "old");
}

// Names of files, devices, tags and threads, which a terminal would obey.
TEST_F(OutputTest, NoNameCommandsTheTerminal) {
  const std::string file = in("a\033[31m.csv");
  std::ofstream(file) << "time_us,op,id,size,stream,device,tag,thread\n"
                         "0,alloc,0,1000000,0,cuda\033[1m0,\033[2mtag,\033[3mthread\n"
                         "10,alloc,1,2000000,7,cuda\033[1m1,\033[2mtag,\033[3mthread\n"
                         "20,free_completed,0,,,cuda\033[1m0,\033[2mtag,\033[3mthread\n";
  fs::copy_file(file, in("c\033[32m.csv"));
  for (const std::string command : {"explain", "replay --policy null --passes 0", "plan",
                                    "advise --effort 1", "diff c*.csv", "report --no-advice"}) {
    const Outcome run = shell("cd " + folder_.path() + "; $T " + command + " a*.csv");
    EXPECT_EQ(run.status, 0) << command << run.err;
    EXPECT_THAT(run.out + run.err, ::testing::Not(HasSubstr("\033"))) << command;
  }
}

}  // namespace
}  // namespace tenon
