// Each block of code on a page, fenced or indented, is run or compiled by a test. kNotRun lists the
// lines that none runs, with the reason. Blocks marked `text` are drawings, formulas and formats.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
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

// How a line begins, and why no test runs it.
const std::map<std::string, std::string> kNotRun = {
    {"pip install torch dist/", "scripts/forecast_environment.sh installs both in other folders"},
    {"export PYTHONPATH=", "the next command needs a GPU"},
    {"python train.py", "needs a GPU: tests/pytorch/check_pages.py runs its lines over a stand-in"},
    {"cmake --preset release -B build-mpi",
     "scripts/test_distributed.sh configures the same for each MPI, in other folders"},
    {"until timeout", "restarts for up to an hour: scripts/bench_distributed.py kills and resumes"},
    {"$(test -f run/model", "part of the same loop"},
    {"cmake --preset release && cmake --build", "builds the tree with the reader's own files"},
    {"ctest --test-dir build -R", "tests the tree with the reader's own files"},
    {"add(\"rounding\"", "a line for a file of the tree"},
    {"{\"recycling\"", "a line for a file of the tree"},
    {"bool map(std::uintptr_t", "parts of a class: docs/embed.md has a whole one, which is run"},
    {"struct FirstFit", "a line for a file of the tree"},
    {"PYTHONPATH=mosaic", "needs Mosaic's sources: bench/run.py lab_peers runs it"},
    {"MEMORY_VIZ=", "needs PyTorch's sources: make test-pytorch opens the snapshots"},
    {"bench/lab_peers/compare.py", "a benchmark: bench/run.py lab_peers runs it"},
};

struct Block {
  std::string page;  // relative to the root
  std::size_t line;
  std::string language;
  std::string before;  // the line before it that is not empty
  std::vector<std::string> body;
};

std::string trimmed(const std::string& line) {
  const std::size_t first = line.find_first_not_of(' ');
  return first == std::string::npos ? "" : line.substr(first);
}

std::vector<Block> blocks_of(const fs::path& page) {
  std::vector<Block> found;
  std::ifstream in(page);
  bool fenced = false, indented = false, after_empty = true;
  std::size_t number = 0;
  std::string before;
  const auto begin = [&](const std::string& language) {
    found.push_back({fs::relative(page, kRoot).string(), number, language, before, {}});
  };
  for (std::string line; std::getline(in, line); after_empty = line.empty()) {
    ++number;
    if (line.starts_with("```")) {
      fenced = !fenced;
      if (fenced) begin(line.substr(3));
      continue;
    }
    indented = !fenced && line.starts_with("    ") && (indented || after_empty);
    if (indented && after_empty) begin("");
    if (fenced || indented) found.back().body.push_back(line);
    else if (!line.empty()) before = line;
  }
  return found;
}

// The test that takes the whole block from its page, if there is one.
std::string runner_of(const Block& block) {
  static const std::string makefile = text_of(kRoot / "Makefile");
  static const std::string compiled = text_of(kRoot / "tests/install/blocks.py");
  static const std::string pytorch = text_of(kRoot / "scripts/test_pytorch.sh");
  const std::string& kind = block.language;
  if (makefile.find("pages.sh $(BUILD)") == std::string::npos) return "";
  const std::string installed = makefile.substr(makefile.find("pages.sh $(BUILD)"));
  const bool is_file = std::regex_search(block.body.front(), std::regex("^(//|#) file: "));
  if ((is_file || kind == "sh") &&
      installed.substr(0, installed.find('\n')).find(" " + block.page) != std::string::npos)
    return "tests/install/pages.sh";
  if (kind == "cpp" && block.before.starts_with("<!-- file: ")) return "tests/install/blocks.py";
  if (kind == "cpp" && compiled.find("\"" + block.page + "\"") != std::string::npos)
    return "tests/install/blocks.py";
  if ((kind == "python" || kind == "sh") && block.page == "docs/python.md")
    return "bindings/python/tests/test_page.py";
  if (kind == "python" && pytorch.find(block.page) != std::string::npos)
    return "scripts/test_pytorch.sh";
  if (block.page == "docs/forecast.md" && (kind == "python" || kind.empty()))
    return "tests/forecast/test_page.py";
  if (block.body.front().starts_with("$ ") || block.body.front().starts_with("time_us,"))
    return "tests/command/pages_test.cc";
  return "";
}

