// What a command reads is never what it writes, however the two came to be one file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "support/command.h"
#include "support/temporary.h"
#include "tenon/trace/file_bytes.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::TemporaryFile;
using testing::tenon_command;

class InputsKept : public ::testing::Test {
 protected:
  // Refused, with the file as it was.
  void expect_refused(const std::string& arguments, const std::string& reason,
                      const std::string& environment = "") {
    const Outcome outcome = tenon_command(arguments, environment);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(reason)) << arguments;
    EXPECT_EQ(read(first_.path()), kText) << arguments;
    EXPECT_EQ(read(second_.path()), kText) << arguments;
  }
  static std::string read(const std::string& path) {
    return std::string(FileBytes(path).view());
  }

  inline static const std::string kText =
      "time_us,op,id,size,stream\n0,alloc,0,1000,0\n5,free_completed,0,1000,0\n";
  const TemporaryFile first_{".csv", kText};
  const TemporaryFile second_{".csv", kText};
  const std::string both_ = first_.path() + " " + second_.path();
};

TEST_F(InputsKept, AnOptionWithoutItsValueTakesNoArgument) {
  expect_refused("report --output= " + both_, "--output has no value");
  expect_refused("replay --json-file= " + both_, "--json-file has no value");
  expect_refused("view -o= " + first_.path(), "-o=: write -o");
  expect_refused("plan --output '' " + first_.path(), "--output: the value is empty");
}

TEST_F(InputsKept, AListOfRecordingsBehindTheOption) {
  expect_refused("report --output " + both_, "has the ending of a recording");
}

TEST_F(InputsKept, TheOutputIsNoInput) {
  const std::string& file = first_.path();
  expect_refused("plan " + file + " -o " + file, "is a file that is read");
  const std::string link = file + ".plan";
  std::filesystem::create_symlink(file, link);
  expect_refused("plan " + file + " -o " + link, "is a file that is read");
  expect_refused("replay " + file + " --json-file " + file, "is a file that is read");
  expect_refused("replay " + second_.path() + " --policy plan --plan " + link + " --json-file " +
                     link, "is a file that is read");
  std::filesystem::remove(link);
}

TEST_F(InputsKept, NorIsTheRecordingOfTheCommandItself) {
  expect_refused("replay " + first_.path(), "TENON_RECORD would write over",
                 "TENON_RECORD=" + first_.path());
  // Nor an output of it, which need not exist.
  const std::string output = first_.path() + ".json";
  for (const char* option : {" --json-file ", " --json-file="}) {
    std::filesystem::remove(output);
    expect_refused("replay " + first_.path() + option + output, "TENON_RECORD would write over",
                   "TENON_RECORD=" + output);
  }
  std::filesystem::remove(output);
}

TEST_F(InputsKept, NorDoesAPageOfTheStandardNameReplaceAnothersFile) {
  const testing::TemporaryFolder folder;
  const std::string there = "cd " + folder.path() + ";";
  const std::string snapshot = TENON_SOURCE_DIR "/data/snapshots/gpt2.pickle";
  for (const auto& [command, name] :
       {std::pair{"view --policy caching ", "gpt2.html"},
        std::pair{"report --no-replay --no-advice ", "gpt2.report.html"}}) {
    SCOPED_TRACE(command);
    const std::string page = folder.path() + "/" + name;
    std::ofstream(page) << "notes of my own";
    const std::string reason = std::string(name) + " exists and is no page of tenon";
    expect_refused(command + snapshot, reason, there);
    EXPECT_EQ(read(page), "notes of my own");
    EXPECT_EQ(tenon_command(command + snapshot + " -o " + name, there).status, 0);
    EXPECT_EQ(tenon_command(command + snapshot, there).status, 0);  // over its own page
  }
}

TEST_F(InputsKept, AnEmptyRecordingReplacesNothing) {
  const Outcome outcome = tenon_command("policies", "TENON_RECORD=" + first_.path());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(read(first_.path()), kText);
}

}  // namespace
}  // namespace tenon
