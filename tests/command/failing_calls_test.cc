// Every call of the system that a command makes to write fails once: afterwards the exit status is
// right, one line says why, and each file is the earlier one or the new one, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "support/command.h"
#include "support/temporary.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using ::testing::StartsWith;
using testing::contents;
using testing::Outcome;
using testing::tenon_command;
using testing::TemporaryFolder;

struct Failure {
  const char* call;
  int error;
};
constexpr Failure kFailures[] = {
    {"open", EMFILE}, {"write", ENOSPC}, {"fsync", EIO}, {"rename", EXDEV}, {"linkat", EDQUOT},
    {"mmap", ENOMEM}, {"munmap", ENOMEM}, {"mprotect", ENOMEM}, {"madvise", EINVAL},
    {"memfd_create", EMFILE}, {"thread", EAGAIN}, {"fstat", EIO}, {"read", EIO},
    {"opendir", EMFILE}, {"readdir", EIO}, {"realpath", EACCES}, {"mkdir", EACCES},
    {"flock", ENOLCK}, {"fchmod", EIO}, {"pipe2", EMFILE}, {"fork", EAGAIN}, {"waitpid", ECHILD},
    {"signalfd", EMFILE}, {"chdir", EACCES}, {"execv", EACCES}};

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

  // A file "mark" is there afterwards if the call was made.
  Outcome failing(const std::string& arguments, const Failure& failure, int nth) const {
    return tenon_command(arguments, "LD_PRELOAD=" TENON_FAILING_CALLS_LIBRARY " TENON_FAIL_MARK=" +
                                        in("mark") + " TENON_FAIL_CALL=" + failure.call + ":" +
                                        std::to_string(nth) + ":" + std::to_string(failure.error));
  }
  void write_text() const {
    std::ofstream text(in("text"));
    for (int i = 0; i < 40; ++i) text << "the quick brown fox jumps over the lazy dog\n";
  }

  // Fails each call in turn until the command makes no more of them; `exists`: an earlier file is
  // there. Returns how many calls failed.
  int fail_each(const std::string& arguments, const std::string& output, bool exists) {
    const Outcome whole = tenon_command(arguments);
    EXPECT_EQ(whole.status, 0) << whole.err;
    const std::string wanted = contents(output);
    EXPECT_FALSE(wanted.empty());
    const std::ptrdiff_t files = count_files(folder_.path());
    int failed = 0;
    for (const Failure& failure : kFailures)
      for (int nth = 1;; ++nth) {
        fs::remove(output);
        if (exists) std::ofstream(output) << "the earlier file";
        const Outcome run = failing(arguments, failure, nth);
        if (!fs::remove(in("mark"))) break;  // there were no more
        SCOPED_TRACE(arguments + ": " + failure.call + " number " + std::to_string(nth));
        ++failed;
        check(run, output, wanted, exists);
        EXPECT_LE(count_files(folder_.path()), files) << "a temporary file is left";
      }
    return failed;
  }

  static std::ptrdiff_t count_files(const std::string& folder) {
    return std::distance(fs::recursive_directory_iterator(folder),
                         fs::recursive_directory_iterator());
  }

  static void expect_answer_or_line(const Outcome& run, const std::string& wanted) {
    if (run.status == 0) {
      // advise and plan say how long it took, and OpenBLAS that it could not unmap.
      const auto comparable = [](const std::string& text) {
        const std::regex differs("(tried|planned) in [0-9.]+ m?s|error code=12,\trelease->.*\n");
        return std::regex_replace(text, differs, "");
      };
      EXPECT_EQ(comparable(run.out), comparable(wanted))
          << "a result that says less, without a reason";
      return;
    }
    EXPECT_TRUE(run.status == 1 || run.status == 2) << run.status;
    EXPECT_THAT(run.err, StartsWith("tenon: "));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }

 private:
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
      {"report " + in("small.csv") + " --no-advice -o " + in("out.html"), in("out.html")},
      {"synthesize 7 --live 512MiB --steps 1 -o " + in("out.csv"), in("out.csv")},
      {"replay " + in("small.csv") + " --policy null --passes 0 --json-file " + in("out.json"),
       in("out.json")},
      {"explain " + in("small.csv") + " --json-file " + in("out.json"), in("out.json")}};
  for (const Case& one : cases)
    for (const bool exists : {false, true}) {
      const int failed = fail_each(one.arguments, one.output, exists);
      EXPECT_GE(failed, 5) << one.arguments;
      fs::remove(one.output);
    }
}

