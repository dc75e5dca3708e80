// Every target over its corpus, as it is and damaged. tests/fuzz/CMakeLists.txt has the long way.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/damage.h"
#include "target.h"
#include "tenon/base/random.h"

namespace tenon::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> corpus_of(std::string_view target) {
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::directory_iterator(fs::path(TENON_SOURCE_DIR "/tests/fuzz/corpus") / target))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> contents;
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return contents;
}

class FuzzCorpus : public ::testing::TestWithParam<Target> {};

TEST_P(FuzzCorpus, IsAcceptedOrRefused) {
  const std::vector<std::string> corpus = corpus_of(GetParam().name);
  std::size_t accepted = 0;
  for (const std::string& bytes : corpus) accepted += GetParam().run(bytes) ? 1u : 0u;
  EXPECT_GE(corpus.size(), 3u);
  EXPECT_GE(accepted, 1u) << "a corpus of refusals reaches nothing";
}

TEST_P(FuzzCorpus, IsAcceptedOrRefusedWhenDamaged) {
  const bool is_costly = GetParam().name == "policies" || GetParam().name == "c_calls" ||
                         GetParam().name == "checkpoint";
  const std::uint64_t rounds = is_costly ? 20 : 300;
  for (const std::string& bytes : corpus_of(GetParam().name))
    for (std::uint64_t seed = 0; seed < rounds; ++seed) {
      SCOPED_TRACE(seed);
      Random random(seed);
      GetParam().run(damaged(bytes, random));
    }
}

INSTANTIATE_TEST_SUITE_P(All, FuzzCorpus, ::testing::ValuesIn(targets()),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace tenon::fuzz
