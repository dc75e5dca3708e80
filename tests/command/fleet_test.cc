// tenon fleet, as a user at a shell meets it, and the processes that it works in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fleet_workers.h"
#include "support/command.h"
#include "support/damage.h"
#include "support/temporary.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::contents;
using testing::Outcome;
using testing::TemporaryFolder;
using testing::tenon_command;
using Json = nlohmann::json;
namespace fs = std::filesystem;

class FleetCommand : public ::testing::Test {
 protected:
  FleetCommand() { fs::create_directories(in("deep")); }

  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string in(const std::string& name) const { return path("in/" + name); }

  // Programs of several kinds, as files of several formats; `count` of each.
  void make(int count) const {
    for (int seed = 1; seed <= count; ++seed)
      for (const auto& [kind, ending] : std::map<std::string, std::string>{
               {"graph", ".pickle"}, {"generate", ".csv"}, {"recommender", ".csv.zst"}}) {
        const std::string name = kind + std::to_string(seed) + ending;
        const Outcome made =
            tenon_command("synthesize " + kind + ":" + std::to_string(seed) + " --steps 2 -o " +
                          in(seed % 2 == 0 ? "deep/" + name : name));
        ASSERT_EQ(made.status, 0) << made.err;
      }
  }
  std::string arguments(const std::string& more, const std::string& results = "results") const {
    return "fleet " + path("in") + " --effort 0.01 --results " + path(results) + " " + more;
  }
  Outcome fleet(const std::string& more, const std::string& results = "results") const {
    return tenon_command(arguments(more, results));
  }
  // Answers by their file, with the number of that file.
  std::map<std::string, ino_t> answers() const {
    std::map<std::string, ino_t> found;
    std::error_code missing;
    for (const auto& entry : fs::recursive_directory_iterator(path("results"), missing)) {
      struct stat info = {};
      if (entry.is_regular_file() && ::stat(entry.path().c_str(), &info) == 0)
        found[entry.path()] = info.st_ino;
    }
    return found;
  }

  const TemporaryFolder folder_;
};

TEST_F(FleetCommand, TheReportHasTheSameBytesForAnyNumberOfJobs) {
  make(3);
  std::ofstream(in("damaged.pickle")) << contents(in("graph1.pickle")).substr(0, 5000);
  const Outcome one = fleet("--jobs 1", "one");
  EXPECT_EQ(one.status, 2);
  EXPECT_THAT(one.out, HasSubstr("# Fleet of 10 files"));
  EXPECT_THAT(one.out, HasSubstr("PYTORCH_CUDA_ALLOC_CONF="));
  EXPECT_THAT(one.out, HasSubstr("- damaged.pickle"));
  EXPECT_EQ(one.err, "tenon: 1 of 10 files could not be read; the report names them\n");
  const std::string json = fleet("--json", "one").out;
  for (const char* jobs : {"2", "5"}) {
    EXPECT_EQ(fleet(std::string("--jobs ") + jobs, jobs).out, one.out);
    EXPECT_EQ(fleet("--json", jobs).out, json);
  }
}

TEST_F(FleetCommand, SaysThatReplaysServeTheRequestThatFailed) {
  make(1);
  fs::copy_file(TENON_SOURCE_DIR "/data/failed/gpt2.pickle", in("failed.pickle"));
  const std::string report = fleet("").out;
  for (const char* file : {"failed.pickle", "graph1.pickle"}) {
    const std::string row = report.substr(report.rfind(std::string("\n| ") + file + " |") + 1);
    EXPECT_EQ(row.substr(0, row.find('\n')).ends_with(" GiB, failed request served |"),
              std::string_view(file) == "failed.pickle")
        << row;
  }
}

