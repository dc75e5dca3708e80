// The shipped vectors: every operator against PyTorch's results.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <string>

#include "support/temporary.h"

namespace tenon {
namespace {

struct Output {
  std::string text;
  int status = -1;
};

Output run(const std::string& arguments) {
  Output output;
  const std::string command = std::string(TENON_COMMAND) + " " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  while (const std::size_t read = std::fread(buffer.data(), 1, buffer.size(), pipe))
    output.text.append(buffer.data(), read);
  output.status = ::pclose(pipe);
  return output;
}

const std::string kVectors = std::string(TENON_SOURCE_DIR) + "/data/vectors";

TEST(VectorsCommandTest, EveryCasePasses) {
  const Output output = run("vectors " + kVectors);
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_NE(output.text.find("344 passed, 0 failed"), std::string::npos) << output.text;
}

TEST(VectorsCommandTest, EveryGradientPasses) {
  const Output output = run("vectors --grad " + kVectors);
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_NE(output.text.find("344 passed, 0 failed"), std::string::npos) << output.text;
}

TEST(VectorsCommandTest, OneThreadGivesTheSame) {
  const Output one = run("vectors --verbose --threads 1 " + kVectors);
  const Output two = run("vectors --verbose --threads 4 " + kVectors);
  EXPECT_EQ(one.text, two.text);
}

TEST(VectorsCommandTest, MetaTensorsHaveTheRightShapesAndDTypes) {
  const Output output = run("vectors --device meta " + kVectors);
  EXPECT_NE(output.text.find("344 passed, 0 failed"), std::string::npos) << output.text;
}

TEST(VectorsCommandTest, WrongResultsAreNamedWithTheirError) {
  const testing::TemporaryFolder folder;
  std::filesystem::copy(kVectors, folder.path(), std::filesystem::copy_options::recursive);
  std::string cases;
  {
    std::ifstream file(kVectors + "/cases.json");
    cases.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::string add = "\"op\": \"add\"";
  cases.replace(cases.find(add), add.size(), "\"op\": \"sub\"");
  std::ofstream(folder.path() + "/cases.json") << cases;
  const Output output = run("vectors " + folder.path());
  EXPECT_NE(output.status, 0);
  EXPECT_NE(output.text.find("FAIL case 0 sub"), std::string::npos) << output.text;
  EXPECT_NE(output.text.find("largest error"), std::string::npos);
  EXPECT_NE(output.text.find("343 passed, 1 failed"), std::string::npos);
}

TEST(VectorsCommandTest, DamagedCasesAreNamedByTheirFile) {
  const testing::TemporaryFolder folder;
  std::filesystem::copy(kVectors, folder.path(), std::filesystem::copy_options::recursive);
  const std::string cases = folder.path() + "/cases.json";
  for (const std::string text : {"{\"cases\": [", "{\"cases\": [{\"id\": 1}]}", "[]",
                                 "{\"cases\": []}", "{\"cases\": {}}"}) {
    std::ofstream(cases, std::ios::trunc) << text;
    const Output output = run("vectors " + folder.path());
    EXPECT_EQ(WEXITSTATUS(output.status), 2) << output.text;
    EXPECT_NE(output.text.find(cases), std::string::npos) << output.text;
    EXPECT_EQ(output.text.find("json.exception"), std::string::npos) << output.text;
  }
}

TEST(VectorsCommandTest, GradientsOfMoreInputsThanThereAreAreRefused) {
  const testing::TemporaryFolder folder;
  std::filesystem::copy(kVectors, folder.path(), std::filesystem::copy_options::recursive);
  std::ifstream file(kVectors + "/cases.json");
  std::string cases(std::istreambuf_iterator<char>(file), {});
  const std::string list = "\"grad_in\": [";
  ASSERT_NE(cases.find(list), std::string::npos);
  cases.replace(cases.find(list), list.size(), list + "null, null, null, null, null, null, ");
  std::ofstream(folder.path() + "/cases.json") << cases;
  const Output output = run("vectors --grad " + folder.path());
  EXPECT_EQ(WEXITSTATUS(output.status), 2) << output.text;
  EXPECT_NE(output.text.find("gradients in grad_in for"), std::string::npos) << output.text;
}

TEST(VectorsCommandTest, AFifoIsNotWaitedFor) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() + "/cases.json").c_str(), 0600), 0);
  const Output output = run("vectors " + folder.path());
  EXPECT_EQ(WEXITSTATUS(output.status), 2) << output.text;
  EXPECT_NE(output.text.find("no regular file"), std::string::npos) << output.text;
}

TEST(VectorsCommandTest, ThereIsOneCpu) {
  const Output output = run("vectors --device cpu:1 " + kVectors);
  EXPECT_EQ(WEXITSTATUS(output.status), 2) << output.text;
  EXPECT_NE(output.text.find("--device cpu:1: there is one cpu"), std::string::npos) << output.text;
}

TEST(VectorsCommandTest, MissingDirectoriesAreNamed) {
  const Output output = run("vectors /nonexistent");
  EXPECT_NE(output.status, 0);
  EXPECT_NE(output.text.find("/nonexistent/cases.json"), std::string::npos) << output.text;
}

}  // namespace
}  // namespace tenon
