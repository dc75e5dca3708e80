// Each public header states its contracts: scripts/header_contracts.py.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace tenon {
namespace {

TEST(HeaderContracts, EachPublicHeaderStatesThreadSafetyErrorsAndComplexity) {
  if (std::system("python3 -c '' >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  FILE* pipe = ::popen("python3 " TENON_SOURCE_DIR "/scripts/header_contracts.py", "r");
  ASSERT_NE(pipe, nullptr);
  std::string gaps;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) gaps += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << gaps;
}

}  // namespace
}  // namespace tenon