TEST_F(FleetCommand, SaysWhichFilesHoldNoHistory) {
  make(1);
  using namespace testing::pickled;
  std::ofstream(in("still.pickle"), std::ios::binary)
      << snapshot({segment(0, 0, 8192, {block(0, 4096, "active_allocated")})}, {});
  std::ofstream(in("empty.csv")) << "time_us,op,id,size,stream\n";
  const Outcome run = fleet("");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.err, "tenon: warning: 2 of 5 files hold no history, so nothing is judged of them; "
                     "the report says how to record one\n");
  EXPECT_THAT(run.out, HasSubstr("3 explained, 3 by replay too, 2 without history"));
  EXPECT_THAT(run.out, HasSubstr("- empty.csv: 0 B live\n- still.pickle: 4 KiB live, 8 KiB"));
  EXPECT_THAT(run.out, Not(HasSubstr("| still.pickle")));
  const Json report = Json::parse(fleet("--json").out);
  EXPECT_EQ(report["no_history"], Json({"empty.csv", "still.pickle"}));
  EXPECT_EQ(report["files"][4]["state"], "no_history");
}

TEST_F(FleetCommand, EachFileHasItsAnswer) {
  make(1);
  const Json report = Json::parse(fleet("--json").out);
  ASSERT_EQ(report["files"].size(), 3u);
  const Json& file = report["files"][1];
  EXPECT_EQ(file["file"], "graph1.pickle");
  const Json one = Json::parse(tenon_command("explain --json " + in("graph1.pickle")).out);
  EXPECT_EQ(file["live_peak_bytes"], one["devices"][0]["live_peak_bytes"]);
  EXPECT_EQ(file["verdict"], one["devices"][0]["verdict"]["sentences"][0]);
  const Json advice = Json::parse(
      tenon_command("advise --json --effort 0.01 " + in("graph1.pickle")).out);
  EXPECT_EQ(file["best_conf"], advice["conf"]);
  EXPECT_EQ(file["best_reserved_bytes"], advice["reserved_peak_bytes"]);
  // The sum for the chosen setting is that of replays.
  const std::string conf = report["one_setting"]["conf"];
  std::uint64_t sum = 0;
  for (const Json& each : report["files"]) {
    const std::string setting = conf.empty() ? "" : " --conf " + conf;
    const Json replay = Json::parse(tenon_command("replay --policy caching --json --lag 5ms " +
                                                  in(each["file"]) + setting)
                                        .out);
    sum += replay[0]["reserved_peak_bytes"].get<std::uint64_t>();
  }
  EXPECT_EQ(report["one_setting"]["reserved_peak_bytes"], sum);
}

