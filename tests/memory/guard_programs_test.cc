// Programs that contain a bug each, run under the guard as their users would: what they print, and
// how they end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

#include "support/temporary.h"
#include "tenon/base/code_place.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TemporaryFile;

struct Outcome {
  bool aborted = false;
  bool faulted = false;
  int status = -1;  // where it ended by itself
  std::string err;
};

Outcome run(const std::string& program) {
  const TemporaryFile err(".err");
  // exec: the program's end is the shell's own.
  const int raw = std::system(("exec " TENON_GUARD_PROGRAMS "/guard_program_" + program +
                               " >/dev/null 2>" + err.path() + " </dev/null")
                                  .c_str());
  Outcome outcome;
  outcome.aborted = WIFSIGNALED(raw) && WTERMSIG(raw) == SIGABRT;
  // A sanitizer's own handler comes after the guard's, and ends the program with a status.
  outcome.faulted = WIFSIGNALED(raw) ? WTERMSIG(raw) == SIGSEGV : WEXITSTATUS(raw) != 0;
  if (WIFEXITED(raw)) outcome.status = WEXITSTATUS(raw);
  outcome.err = err.contents();
  return outcome;
}

// "overrun.cc:19": the line with the mark "// made here".
std::string marked_line(const std::string& program, const std::string& mark) {
  std::ifstream source(TENON_SOURCE_DIR "/tests/guard_programs/" + program + ".cc");
  int number = 0;
  for (std::string line; std::getline(source, line);) {
    ++number;
    if (line.ends_with("// " + mark)) return program + ".cc:" + std::to_string(number);
  }
  return "no line is marked " + mark;
}

// The report's part from "  made" to the next such heading names the marked line.
void expect_place(const Outcome& outcome, const std::string& program, const std::string& heading,
                  const std::string& mark) {
  const std::size_t begin = outcome.err.find("\n  " + heading);
  ASSERT_NE(begin, std::string::npos) << "no \"" << heading << "\" in\n" << outcome.err;
  std::size_t end = begin + 3;
  do {
    end = outcome.err.find("\n  ", end + 1);
  } while (end != std::string::npos && outcome.err[end + 3] == ' ');  // deeper: the stack's lines
  const std::string part = outcome.err.substr(begin, end - begin);
  if (code_has_lines()) {
    EXPECT_THAT(part, HasSubstr(marked_line(program, mark)));
  }
  EXPECT_THAT(part, HasSubstr("    at "));
}

TEST(GuardPrograms, ASoundProgramEndsWell) {
  for (const std::string program : {"sound", "page_sound"}) {
    const Outcome outcome = run(program);
    EXPECT_EQ(outcome.status, 0) << program;
    EXPECT_THAT(outcome.err, IsEmpty()) << program;
  }
}

TEST(GuardPrograms, AnOverrunIsFound) {
  const Outcome outcome = run("overrun");
  EXPECT_TRUE(outcome.aborted);
  EXPECT_THAT(outcome.err, HasSubstr("write past the end of a block of 400 bytes at 0x"));
  EXPECT_THAT(outcome.err, HasSubstr("bytes 400 to 403 of it were overwritten, now 00 00 80 3f"));
  EXPECT_THAT(outcome.err, HasSubstr("made in phase forward by bias at"));
  expect_place(outcome, "overrun", "made", "made here");
  expect_place(outcome, "overrun", "noticed", "noticed here");
}

TEST(GuardPrograms, AnUnderrunIsFound) {
  const Outcome outcome = run("underrun");
  EXPECT_TRUE(outcome.aborted);
  EXPECT_THAT(outcome.err, HasSubstr("write before a block of 64 bytes at 0x"));
  EXPECT_THAT(outcome.err, HasSubstr("bytes -8 to -1"));
  expect_place(outcome, "underrun", "made", "made here");
  expect_place(outcome, "underrun", "noticed", "noticed here");
}

TEST(GuardPrograms, AUseAfterFreeIsFound) {
  const Outcome outcome = run("use_after_free");
  EXPECT_TRUE(outcome.aborted);
  EXPECT_THAT(outcome.err, HasSubstr("write after free into a block of 32 bytes at 0x"));
  EXPECT_THAT(outcome.err, HasSubstr("bytes 3 to 3 of it were overwritten, now 4f"));
  expect_place(outcome, "use_after_free", "made", "made here");
  expect_place(outcome, "use_after_free", "freed", "freed here");
}

TEST(GuardPrograms, AUseAfterFreeIsFoundWhenTheBlockLeavesTheQuarantine) {
  const Outcome outcome = run("use_after_long");
  EXPECT_TRUE(outcome.aborted);
  EXPECT_THAT(outcome.err, HasSubstr("write after free into a block of 500 bytes at 0x"));
  EXPECT_THAT(outcome.err, HasSubstr("bytes 100 to 149"));
  expect_place(outcome, "use_after_long", "made", "made here");
  expect_place(outcome, "use_after_long", "freed", "freed here");
  expect_place(outcome, "use_after_long", "noticed", "noticed here");
}

TEST(GuardPrograms, ASecondFreeIsFound) {
  for (const std::string program :
       {"double_free", "double_free_raw", "page_double_free"}) {
    SCOPED_TRACE(program);
    const Outcome outcome = run(program);
    EXPECT_TRUE(outcome.aborted);
    EXPECT_THAT(outcome.err, HasSubstr("second free of a block of 1000 bytes at 0x"));
    EXPECT_THAT(outcome.err, Not(HasSubstr("overwritten")));
    expect_place(outcome, program, "made", "made here");
    expect_place(outcome, program, "freed at", "freed here");
    expect_place(outcome, program, "freed again", "freed again here");
  }
}

TEST(GuardPrograms, AReadPastTheEndFaultsAtTheInstruction) {
  const Outcome outcome = run("page_overrun");
  EXPECT_TRUE(outcome.faulted);
  EXPECT_THAT(outcome.err, HasSubstr("access past the end of a block of 4000 bytes at 0x"));
  EXPECT_THAT(outcome.err, HasSubstr(": byte 4000\n"));
  expect_place(outcome, "page_overrun", "made", "made here");
  expect_place(outcome, "page_overrun", "noticed", "noticed here");
}

TEST(GuardPrograms, AReadAfterFreeFaultsAtTheInstruction) {
  const Outcome outcome = run("page_use_after_free");
  EXPECT_TRUE(outcome.faulted);
  EXPECT_THAT(outcome.err, HasSubstr("access after free into a block of 64 bytes at 0x"));
  EXPECT_THAT(outcome.err, HasSubstr(": byte 10\n"));
  expect_place(outcome, "page_use_after_free", "made", "made here");
  expect_place(outcome, "page_use_after_free", "freed", "freed here");
  expect_place(outcome, "page_use_after_free", "noticed", "noticed here");
}

TEST(GuardPrograms, AWriteTooNearForThePageIsFoundWhenTheBlockIsFreed) {
  const Outcome outcome = run("page_gap");
  EXPECT_TRUE(outcome.aborted);
  EXPECT_THAT(outcome.err, HasSubstr("write past the end of a block of 1001 bytes at 0x"));
  EXPECT_THAT(outcome.err, HasSubstr("bytes 1001 to 1001 of it were overwritten, now 01"));
  expect_place(outcome, "page_gap", "noticed", "noticed here");
}

}  // namespace
}  // namespace tenon