// Those that print: the whole answer, or one line that says why there is none.
TEST_F(FailingCallsTest, EveryCommandThatReads) {
  const std::string small = in("small.csv");
  ASSERT_EQ(tenon_command("plan " + small + " -o " + in("a.plan")).status, 0);
  const std::string train = "train text " + in("text") + " --length 8 --layers 1 --width 8"
                            " --heads 1 --batch 64 --epochs 1 --save " + in("run.safetensors");
  write_text();
  ASSERT_EQ(tenon_command(train).status, 0);
  const std::vector<std::string> commands = {
      "explain " + small, "replay --policy null --json --passes 0 " + small, "plan " + small,
      "validate " + in("a.plan") + " " + small, "diff " + small + " " + small,
      "view --json " + small, "advise --effort 1 " + small, "explain - <" + small,
      "explain /dev/stdin <" + small, "generate " + in("run.safetensors") + " --count 9",
      "policies", "synthesize 7 --live 512MiB --steps 1"};
  int failed = 0;
  for (const std::string& arguments : commands) {
    const Outcome whole = tenon_command(arguments);
    for (const Failure& failure : kFailures)
      for (int nth = 1;; ++nth, ++failed) {
        const Outcome run = failing(arguments, failure, nth);
        if (!fs::remove(in("mark"))) break;
        SCOPED_TRACE(arguments + ": " + failure.call + " number " + std::to_string(nth));
        expect_answer_or_line(run, whole.out);
      }
  }
  EXPECT_GE(failed, 30);
}

// A file that could not be read, or a process that could not be made, is tried again by the next
// run, which finds the answers of the first one whole.
TEST_F(FailingCallsTest, Fleet) {
  fs::create_directory(in("files"));
  for (const char* name : {"files/a.csv", "files/b.csv"}) fs::copy_file(in("small.csv"), in(name));
  const std::string fleet = "fleet " + in("files") + " --jobs 1 --effort 0.01 --results ";
  const std::string wanted = tenon_command(fleet + in("whole")).out;
  int failed = 0;
  for (const Failure& failure : kFailures)
    for (int nth = 1;; ++nth, ++failed) {
      fs::remove_all(in("results"));
      const Outcome run = failing(fleet + in("results"), failure, nth);
      if (!fs::remove(in("mark"))) break;
      SCOPED_TRACE(failure.call + (" number " + std::to_string(nth)));
      EXPECT_TRUE(run.status >= 0 && run.status <= 2) << run.status;
      EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), run.status == 0 ? 0 : 1)
          << run.err;
      EXPECT_TRUE(run.status != 0 || run.out == wanted) << run.out;
      const Outcome again = tenon_command(fleet + in("results"));
      EXPECT_EQ(again.status, 0) << again.err;
      EXPECT_EQ(again.out, wanted);
      EXPECT_EQ(count_files(in("results")), count_files(in("whole"))) << "a file is left";
    }
  EXPECT_GE(failed, 50);
}

// What it says of devices and limits depends on what it can ask. Of its parts a driver alone calls
// memfd_create, and lavapipe of Mesa 25 crashes where that fails.
TEST_F(FailingCallsTest, Info) {
  for (const Failure& failure : kFailures)
    for (int nth = 1; failure.call != std::string_view("memfd_create"); ++nth) {
      const Outcome run = failing("info", failure, nth);
      if (!fs::remove(in("mark"))) break;
      SCOPED_TRACE(failure.call + (" number " + std::to_string(nth)));
      expect_answer_or_line(run, run.out);
    }
}