TEST_F(FleetCommand, GoesOnWhereItWasKilled) {
  make(12);
  const std::string whole = fleet("--jobs 2", "whole").out;
  for (const int signal : {SIGKILL, SIGTERM}) {
    fs::remove_all(path("results"));
    const pid_t run = ::fork();
    if (run == 0) {
      const std::string line = "exec " TENON_COMMAND " " + arguments("--jobs 1") +
                               " >/dev/null 2>" + path("err");
      ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      ::_exit(127);
    }
    while (answers().size() < 3 && ::waitpid(run, nullptr, WNOHANG) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(run, signal);
    int status = 0;
    if (::waitpid(run, &status, 0) == run && signal == SIGTERM && WEXITSTATUS(status) != 0) {
      EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
      EXPECT_THAT(contents(path("err")), HasSubstr("the same command goes on"));
    }
    const std::map<std::string, ino_t> before = answers();
    EXPECT_GE(before.size(), 3u);
    EXPECT_EQ(fleet("").out, whole);
    const std::map<std::string, ino_t> after = answers();
    EXPECT_EQ(after.size(), 36u);
    for (const auto& [file, number] : before) EXPECT_EQ(after.at(file), number) << file;
  }
}

TEST_F(FleetCommand, AFileThatChangedIsReadAgainAndNoOther) {
  make(2);
  fleet("");
  const auto before = answers();
  fs::copy_file(in("deep/graph2.pickle"), in("graph1.pickle"),
                fs::copy_options::overwrite_existing);
  const std::string changed = fleet("").out;
  EXPECT_EQ(changed, fleet("", "fresh").out);
  std::size_t again = 0;
  for (const auto& [file, number] : answers()) again += before.at(file) != number ? 1 : 0;
  EXPECT_EQ(again, 1u);
}

TEST_F(FleetCommand, DamagedFilesHaveALineAndTheRestGoesOn) {
  make(1);
  const std::string sound = contents(in("graph1.pickle"));
  Random random(24);
  for (int i = 0; i < 40; ++i)
    std::ofstream(in("damaged" + std::to_string(i)), std::ios::binary) << damaged(sound, random);
  std::ofstream(in("empty.csv"));
  std::ofstream(in("sparse.csv"));
  std::error_code refused;  // by a file system without such files
#if !defined(__SANITIZE_THREAD__)  // which has not that many addresses
  fs::resize_file(in("sparse.csv"), std::uintmax_t{1} << 40, refused);
#endif
  ASSERT_EQ(::mkfifo(in("fifo").c_str(), 0600), 0);
  fs::create_directory_symlink(".", in("loop"));
  const Outcome run = fleet("--json");
  EXPECT_EQ(run.status, 2);
  const Json report = Json::parse(run.out);
  EXPECT_EQ(report["files"].size() + report["unread"].size(), 47u);
  std::map<std::string, std::string> unread;
  for (const Json& each : report["unread"]) unread[each["file"]] = each["reason"];
  EXPECT_THAT(unread["empty.csv"], HasSubstr("empty.csv"));
#if !defined(__SANITIZE_THREAD__)
  if (!refused) {
    EXPECT_THAT(unread["sparse.csv"], HasSubstr("more than 64 MiB"));
  }
#endif
  EXPECT_EQ(unread["fifo"], "a FIFO, not a file");
  EXPECT_THAT(unread["loop"], HasSubstr("symbolic link"));
  for (const auto& [file, reason] : unread) {
    EXPECT_FALSE(reason.empty()) << file;
    EXPECT_THAT(reason, Not(HasSubstr("process"))) << file;  // none crashed
    EXPECT_THAT(reason, Not(HasSubstr("\n"))) << file;
  }
}

TEST_F(FleetCommand, AFileThatTakesAllMemoryIsTriedAgainNextTime) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take more memory than any limit";
#endif
  make(1);
  std::ofstream large(in("large.csv"));
  large << "time_us,op,id,size,stream\n";
  for (int i = 0; i < 300'000; ++i) large << i << ",alloc," << i << ",512,0\n";
  large.close();
  const Outcome limited = fleet("--memory 32MiB");
  EXPECT_EQ(limited.status, 2);
  EXPECT_THAT(limited.out, HasSubstr("3 explained"));
  EXPECT_THAT(limited.out, HasSubstr("large.csv: it needs more memory than 32 MiB"));
  const Outcome again = fleet("");
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("4 explained"));
}

TEST_F(FleetCommand, FoldersInFoldersTakeNoMoreDescriptors) {
  std::string inner = "deep";
  for (int depth = 0; depth < 40; ++depth) inner += "/f";
  fs::create_directories(in(inner));
  std::ofstream(in(inner + "/run.csv")) << "time_us,op,id,size,stream\n0,alloc,1,512,0\n";
  const Outcome run = tenon_command("fleet " + path("in") + " --json --results " + path("results"),
                                    "ulimit -n 16;");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(Json::parse(run.out)["files"].size(), 1U) << run.out;
}

TEST_F(FleetCommand, SaysInALineWhatItCannotDo) {
  const auto expect = [&](const std::string& arguments, int status, const std::string& words) {
    const Outcome run = tenon_command("fleet " + arguments);
    EXPECT_EQ(run.status, status) << arguments;
    EXPECT_THAT(run.err, HasSubstr(words)) << arguments;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_EQ(run.out, "");
  };
  const std::string results = " --results " + path("results");
  expect(path("in") + results, 2, "no files in this folder");
  make(1);
  const std::string file = in("graph1.pickle");
  expect(file + results, 2, "not a folder");
  expect(path("in") + " --results " + path("in"), 2, "cannot be in the folder itself");
  expect(path("in") + results + " -o " + file, 2, "is a file that is read");
  expect(path("in") + results + " -o " + path("nowhere/report.md"), 1, "nowhere/report.md");
  expect(path("in") + " --results " + file, 1, "the folder cannot be made");
  expect(path("in") + results + " --memory 5", 2, "--memory");
  expect(path("in") + results + " --torch x", 2, "version");
}

