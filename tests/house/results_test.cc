// Measured figures stand in bench/results; pages cite them, by the rule of scripts/results.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "house/tree.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using tenon::testing::kRoot;
using tenon::testing::text_of;
constexpr std::size_t kMostInReadme = 20;
constexpr std::ptrdiff_t kMostLinesInReadme = 100;

std::map<std::string, json> records() {
  std::map<std::string, json> found;
  for (const auto& entry : fs::directory_iterator(kRoot / "bench/results"))
    found[entry.path().stem()] = json::parse(text_of(entry.path()));
  return found;
}

std::vector<fs::path> pages() {
  std::vector<fs::path> found = {kRoot / "README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  return found;
}

// The words of a line, one space between two; bars of tables are no words.
std::string words(std::string line) {
  for (char& c : line) c = c == '|' ? ' ' : c;
  std::istringstream in(line);
  std::string all;
  for (std::string word; in >> word;) all += (all.empty() ? "" : " ") + word;
  return all;
}

std::vector<std::string> parts_of(const std::string& reference) {
  std::istringstream in(reference);
  std::vector<std::string> parts;
  for (std::string part; std::getline(in, part, '/');) parts.push_back(part);
  return parts;
}

// The word that a reference names; empty if there is none.
std::string cited(const std::map<std::string, json>& all, const std::string& reference) {
  const std::vector<std::string> parts = parts_of(reference);
  if (parts.size() < 3 || !all.contains(parts.front())) return {};
  const json& lines = all.at(parts.front()).at("output");
  std::size_t line = 0;
  std::string rest;
  for (std::size_t i = 1; i + 1 < parts.size(); ++i, ++line) {
    const std::string wanted = parts[i] + " ";
    while (line < lines.size() && !(words(lines[line]) + " ").starts_with(wanted)) ++line;
    if (line == lines.size()) return {};
    rest = (words(lines[line]) + " ").substr(wanted.size());
  }
  std::istringstream in(rest);
  std::string word;
  for (int left = std::stoi(parts.back()); left > 0; --left)
    if (!(in >> word)) return {};
  return word;
}

double number(std::string text) {
  std::erase(text, ',');
  const std::size_t digit = text.find_first_of("0123456789");
  return digit == std::string::npos ? NAN : std::stod(text.substr(digit));
}

// Whether a figure is what was printed, rounded to the figure's decimals.
bool agrees(const std::string& figure, const std::string& printed) {
  const std::size_t point = figure.find('.');
  const double unit = point == std::string::npos
                          ? 1
                          : std::pow(10.0, -static_cast<double>(figure.size() - point - 1));
  return std::abs(number(figure) - number(printed)) <= unit / 2 * 1.0001;
}

const std::regex kCited(R"(([\d.,]*\d)<!--=([^>]*)-->)");

TEST(Results, EachCitedFigureIsTheRecordedOne) {
  const auto all = records();
  std::size_t count = 0;
  for (const fs::path& page : pages()) {
    const std::string text = text_of(page);
    for (std::sregex_iterator at(text.begin(), text.end(), kCited), end; at != end; ++at, ++count) {
      const std::string printed = cited(all, (*at)[2]);
      EXPECT_TRUE(!printed.empty() && agrees((*at)[1], printed))
          << page << " says " << (*at)[1] << "; bench/results says '" << printed << "' for "
          << (*at)[2] << ": run scripts/results.py";
    }
  }
  EXPECT_GT(count, 30u);
}

TEST(Results, ThePageHasEachRecordWithItsConditions) {
  const std::string page = text_of(kRoot / "docs/results.md");
  for (const auto& [name, record] : records()) {
    std::string output;
    for (const json& line : record.at("output")) output += line.get<std::string>() + "\n";
    EXPECT_NE(page.find("\n## " + name + "\n"), std::string::npos) << name;
    EXPECT_NE(page.find("`" + record.at("command").get<std::string>() + "`"), std::string::npos)
        << name;
    EXPECT_NE(page.find(output), std::string::npos) << name << ": run scripts/results.py";
    const json& conditions = record.at("conditions");
    if (conditions.value("exact", false)) continue;
    for (const char* key : {"date", "machine", "compiler", "load"})
      EXPECT_TRUE(conditions.contains(key)) << name << " has no " << key;
  }
}

TEST(Results, PageAndPicturesAreWhatTheScriptMakesOfTheRecords) {
  if (std::system("python3 -c '' >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  EXPECT_EQ(std::system("python3 -B " TENON_SOURCE_DIR "/scripts/results.py --check"), 0);
}

TEST(Results, TheReadmeIsOneScreenAndAHalf) {
  const std::string text = text_of(kRoot / "README.md");
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), kMostLinesInReadme);
}

// The README's figures are cited, and few. Outside of code, a number with a decimal point is one.
TEST(Results, TheReadmeTypesNoFigure) {
  const std::set<std::string> not_measured = {"0.1", "1.0", "1.1", "2.0", "2.11", "24.04", "3.9"};
  const std::string text = std::regex_replace(text_of(kRoot / "README.md"),
                                              std::regex("```[^`]*```"), "");
  const auto count =
      std::distance(std::sregex_iterator(text.begin(), text.end(), kCited), std::sregex_iterator());
  EXPECT_LE(static_cast<std::size_t>(count), kMostInReadme);
  EXPECT_GT(count, 0);
  const std::string rest = std::regex_replace(text, kCited, "");
  const std::regex decimal(R"(\d+\.\d+)");
  for (std::sregex_iterator at(rest.begin(), rest.end(), decimal), end; at != end; ++at)
    EXPECT_TRUE(not_measured.contains(at->str())) << at->str() << " is typed by hand";
}

}  // namespace
