// Records in bench/results that depend on no machine, against the command that printed them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using testing::Outcome;
using testing::tenon_command;

TEST(RecordedResults, ExactOnesArePrintedAgain) {
  const std::string program = "build/tenon ";
  int compared = 0;
  for (const auto& entry : fs::directory_iterator(TENON_SOURCE_DIR "/bench/results")) {
    std::ifstream file(entry.path());
    const auto record = nlohmann::json::parse(file);
    const std::string command = record.at("command");
    const auto& conditions = record.at("conditions");
    if (!conditions.value("exact", false) || conditions.value("kept", false)) continue;
    if (!command.starts_with(program)) continue;  // `make bench` runs the others
    const Outcome made =
        tenon_command(command.substr(program.size()) + "; }", "cd " TENON_SOURCE_DIR "; {");
    ASSERT_EQ(made.status, 0) << made.err;
    std::string wanted;
    for (const auto& line : record.at("output")) wanted += line.get<std::string>() + "\n";
    EXPECT_EQ(made.out, wanted) << "bench/run.py --keep build " << entry.path().stem().string()
                                << " && scripts/results.py";
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

}  // namespace
}  // namespace tenon