TEST_F(FleetCommand, AFullDiskEndsItInALine) {
  make(1);
  ASSERT_EQ(fleet("").status, 0);
  fs::remove_all(path("results"));
  // A limit on file sizes is met as a full disk is.
  const Outcome run =
      tenon_command(arguments(""), "ulimit -f 1; exec env TENON_READ_LIMIT=1GiB");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("results"));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
}

TEST_F(FleetCommand, WritesTheReportIntoAFile) {
  make(1);
  const Outcome run = fleet("-o " + path("report.md"));
  EXPECT_EQ(run.out, path("report.md") + "\n");
  EXPECT_EQ(contents(path("report.md")), fleet("").out);
}

class Workers : public ::testing::Test {
 protected:
  // How each job ended.
  std::map<std::size_t, std::string> run(std::size_t count, int processes,
                                         const std::function<void(std::size_t)>& work,
                                         double seconds = 0) {
    std::map<std::size_t, std::string> ended;
    std::size_t begun = 0;
    EXPECT_EQ(command::run_in_processes(
                  {.processes = processes,
                   .memory_bytes = std::uint64_t{1} << 40,
                   .seconds = seconds},
                  {.next = [&]() -> std::optional<std::size_t> {
                     if (begun == count) return std::nullopt;
                     return begun++;
                   },
                   .work = work,
                   .ended =
                       [&](std::size_t job, const std::string& failure) {
                         EXPECT_TRUE(ended.emplace(job, failure).second);
                       }}),
              0);
    return ended;
  }
};

TEST_F(Workers, OneThatCrashesEndsAlone) {
  const auto ended = run(20, 3, [](std::size_t job) {
    if (job == 3) ::raise(SIGKILL);
    if (job == 7) throw std::bad_alloc();
    if (job == 9) ::_exit(5);
  });
  EXPECT_EQ(ended.size(), 20u);
  const std::map<std::size_t, std::string> words = {
      {3, "signal 9"}, {7, "more memory"}, {9, "status 5"}};
  for (const auto& [job, failure] : ended) {
    const auto expected = words.find(job);
    EXPECT_EQ(failure.empty(), expected == words.end()) << job;
    EXPECT_THAT(failure, HasSubstr(expected == words.end() ? "" : expected->second)) << job;
  }
}

TEST_F(Workers, OneThatTakesTooLongEndsAlone) {
  const auto ended = run(
      4, 2, [](std::size_t job) { while (job == 1) ::sleep(60); }, 3);
  EXPECT_EQ(ended.size(), 4u);
  for (const auto& [job, failure] : ended)
    EXPECT_EQ(failure, job == 1 ? "it takes longer than 3 s (--time-limit)" : "") << job;
}

TEST_F(Workers, OneThatFailsRunsAgainAlone) {
  const TemporaryFolder folder;
  const auto ended = run(6, 2, [&](std::size_t job) {
    const std::string mark = folder.path() + "/" + std::to_string(job);
    if (fs::exists(mark) || job > 1) return;
    std::ofstream(mark).close();
    ::raise(SIGKILL);
  });
  for (const auto& [job, failure] : ended) EXPECT_EQ(failure, "") << job;
  EXPECT_EQ(ended.size(), 6u);
}

TEST_F(Workers, WhatWorkThrowsEndsTheRun) {
  try {
    run(100, 2, [](std::size_t job) {
      if (job == 4) throw std::runtime_error("the disk is full");
      if (job > 4) ::sleep(60);
    });
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the disk is full");
  }
}

}  // namespace
}  // namespace tenon
