// The commands of README.md and of the pages in docs: each is run. Where a page shows what a
// command prints (blocks whose commands begin with "$ "), that is compared. A line "..." of the
// page stands for any number of lines, and one that ends in " ..." is how a printed one begins.
// Commands under mpirun or srun, and those inside a sentence, are looked up with their options.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "support/command.h"
#include "support/temporary.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using testing::Outcome;
using testing::TemporaryFolder;
using testing::tenon_command;

const fs::path kRoot = TENON_SOURCE_DIR;

struct Command {
  std::string where;
  std::string arguments;
  std::vector<std::string> shown;  // what the page says it prints
  bool compared = false;
  bool launched = false;  // by a launcher of ranks
};

// Lines of code, fenced or indented.
std::vector<Command> commands_of(const fs::path& page) {
  static const std::regex kCommand(
      R"re(^ *(\$ )?((?:mpirun|srun) .*|run=")?(?:build/)?tenon ([^"]*)"?$)re");
  std::ifstream in(page);
  std::vector<Command> found;
  bool fenced = false, output = false;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.starts_with("```")) {
      fenced = !fenced;
      output = false;
      continue;
    }
    if (!fenced && !line.starts_with("    ")) continue;
    std::smatch match;
    if (std::regex_match(line, match, kCommand)) {
      output = match[1].matched;
      found.push_back({page.filename().string() + ":" + std::to_string(number), match[3], {},
                       output, match[2].matched});
    } else if (output && line.starts_with("$ ")) {
      output = false;
    } else if (output) {
      found.back().shown.push_back(line);
    }
  }
  return found;
}

// The files that pages name, in a folder of their own.
void fill(const fs::path& folder) {
  fs::create_directories(folder / "run");
  fs::create_directories(folder / "build");
  fs::create_symlink(TENON_COMMAND, folder / "build/tenon");
  fs::create_symlink(kRoot / "data", folder / "data");
  const fs::path snapshot = kRoot / "data/snapshots/gnn_sampled.pickle";
  for (const char* name : {"snapshot.pickle", "memory.pickle", "before.pickle", "after.pickle",
                           "huge.pickle", "run.pickle", "rank0.pickle", "rank1.pickle",
                           "run/rank_0.pickle", "run/rank_1.pickle"})
    fs::copy_file(snapshot, folder / name);
  fs::copy_file(kRoot / "data/traces/gnn_sampled.csv.zst", folder / "run.csv.zst");
  fs::copy_file(kRoot / "data/plans/C.1048576.csv", folder / "problem.csv");
  std::ofstream(folder / "run.csv") << "time_us,op,id,size,stream\n1,alloc,1,512,0\n";
  std::ofstream(folder / "engine.csv") << "time_us,op,id,size,stream\n1,alloc,1,512,0\n";
  fs::copy_file(kRoot / "tests/fuzz/corpus/json/gpu.json", folder / "trace.json.gz");
  std::ofstream(folder / "rmm_log.csv")
      << "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:01:000001,allocate,0x10,256,0\n";
}

// Those that would take minutes, wait for a browser, or need a policy that the page adds: their
// options are looked up instead.
bool only_looked_up(const std::string& arguments) {
  return std::regex_search(arguments, std::regex("^(train|generate|serve|vectors) |recycling|DIR"));
}

// What a subcommand says of itself; empty where there is none of that name.
const std::string& help_of(const std::string& name) {
  static std::map<std::string, std::string> known;
  const auto [entry, fresh] = known.try_emplace(name);
  if (!fresh) return entry->second;
  const Outcome help = tenon_command(name + " --help");
  if (help.status == 0) entry->second = help.out;
  for (const char* inner : {"fashion-mnist", "text"})
    if (name == "train") entry->second += tenon_command(name + " " + inner + " --help").out;
  return entry->second;
}

