// tenon synthesize as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "support/command.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::tenon_command;

TEST(SynthesizeTest, ReplayReadsWhatItWrites) {
  const std::string path = ::testing::TempDir() + "synthesized.csv.zst";
  const Outcome made =
      tenon_command("synthesize lora:3 --live 512MiB --steps 3 --streams 3 -o " + path);
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("lora-3"));
  const Outcome replayed = tenon_command("replay " + path + " --policy null --passes 0 --json");
  EXPECT_EQ(replayed.status, 0) << replayed.err;
  EXPECT_THAT(replayed.out, HasSubstr("\"out_of_memory\": false"));
  std::filesystem::remove(path);
}

TEST(SynthesizeTest, BadArgumentsAreOneLineEach) {
  for (const std::string arguments : {"12x", "perceptron", "1 --streams 9", "1 --steps 0",
                                      "detection --live 64MiB", "1 --live 1MiB", "1 -o x.foo",
                                      "1000 --steps 100000"}) {
    const Outcome refused = tenon_command("synthesize " + arguments);
    EXPECT_EQ(refused.status, 2) << arguments;
    EXPECT_EQ(refused.err.find('\n'), refused.err.size() - 1) << refused.err;
  }
}

}  // namespace
}  // namespace tenon
