// Each public header states its contracts, and each public name has a comment:
// scripts/header_contracts.py and scripts/docs.py.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace tenon {
namespace {

// Runs a script, and expects that it finds no gap.
void expect_no_gaps(const std::string& script) {
  const std::string command = "python3 " TENON_SOURCE_DIR "/scripts/" + script + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << output;
}

TEST(HeaderContracts, EachPublicHeaderStatesThreadSafetyErrorsAndComplexity) {
  if (std::system("python3 -c '' >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  expect_no_gaps("header_contracts.py");
}

TEST(HeaderContracts, EachPublicNameHasAComment) {
  if (std::system("python3 -c '' >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  // Debian 12's: other versions find other faults.
  if (std::system("doxygen --version 2>/dev/null | grep -q '^1\\.9\\.4'") != 0)
    GTEST_SKIP() << "there is no doxygen 1.9.4";
  const auto folder = std::filesystem::path(::testing::TempDir()) /
                      ("tenon_reference." + std::to_string(::getpid()));
  expect_no_gaps("docs.py '" + folder.string() + "'");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tenon