void look_up(const Command& command) {
  const std::string name = command.arguments.substr(0, command.arguments.find(' '));
  const std::string& all = help_of(name);
  EXPECT_FALSE(all.empty()) << command.where << ": there is no tenon " << command.arguments;
  static const std::regex kOption("--[a-z][a-z-]*");
  const std::string& text = command.arguments;
  for (std::sregex_iterator at(text.begin(), text.end(), kOption), end; at != end; ++at)
    EXPECT_NE(all.find(at->str()), std::string::npos) << command.where << " " << at->str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// A line of a page that ends in " ..." is the beginning of the printed one.
bool is_shown_as(const std::string& printed, const std::string& shown) {
  if (!shown.ends_with(" ...")) return printed == shown;
  return printed.starts_with(shown.substr(0, shown.size() - 4));
}

void compare(const Command& command, const std::string& printed) {
  const std::vector<std::string> lines = lines_of(printed);
  std::size_t at = 0;
  bool any = false;
  for (const std::string& wanted : command.shown) {
    if (wanted == "...") {
      any = true;
      continue;
    }
    while (any && at < lines.size() && !is_shown_as(lines[at], wanted)) ++at;
    ASSERT_LT(at, lines.size()) << command.where << " is to print: " << wanted;
    ASSERT_TRUE(is_shown_as(lines[at], wanted)) << command.where << " prints: " << lines[at];
    ++at;
    any = false;
  }
  EXPECT_TRUE(any || at == lines.size()) << command.where << " prints more than the page shows";
}

std::vector<fs::path> written_pages() {
  std::vector<fs::path> pages = {kRoot / "README.md", kRoot / "CONTRIBUTING.md"};
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md" && entry.path().filename() != "reference.md" &&
        entry.path().filename() != "results.md")
      pages.push_back(entry.path());
  return pages;
}

std::string text_of(const fs::path& page) {
  std::ifstream in(page);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Pages, EveryCommandInASentenceIsThereWithItsOptions) {
  static const std::regex kInline(R"(`(?:build/)?tenon\s+([a-z][^`]*)`)");
  std::size_t count = 0;
  for (const fs::path& page : written_pages()) {
    const std::string text = text_of(page);
    for (std::sregex_iterator at(text.begin(), text.end(), kInline), end; at != end; ++at, ++count)
      look_up({page.filename().string(),
               std::regex_replace((*at)[1].str(), std::regex("\\s+"), " "), {}});
  }
  EXPECT_GT(count, 50u) << "the test finds no commands";
}

// A block that begins like a trace is one.
TEST(Pages, EveryTraceOnAPageCanBeReplayed) {
  static const std::regex kTrace("\n```\n(time_us,[^`]*)```");
  std::size_t count = 0;
  for (const fs::path& page : written_pages()) {
    const std::string text = text_of(page);
    for (std::sregex_iterator at(text.begin(), text.end(), kTrace), end; at != end; ++at, ++count) {
      const TemporaryFolder folder;
      std::ofstream(folder.path() + "/page.csv") << (*at)[1];
      const Outcome outcome = tenon_command("replay --passes 0 " + folder.path() + "/page.csv");
      EXPECT_EQ(outcome.status, 0) << page << outcome.err;
    }
  }
  EXPECT_GT(count, 0u);
}

// `TENON_RECORD=FILE ./program`, here with a command of Tenon as the program.
TEST(Pages, EveryProgramThatIsRecordedWritesAFileThatCanBeExplained) {
  static const std::regex kRecorded(R"(TENON_RECORD=(\S+) \./program)");
  std::size_t count = 0;
  for (const fs::path& page : written_pages()) {
    const std::string text = text_of(page);
    for (std::sregex_iterator at(text.begin(), text.end(), kRecorded), end; at != end; ++at) {
      const TemporaryFolder folder;
      const std::string before = "cd " + folder.path() + "; TENON_RECORD=" + (*at)[1].str();
      const fs::path trace = kRoot / "data/traces/gnn_sampled.csv.zst";
      const std::string replay = "replay --passes 0 --policy caching ";
      const Outcome run = tenon_command(replay + trace.string(), before);
      EXPECT_EQ(run.status, 0) << page << run.err;
      const Outcome read = tenon_command("explain " + folder.path() + "/" + (*at)[1].str());
      EXPECT_EQ(read.status, 0) << page << " " << (*at)[0] << "\n" << read.err;
      ++count;
    }
  }
  EXPECT_GT(count, 1u);
}

TEST(Pages, EveryCommandWorksAndPrintsWhatThePageShows) {
  const std::regex kComment("\\s+#.*$");
  std::size_t run = 0, compared = 0;
  for (const fs::path& page : written_pages()) {
    const TemporaryFolder folder;
    fill(folder.path());
    for (const Command& command : commands_of(page)) {
      if (command.launched || only_looked_up(command.arguments)) {
        look_up(command);
        continue;
      }
      const std::string words = std::regex_replace(command.arguments, kComment, "");
      const Outcome outcome = tenon_command(words, "cd " + folder.path() + ";");
      EXPECT_EQ(outcome.status, 0) << command.where << " " << command.arguments << "\n"
                                   << outcome.err;
      if (command.compared) compare(command, outcome.out);
      compared += command.compared ? 1 : 0;
      ++run;
    }
  }
  EXPECT_GT(run, 30u);
  EXPECT_GT(compared, 4u);
}

}  // namespace
}  // namespace tenon
