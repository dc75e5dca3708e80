// The prose of pages and of public headers: at most one semicolon in a paragraph, and in pages at
// most 30 words in a sentence. Code, tables, drawings and what stands between backquotes do not
// count; a quoted name is one word.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "house/tree.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using testing::kRoot;

struct Paragraph {
  std::size_t line;
  std::string text;
};

// Paragraphs of prose lines; an empty one ends a paragraph.
class Paragraphs {
 public:
  void add(std::size_t number, const std::string& text, bool begins = false) {
    if (begins || text.empty()) open_ = false;
    if (text.empty()) return;
    if (!open_) found_.push_back({number, ""});
    open_ = true;
    found_.back().text += text + " ";
  }
  const std::vector<Paragraph>& found() const { return found_; }

 private:
  std::vector<Paragraph> found_;
  bool open_ = false;
};

// A list's item is a paragraph.
bool begins_item(const std::string& text) {
  static const std::regex kItem(R"(^\s*(-|\d+\.) .*)");
  return std::regex_match(text, kItem);
}

Paragraphs prose_of_page(const fs::path& page) {
  Paragraphs paragraphs;
  std::ifstream in(page);
  std::size_t number = 0;
  bool fenced = false, after_empty = true, indented = false;
  for (std::string line; std::getline(in, line); after_empty = line.empty()) {
    ++number;
    if (line.starts_with("```")) fenced = !fenced;
    indented = line.starts_with("    ") && (indented || after_empty);
    const bool table = line.find('|') == line.find_first_not_of(' ') && !line.empty();
    const bool prose = !fenced && !indented && !table && !line.starts_with("```");
    paragraphs.add(number, prose ? line : "", begins_item(line));
  }
  return paragraphs;
}

// Comments that stand on lines of their own. Code and tables in them are indented.
Paragraphs prose_of_header(const fs::path& header) {
  static const std::regex kComment(R"(^\s*// ?(.*)$)");
  Paragraphs paragraphs;
  std::ifstream in(header);
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::smatch match;
    const bool comment = std::regex_match(line, match, kComment);
    const std::string text = comment ? match[1].str() : "";
    const bool item = begins_item(text);
    const bool code = text.starts_with("  ") && !item;
    paragraphs.add(number, code ? "" : text, item);
  }
  return paragraphs;
}

void expect_few_semicolons(const fs::path& file, const Paragraphs& paragraphs) {
  static const std::regex kQuoted("`[^`]*`|<!--.*?-->|\"[^\"]*\"");
  for (const Paragraph& paragraph : paragraphs.found()) {
    const std::string prose = std::regex_replace(paragraph.text, kQuoted, "");
    EXPECT_LE(std::count(prose.begin(), prose.end(), ';'), 1)
        << file.string() << ":" << paragraph.line << ": make sentences of it";
  }
}

// Sentences end at ".", "?", "!" or ":" before a space.
void expect_short_sentences(const fs::path& file, const Paragraphs& paragraphs) {
  constexpr int kMostWords = 30;
  static const std::regex kLeftOut("<!--.*?-->|<[^>]*>|\\]\\([^)]*\\)");
  static const std::regex kName("`[^`]*`");
  for (const Paragraph& paragraph : paragraphs.found()) {
    std::istringstream words(
        std::regex_replace(std::regex_replace(paragraph.text, kLeftOut, ""), kName, "x"));
    int count = 0;
    std::string sentence;
    for (std::string word; words >> word;) {
      if (std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isalnum(c); }))
        ++count;
      sentence += word + " ";
      if (std::string(".?!:").find(word.back()) == std::string::npos) continue;
      EXPECT_LE(count, kMostWords) << file.string() << ":" << paragraph.line << ": " << sentence;
      count = 0;
      sentence.clear();
    }
  }
}

std::vector<fs::path> pages_of_prose() {
  std::vector<fs::path> pages = {kRoot / "README.md", kRoot / "CONTRIBUTING.md",
                                 kRoot / "CHANGELOG.md", kRoot / "SECURITY.md"};
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md" && entry.path().filename() != "results.md")
      pages.push_back(entry.path());  // results.md lists conditions
  return pages;
}

TEST(Prose, ParagraphsOfPagesHaveAtMostOneSemicolon) {
  for (const fs::path& page : pages_of_prose()) expect_few_semicolons(page, prose_of_page(page));
}

TEST(Prose, SentencesOfPagesAreShort) {
  for (const fs::path& page : pages_of_prose()) expect_short_sentences(page, prose_of_page(page));
}

TEST(Prose, RowsOfTablesStandOnOneLine) {
  static const std::regex kCutRow(R"(^ *\|.*[^|\s]\s*$)");
  for (const fs::path& page : pages_of_prose()) {
    std::ifstream in(page);
    bool fenced = false;
    std::size_t number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      if (line.starts_with("```")) fenced = !fenced;
      EXPECT_TRUE(fenced || !std::regex_match(line, kCutRow)) << page << ":" << number;
    }
  }
}

TEST(Prose, ParagraphsOfPublicHeadersHaveAtMostOneSemicolon) {
  std::ifstream list(kRoot / "docs/public_headers.txt");
  std::size_t count = 0, paragraphs = 0;
  for (std::string name; list >> name; ++count) {
    const fs::path header = kRoot / "src/tenon" / name;
    const Paragraphs prose = prose_of_header(header);
    paragraphs += prose.found().size();
    expect_few_semicolons(header, prose);
  }
  EXPECT_GT(count, 100u);
  EXPECT_GT(paragraphs, 1000u);
}

}  // namespace
}  // namespace tenon