// The limits of control groups are a hint: tensors are allocated where they cannot be read, too.
TEST_F(FailingCallsTest, MemoryOfTheMachineThatCannotBeRead) {
  int failed = 0;
  for (int nth = 1;; ++nth, ++failed) {
    const Outcome run =
        failing("vectors " TENON_SOURCE_DIR "/data/vectors", {"read", EIO}, nth);
    if (!fs::remove(in("mark"))) break;
    EXPECT_EQ(run.status, 0) << run.out << run.err;
  }
  EXPECT_GE(failed, 3);
}

// A server that cannot begin, or cannot go on.
TEST_F(FailingCallsTest, Serve) {
  for (const Failure& failure : {Failure{"pipe2", EMFILE}, Failure{"socket", EMFILE},
                                 Failure{"listen", EADDRINUSE}, Failure{"poll", ENOMEM}}) {
    SCOPED_TRACE(failure.call);
    const Outcome run = failing("serve " + in("small.csv"), failure, 1);
    EXPECT_TRUE(fs::remove(in("mark")));
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.err, StartsWith("tenon: "));
    EXPECT_THAT(run.err, ::testing::HasSubstr(std::strerror(failure.error)));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

// Every 127th request of memory that a command makes.
TEST_F(FailingCallsTest, MemoryOfACommand) {
  const std::string snapshot = TENON_SOURCE_DIR "/data/snapshots/gnn_sampled.pickle";
  for (const std::string& arguments :
       {"explain " + snapshot, "convert " + snapshot + " " + in("out.csv.zst"),
        "replay " + in("small.csv") + " --policy all --passes 0 --json", "plan " + in("small.csv"),
        "view " + in("small.csv") + " -o " + in("out.html"), "explain --json " + snapshot}) {
    const std::string wanted = tenon_command(arguments).out;
    int failed = 0;
    for (int nth = 1;; nth += 127, ++failed) {
      const Outcome run = failing(arguments, {"malloc", ENOMEM}, nth);
      if (!fs::remove(in("mark"))) break;
      SCOPED_TRACE(arguments + ": request number " + std::to_string(nth));
      expect_answer_or_line(run, wanted);
      EXPECT_TRUE(run.status == 0 || run.err.find("memory") != run.err.npos) << run.err;
    }
    EXPECT_GE(failed, 10) << arguments;
  }
}

TEST_F(FailingCallsTest, MemoryToStartIn) {
  int refused = 0;
  for (int kib = 8'000;; kib += 20) {
    const Outcome run = tenon_command("policies", "ulimit -v " + std::to_string(kib) + ";");
    if (run.status == 0) break;
    if (run.status == 127) continue;  // the loader's: a shared library has no room
    SCOPED_TRACE(std::to_string(kib) + " KiB");
    EXPECT_EQ(run.status, 2);
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    ++refused;
  }
  EXPECT_GE(refused, 3);
}

// Memory ends at any place of a command that builds JSON, or whose destructors write events, and
// there is none from there on.
TEST_F(FailingCallsTest, MemoryThatHasEnded) {
  const std::string snapshot = TENON_SOURCE_DIR "/data/snapshots/gnn_sampled.pickle";
  for (const std::string& arguments : {"explain --json " + snapshot, "view --json " + snapshot,
                                       std::string("synthesize graph:1")}) {
    const std::string wanted = tenon_command(arguments).out;
    const auto in_kib = [](const std::string& command, int kib) {
      return tenon_command(command, "ulimit -v " + std::to_string(kib) + ";");
    };
    int least = 9'000;  // to start the program in
    while (in_kib("policies", least).status != 0) least += 100;
    int failed = 0;
    for (int kib = least;; kib += 100) {
      const Outcome run = in_kib(arguments, kib);
      if (run.status == 0) break;
      SCOPED_TRACE(arguments + " in " + std::to_string(kib) + " KiB");
      expect_answer_or_line(run, wanted);
      ++failed;
    }
    EXPECT_GE(failed, 3) << arguments;
  }
}

TEST_F(FailingCallsTest, ATrainingRunThatIsSaved) {
  write_text();
  const int failed = fail_each("train text " + in("text") +
                                   " --length 8 --layers 1 --width 8 --heads 1 --batch 64"
                                   " --epochs 1 --save " + in("run.safetensors"),
                               in("run.safetensors"), true);
  EXPECT_GE(failed, 30);
}

}  // namespace
}  // namespace tenon
