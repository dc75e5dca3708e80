// docs/reference.md against the command it is made from.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "support/command.h"

namespace tenon {
namespace {

using testing::Outcome;
using testing::tenon_command;

// Versions of CLI11 set a default out as `TEXT=5ms` or as `TEXT [5ms]`, and break lines after it.
std::vector<std::string> words(std::string text) {
  for (char& c : text)
    if (c == '=' || c == '[' || c == ']') c = ' ';
  std::istringstream all(text);
  return {std::istream_iterator<std::string>(all), {}};
}

TEST(Reference, ThePageIsWhatTheCommandSaysOfItself) {
  const Outcome made = tenon_command("", TENON_SOURCE_DIR "/scripts/reference.sh");
  ASSERT_EQ(made.status, 0) << made.err;
  std::ifstream file(TENON_SOURCE_DIR "/docs/reference.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(words(page.str()), words(made.out))
      << "write it anew: scripts/reference.sh >docs/reference.md";
}

TEST(Reference, NoCommandShowsTheExamplesOfAnother) {
  for (const std::string name : {"policies", "info", "validate"}) {
    const Outcome help = tenon_command(name + " --help");
    EXPECT_EQ(help.out.find("tenon train fashion-mnist"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace tenon