bool has_tests(const std::string& program, const std::string& filter) {
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "tests" / program))
    if (entry.path().extension() == ".cc" &&
        std::regex_search(text_of(entry.path()),
                          std::regex("(TEST(_[FP])?|INSTANTIATE_\\w+)\\([^)]*" + filter)))
      return true;
  return false;
}

// A test that runs the line, or looks up what it names.
std::string runner_of_line(const Block& block, const std::string& line) {
  static const std::regex kTenon(
      R"re(^(\$ )?((mpirun|srun) .*|run=")?(build/)?tenon .*|TENON_RECORD=\S+ \./program.*)re");
  static const std::regex kNamed(R"(^(make [a-z]|build/bench/\w).*)");
  static const std::regex kTests(
      R"(^build/tests/tenon_(\w+)_tests(?: --gtest_filter='\*(\w+)\*')?$)");
  if (std::regex_match(line, kTenon)) return "tests/command/pages_test.cc";
  if (std::regex_match(line, kNamed)) return "tests/house/page_names_test.cc";
  if (block.page == "docs/forecast.md" && line.starts_with("python -m tenon."))
    return "tests/forecast/test_page.py";
  std::smatch match;
  if (std::regex_match(line, match, kTests) && has_tests(match[1], match[2]))
    return "tests/house/page_blocks_test.cc";
  return "";
}

// The reason why the line is not run; empty where there is none.
std::string reason_of(const std::string& line, std::set<std::string>& used) {
  for (const auto& [beginning, reason] : kNotRun)
    if (line.starts_with(beginning)) return used.insert(beginning), reason;
  return "";
}

TEST(PageBlocks, EachIsRunByATestOrListedWithTheReason) {
  std::vector<fs::path> pages = {kRoot / "README.md", kRoot / "CONTRIBUTING.md"};
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md" && entry.path().filename() != "reference.md" &&
        entry.path().filename() != "results.md")
      pages.push_back(entry.path());
  std::map<std::string, std::size_t> run;
  std::vector<std::string> not_run;
  std::set<std::string> used;
  for (const fs::path& page : pages)
    for (const Block& block : blocks_of(page)) {
      if (block.language == "text") continue;
      if (const std::string runner = runner_of(block); !runner.empty()) {
        EXPECT_TRUE(fs::exists(kRoot / runner));
        ++run[runner];
        continue;
      }
      const bool commands = block.language == "sh" || block.language.empty();
      for (const std::string& indented : block.body) {
        const std::string line = trimmed(indented);
        if (commands && (line.empty() || line.starts_with("#"))) continue;
        if (const std::string runner = runner_of_line(block, line); !runner.empty()) {
          ++run[runner];
        } else {
          const std::string place = block.page + ":" + std::to_string(block.line) + " " + line;
          const std::string reason = reason_of(line, used);
          EXPECT_FALSE(reason.empty()) << place << ": no test runs it; mark drawings as ```text";
          not_run.push_back(place + " (" + reason + ")");
        }
        if (!commands) break;  // its first line stands for a block of a program
      }
    }
  for (const auto& [beginning, reason] : kNotRun)
    EXPECT_TRUE(used.contains(beginning)) << "no page has a line that begins: " << beginning;
  for (const auto& [runner, count] : run) std::cout << count << " by " << runner << "\n";
  std::cout << not_run.size() << " not run:\n";
  for (const std::string& line : not_run) std::cout << "  " << line << "\n";
}

}  // namespace
}  // namespace tenon
