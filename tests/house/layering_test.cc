// The order of the layers and the size of files, read from the sources.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "house/tree.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxLines = 600;
constexpr std::size_t kMaxColumns = 100;

// Layers, lowest first, and what each may include besides itself.
const std::map<std::string, std::set<std::string>>& allowed_includes() {
  static const std::map<std::string, std::set<std::string>> kAllowed = {
      {"base", {}},
      {"device", {"base"}},
      {"heap", {"base"}},
      {"memory", {"base", "device", "heap"}},
      {"trace", {"base", "device", "heap", "memory"}},
      {"lab", {"base", "device", "heap", "memory", "trace"}},
      {"tensor", {"base", "device", "memory"}},
      {"ops", {"base", "device", "memory", "tensor"}},
      {"autograd", {"base", "device", "memory", "tensor", "ops"}},
      {"nn", {"base", "device", "memory", "tensor", "ops", "autograd"}},
      {"distributed", {"base", "device", "memory", "tensor", "ops", "autograd", "nn"}},
  };
  return kAllowed;
}

std::vector<fs::path> sources_under(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::exists(folder)) return files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string kind = entry.path().extension().string();
    if (entry.is_regular_file() && (kind == ".h" || kind == ".cc")) files.push_back(entry.path());
  }
  return files;
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Characters, not bytes: a byte of the form 10xxxxxx goes on with one.
std::size_t columns(const std::string& line) {
  std::size_t count = 0;
  for (const char c : line) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

using testing::kRoot;
const fs::path kLayers = kRoot / "src/tenon";

TEST(LayeringTest, EachLayerIncludesOnlyWhatItMay) {
  const std::regex include(R"(^\s*#\s*include\s*"tenon/([a-z_]+)/)");
  std::size_t seen = 0;
  for (const fs::path& file : sources_under(kLayers)) {
    const std::string layer = fs::relative(file, kLayers).begin()->string();
    const auto allowed = allowed_includes().find(layer);
    ASSERT_NE(allowed, allowed_includes().end()) << layer << " is no layer: " << file;
    std::size_t number = 0;
    for (const std::string& line : lines_of(file)) {
      ++number;
      std::smatch match;
      if (!std::regex_search(line, match, include)) continue;
      ++seen;
      const std::string other = match[1];
      EXPECT_TRUE(other == layer || allowed->second.contains(other))
          << file.string() << ":" << number << ": " << layer << " may not include " << other;
    }
  }
  EXPECT_GT(seen, 100u) << "the test reads no includes";
}

// Inside memory/: what each room may include besides itself and the files at the top. The files at
// the top include no room, except those that list or choose policies.
const std::map<std::string, std::set<std::string>>& allowed_rooms() {
  static const std::map<std::string, std::set<std::string>> kAllowed = {
      {"front", {}},
      {"gpu", {"front"}},
      {"placement", {"front", "gpu", "system"}},
      {"unified", {"front"}},
      {"system", {"front"}},
      {"host", {"front"}},
      {"adaptors", {}},
      {"scopes", {"front"}},
      {"compat", {"placement", "gpu", "scopes", "unified", "adaptors", "system"}},
      {"growable", {"front"}},
  };
  return kAllowed;
}

TEST(LayeringTest, TheRoomsOfMemoryIncludeOnlyWhatTheyMay) {
  const std::set<std::string> choosing = {"policies.cc", "registry.cc"};
  const std::regex include(R"(^\s*#\s*include\s*"tenon/memory/([a-z_]+)/)");
  std::size_t seen = 0;
  for (const fs::path& file : sources_under(kLayers / "memory")) {
    const fs::path inside = fs::relative(file, kLayers / "memory");
    const bool at_top = !inside.has_parent_path();
    if (at_top && choosing.contains(inside.string())) continue;
    const std::string room = at_top ? "" : inside.begin()->string();
    const auto allowed = allowed_rooms().find(room);
    ASSERT_TRUE(at_top || allowed != allowed_rooms().end()) << room << " is no room: " << file;
    for (const std::string& line : lines_of(file)) {
      std::smatch match;
      if (!std::regex_search(line, match, include)) continue;
      ++seen;
      const std::string other = match[1];
      EXPECT_TRUE(!at_top && (other == room || allowed->second.contains(other)))
          << inside.string() << " may not include " << other;
    }
  }
  EXPECT_GT(seen, 50u) << "the test reads no includes";
}

TEST(LayeringTest, EachLayerHasAReadme) {
  for (const fs::directory_entry& entry : fs::directory_iterator(kLayers)) {
    if (!entry.is_directory()) continue;
    const fs::path readme = entry.path() / "README.md";
    ASSERT_TRUE(fs::exists(readme)) << readme;
    const std::vector<std::string> lines = lines_of(readme);
    EXPECT_GE(lines.size(), 3u) << readme << " says nothing";
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    EXPECT_NE(text.find("May include"), std::string::npos)
        << readme << " does not say what the layer may include";
  }
}

// libc++ 14 has neither range algorithms nor views (docs/README.md lists the compilers). `make
// test-clang` builds these layers and their tests over it.
TEST(HouseTest, TheAllocatorsAndTheLabUseNoRangeAlgorithms) {
  for (const char* layer : {"base", "device", "heap", "memory", "trace", "lab"})
    for (const fs::path& folder : {kLayers / layer, kRoot / "tests" / layer})
      for (const fs::path& file : sources_under(folder)) {
        const std::vector<std::string> lines = lines_of(file);
        for (std::size_t i = 0; i < lines.size(); ++i)
          EXPECT_FALSE(lines[i].find("std::ranges::") != std::string::npos ||
                       lines[i].find("std::views::") != std::string::npos)
              << file.string() << ":" << i + 1 << ": use the algorithms of iterators";
      }
}

TEST(HouseTest, FilesAreShortAndLinesFit) {
  for (const char* folder : {"src", "tests", "bench", "tools", "examples"})
    for (const fs::path& file : sources_under(kRoot / folder)) {
      const std::vector<std::string> lines = lines_of(file);
      EXPECT_LE(lines.size(), kMaxLines) << file.string() << ": split it";
      for (std::size_t i = 0; i < lines.size(); ++i)
        EXPECT_LE(columns(lines[i]), kMaxColumns) << file.string() << ":" << i + 1;
    }
}

TEST(HouseTest, HeadersAreGuardedOnce) {
  for (const fs::path& file : sources_under(kLayers)) {
    if (file.extension() != ".h") continue;
    // Included once for each instruction set, with a guard that toggles.
    if (file.stem().string().ends_with("-inl")) continue;
    std::size_t guards = 0;
    for (const std::string& line : lines_of(file)) guards += line == "#pragma once" ? 1 : 0;
    EXPECT_EQ(guards, 1u) << file;
  }
}

}  // namespace
}  // namespace tenon
