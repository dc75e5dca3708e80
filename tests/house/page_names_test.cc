// Files that the pages name are there.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace tenon {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = TENON_SOURCE_DIR;
// NVIDIA's; and the pages that name files of PyTorch's sources.
const std::set<std::string> kOthers = {"cuda.h"};
const std::set<std::string> kPagesOnPyTorch = {"forecast.md"};

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> files_under(const std::vector<const char*>& folders) {
  std::vector<fs::path> found;
  for (const char* folder : folders)
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / folder))
      if (entry.is_regular_file()) found.push_back(entry.path());
  return found;
}

// Names of files that a page has its reader write.
std::set<std::string> names_made_by(const std::string& page) {
  static const std::regex kMade(R"((?:<!--|//) file: (\S+))");
  std::set<std::string> names;
  for (std::sregex_iterator at(page.begin(), page.end(), kMade), end; at != end; ++at)
    names.insert(fs::path((*at)[1].str()).filename());
  return names;
}

TEST(PageNames, EachSourceThatAPageNamesIsThere) {
  std::set<std::string> there = kOthers;
  for (const fs::path& file : files_under({"src", "tests", "tools", "bindings", "bench", "examples",
                                           "scripts", "data", "viewer/src"}))
    there.insert(file.filename());
  static const std::regex kNamed(R"(`([\w./-]*[\w-]\.(?:h|cc|c|py|sh|comp|glsl))`)");
  std::size_t count = 0;
  for (const fs::path& page : files_under({"docs", "src"})) {
    if (page.extension() != ".md" || kPagesOnPyTorch.contains(page.filename())) continue;
    const std::string text = text_of(page);
    const std::set<std::string> made = names_made_by(text);
    for (std::sregex_iterator at(text.begin(), text.end(), kNamed), end; at != end; ++at) {
      const std::string name = fs::path((*at)[1].str()).filename();
      EXPECT_TRUE(there.contains(name) || made.contains(name))
          << page.string() << " names " << (*at)[1];
      ++count;
    }
  }
  EXPECT_GT(count, 100u) << "the test finds no names";
}

}  // namespace
}  // namespace tenon
