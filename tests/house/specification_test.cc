// docs/specification.md names headers, tests and examples: each must exist.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "house/tree.h"

namespace {

namespace fs = std::filesystem;

using tenon::testing::kRoot;
using tenon::testing::text_of;

// "Suite.Name" of every test, and "Suite" of every suite.
std::set<std::string> all_tests() {
  const std::regex test(R"(TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\))");
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "tests")) {
    if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
    const std::string text = text_of(entry.path());
    for (std::sregex_iterator match(text.begin(), text.end(), test), end; match != end; ++match) {
      names.insert((*match)[1].str() + "." + (*match)[2].str());
      names.insert((*match)[1].str());
    }
  }
  return names;
}

TEST(SpecificationTest, EveryHeaderTestAndExampleThatItNamesExists) {
  const std::set<std::string> tests = all_tests();
  EXPECT_GT(tests.size(), 500u) << "the test reads no tests";
  const std::regex quoted("`([^`\n]+)`");
  const std::regex path(R"([a-z_/0-9]+/[a-z_0-9]+\.(h|cc|json))");
  const std::regex test_name(R"((?:\w+/)?([A-Z]\w+)\.([A-Z*]\w*))");
  std::ifstream in(kRoot / "docs/specification.md");
  std::size_t number = 0, headers = 0, named = 0, rows = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.starts_with("| ") || line.starts_with("| contract")) continue;
    ++rows;
    for (std::sregex_iterator it(line.begin(), line.end(), quoted), end; it != end; ++it) {
      const std::string name = (*it)[1];
      std::smatch parts;
      if (std::regex_match(name, path)) {
        ++headers;
        EXPECT_TRUE(fs::exists(kRoot / "src/tenon" / name) || fs::exists(kRoot / name))
            << "specification.md:" << number << ": there is no " << name;
      } else if (std::regex_match(name, parts, test_name)) {
        ++named;
        const std::string suite = parts[1];  // without the name that it was instantiated by
        const std::string wanted = parts[2] == "*" ? suite : suite + "." + parts[2].str();
        EXPECT_TRUE(tests.contains(wanted))
            << "specification.md:" << number << ": there is no test " << name;
      }
    }
  }
  EXPECT_GT(rows, 100u);
  EXPECT_GT(headers, 100u);
  EXPECT_GT(named, 150u);
}

}  // namespace
