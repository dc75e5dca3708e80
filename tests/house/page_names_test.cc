// Files that the pages name are there.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "house/tree.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;

using testing::kRoot;
using testing::text_of;
// NVIDIA's; and the pages that name files of PyTorch's sources.
const std::set<std::string> kOthers = {"cuda.h"};
const std::set<std::string> kPagesOnPyTorch = {"forecast.md"};

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

// `make NAME` and `build/bench/NAME`, in sentences and in blocks.
TEST(PageNames, EachTargetAndBenchmarkThatAPageNamesIsThere) {
  const std::string makefile = "\n" + text_of(kRoot / "Makefile");
  std::set<std::string> programs;
  for (const fs::path& file : files_under({"bench"}))
    programs.insert("bench_" + file.stem().string());
  static const std::regex kTarget(R"((?:`|\n)make ([a-z][a-z0-9-]*))");
  static const std::regex kBench(R"(build/bench/(\w+))");
  std::size_t targets = 0, benchmarks = 0;
  std::vector<fs::path> pages = files_under({"docs", "bench"});
  pages.insert(pages.end(), {kRoot / "README.md", kRoot / "CONTRIBUTING.md"});
  for (const fs::path& page : pages) {
    if (page.extension() != ".md") continue;
    const std::string text = text_of(page);
    const std::sregex_iterator end;
    for (std::sregex_iterator at(text.begin(), text.end(), kTarget); at != end; ++at, ++targets) {
      const std::regex rule("\n([a-z0-9 -]* )?" + (*at)[1].str() + "[ :]");
      EXPECT_TRUE(std::regex_search(makefile, rule)) << page << " names make " << (*at)[1];
    }
    for (std::sregex_iterator at(text.begin(), text.end(), kBench); at != end; ++at, ++benchmarks)
      EXPECT_TRUE(programs.contains((*at)[1])) << page << " names build/bench/" << (*at)[1];
  }
  EXPECT_GT(targets, 20u);
  EXPECT_GT(benchmarks, 20u);
}

// Markdown shows a picture only where nothing stands between "]" and "(".
TEST(PageNames, EachPictureIsShownByAPage) {
  static const std::regex kShown(
      R"re((?:!\[[^\]]*\]\(|src="|srcset=")([\w./-]+\.(?:svg|png))[)"])re");
  static const std::regex kBroken(R"(!\[[^\]]*\]\s+\()");
  std::vector<fs::path> pages = files_under({"docs"});
  pages.push_back(kRoot / "README.md");
  std::set<fs::path> shown;
  for (const fs::path& page : pages) {
    if (page.extension() != ".md") continue;
    const std::string text = text_of(page);
    EXPECT_FALSE(std::regex_search(text, kBroken)) << page << ": a space before a picture's name";
    for (std::sregex_iterator at(text.begin(), text.end(), kShown), end; at != end; ++at) {
      const fs::path picture = page.parent_path() / (*at)[1].str();
      EXPECT_TRUE(fs::exists(picture)) << page << " shows " << (*at)[1];
      shown.insert(picture.lexically_normal());
    }
  }
  for (const fs::path& file : pages)
    if (file.extension() == ".svg" || file.extension() == ".png") {
      EXPECT_TRUE(shown.contains(file.lexically_normal())) << "no page shows " << file;
    }
}

}  // namespace
}  // namespace tenon
