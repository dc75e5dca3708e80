// Many recordings side by side: finding files, choosing one setting, outliers, kept answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/lab/fleet/answer_store.h"
#include "tenon/lab/fleet/fleet.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

const std::string kTrace =
    "time_us,op,id,size,stream\n0,alloc,0,1000,0\n5,free_completed,0,1000,0\n";

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::vector<std::string> paths_of(const std::vector<FoundFile>& files) {
  std::vector<std::string> paths;
  for (const FoundFile& file : files) paths.push_back(file.path);
  return paths;
}

class FoundFilesTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }
  FoundFiles find() const { return find_files(folder_.path(), at("results")); }
  const TemporaryFolder folder_;
};

TEST_F(FoundFilesTest, AreRegularFilesAtAnyDepthByPath) {
  for (const char* folder : {"b", "b/deep", "results", "old.fleet", ".hidden"})
    std::filesystem::create_directory(at(folder));
  for (const char* file : {"c", "a", "b/deep/x", "b/y", "results/r", "old.fleet/o", ".hidden/h",
                           ".dot"})
    write(at(file), "1234");
  const FoundFiles found = find();
  EXPECT_THAT(paths_of(found.files), ElementsAre("a", "b/deep/x", "b/y", "c"));
  EXPECT_EQ(found.files[0].bytes, 4u);
  EXPECT_TRUE(found.left_out.empty());
}

TEST_F(FoundFilesTest, LinksThatLeadBackEnd) {
  std::filesystem::create_directory(at("b"));
  write(at("b/file"), "1");
  std::filesystem::create_directory_symlink("..", at("b/up"));
  std::filesystem::create_directory_symlink("b", at("c"));
  std::filesystem::create_symlink("self", at("self"));
  std::filesystem::create_symlink("b/file", at("d"));
  const FoundFiles found = find();
  EXPECT_THAT(paths_of(found.files), ElementsAre("b/file", "d"));
  ASSERT_EQ(found.left_out.size(), 3u);
  EXPECT_EQ(found.left_out[0].path, "b/up");
  EXPECT_THAT(found.left_out[0].reason, HasSubstr("read already"));
  EXPECT_EQ(found.left_out[1].path, "c");
  EXPECT_EQ(found.left_out[2].path, "self");
}

TEST_F(FoundFilesTest, AFifoIsNotOpened) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const FoundFiles found = find();
  EXPECT_TRUE(found.files.empty());
  ASSERT_EQ(found.left_out.size(), 1u);
  EXPECT_EQ(found.left_out[0].reason, "a FIFO, not a file");
}

TEST_F(FoundFilesTest, RefuseWhatIsNoFolderOrItsOwnResults) {
  write(at("file"), "1");
  EXPECT_THROW(find_files(at("file"), at("results")), InvalidArgument);
  EXPECT_THROW(find_files(at("nothing"), at("results")), InvalidArgument);
  EXPECT_THROW(find_files(folder_.path(), folder_.path()), InvalidArgument);
}

FleetFile file_with(const std::string& path, std::uint64_t live, std::uint64_t recorded,
                    std::vector<std::optional<std::uint64_t>> reserved) {
  FleetFile file{path, 1, {}};
  file.answer.live_peak_bytes = live;
  file.answer.state = "passed";
  file.answer.cause = "activations";
  file.answer.cause_bytes = live / 2;
  file.answer.categories = {{"activations", live / 2}, {"weights", live / 4}};
  file.answer.replayed = true;
  file.answer.recorded_reserved_bytes = file.answer.best_reserved_bytes = recorded;
  file.answer.reserved_bytes = std::move(reserved);
  return file;
}

TEST(FleetTest, TheSettingWithTheLeastSumServesAll) {
  const std::vector<std::string> settings = {"", "a:1", "b:1"};
  const FleetComparison found = compare_fleet(
      {file_with("x", 100, 1000, {1000, 900, 500}), file_with("y", 100, 1000, {900, 600, 1100})},
      settings);
  EXPECT_EQ(found.settings[found.for_all].conf, "a:1");
  EXPECT_EQ(found.settings[found.for_all].total_bytes, 1500u);
  EXPECT_EQ(found.recorded.total_bytes, 2000u);
  EXPECT_EQ(found.least_each.total_bytes, 1100u);
  const FleetSetting& other = found.settings[1];
  EXPECT_EQ(other.conf, "b:1");
  EXPECT_EQ(other.worse_files, 1u);
  EXPECT_EQ(other.most_worse_bytes, 100u);
  EXPECT_EQ(other.most_worse_file, 1u);
  EXPECT_EQ(other.most_bytes, 1100u);
}

TEST(FleetTest, OfNearlyEqualSettingsTheOneWithFewestKeys) {
  const std::vector<std::string> settings = {"", "a:1", "a:1,b:[1:1,>:2],c:3"};
  const auto chosen = [&](std::uint64_t one, std::uint64_t three) {
    const FleetComparison found =
        compare_fleet({file_with("x", 100, 9000, {9000, one, three})}, settings);
    return found.settings[found.for_all].conf;
  };
  EXPECT_EQ(chosen(1004, 1000), "a:1");
  EXPECT_EQ(chosen(1006, 1000), settings[2]);
}

TEST(FleetTest, ASettingServesAllOnlyWhereEveryFileCanUseIt) {
  const FleetComparison found = compare_fleet(
      {file_with("x", 100, 1000, {1000, 1}), file_with("y", 100, 1000, {1000, std::nullopt})},
      {"", "a:1"});
  ASSERT_EQ(found.settings.size(), 1u);
  EXPECT_EQ(found.settings[0].conf, "");
}

TEST(FleetTest, FilesWithoutAnAnswerCountNowhere) {
  FleetFile unread{"z", 1, no_answer("z: damaged")};
  const FleetComparison found =
      compare_fleet({file_with("x", 100, 1000, {1000}), unread}, {""});
  EXPECT_THAT(found.read, ElementsAre(0u));
  EXPECT_THAT(found.unread, ElementsAre(1u));
  ASSERT_EQ(found.causes.size(), 1u);
  EXPECT_EQ(found.causes[0].files, 1u);
  EXPECT_EQ(found.categories[1].bytes, 25u);
}

FleetFile file_without_history(const std::string& path, std::uint64_t live) {
  FleetFile file = file_with(path, live, 0, {});
  file.answer.state = "no_history";
  file.answer.replayed = false;
  return file;
}

TEST(FleetTest, FilesWithoutHistoryCountInNoOtherPart) {
  const FleetComparison found = compare_fleet(
      {file_with("x", 100, 1000, {1000}), file_without_history("z", 7000)}, {""});
  EXPECT_THAT(found.read, ElementsAre(0u, 1u));
  EXPECT_THAT(found.judged, ElementsAre(0u));
  EXPECT_THAT(found.no_history, ElementsAre(1u));
  ASSERT_EQ(found.states.size(), 2u);
  EXPECT_EQ(found.causes[0].files, 1u);
  EXPECT_EQ(found.categories[0].bytes, 50u);
}

TEST(FleetTest, NamesSomeOfManyFilesWithoutHistory) {
  FleetReport report;
  for (int i = 100; i < 160; ++i)
    report.files.push_back(file_without_history("f" + std::to_string(i), 4096));
  report.comparison = compare_fleet(report.files, {""});
  const std::string text = fleet_text(report);
  EXPECT_THAT(text, HasSubstr("0 explained, 0 by replay too, 60 without history, 0 could not"));
  EXPECT_THAT(text, HasSubstr("- no history: 60 files, live when they were taken: 240 KiB in all"));
  EXPECT_THAT(text, HasSubstr("_record_memory_history()"));
  EXPECT_THAT(text, HasSubstr("- f149: 4 KiB live\n\n... and 10 more, in the JSON."));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("passed")));
  EXPECT_THAT(fleet_json(report), HasSubstr("\"f159\""));
}

// Files with these live peaks; all else is equal.
std::vector<FleetOutlier> outliers_of(const std::vector<std::uint64_t>& live_peaks) {
  std::vector<FleetFile> files;
  for (const std::uint64_t live : live_peaks)
    files.push_back(file_with("x" + std::to_string(files.size()), live, 2000, {2000}));
  return compare_fleet(files, {""}).outliers;
}

TEST(FleetTest, OutliersAreFarFromTheMedianByItAndByTheDeviations) {
  const std::vector<std::uint64_t> wide = {1000, 1100, 1200, 1300, 1400, 1500, 1600, 1700, 1800};
  EXPECT_TRUE(outliers_of(wide).empty());  // five times the median deviation of 200 is more
  std::vector<std::uint64_t> one_more = wide;
  one_more.push_back(3100);
  const std::vector<FleetOutlier> found = outliers_of(one_more);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].file, 9u);
  EXPECT_EQ(found[0].figure, "live peak in bytes");
  EXPECT_EQ(found[0].value, 3100);
  EXPECT_EQ(found[0].median, 1500);
  EXPECT_TRUE(outliers_of({1000, 1000, 1000, 1049}).empty());  // less than a twentieth
  EXPECT_EQ(outliers_of({1000, 1000, 1000, 1051}).size(), 1u);
}

TEST(FleetTest, NamesCannotLeaveTheirCells) {
  FleetReport report;
  report.files = {file_with("a|b`<script>\n", 100, 1000, {1000})};
  report.comparison = compare_fleet(report.files, {""});
  EXPECT_THAT(fleet_text(report), HasSubstr("| a\\|b\\`\\<script\\>\uFFFD |"));
}

TEST(FleetTest, AFileThatALimitFailedNeedsAHigherLimit) {
  FleetReport report;
  report.files = {file_with("x", 100, 1000, {1000})};
  report.files[0].answer.state = "limited";
  report.comparison = compare_fleet(report.files, {""});
  EXPECT_THAT(fleet_text(report), HasSubstr("| as it ran, with a higher limit |"));
}

TEST(FileAnswerTest, IsTheSameAfterJson) {
  FileAnswer answer = file_with("x", 100, 1000, {1000, std::nullopt}).answer;
  answer.reserved_peak_bytes = 7;
  const auto again = parse_file_answer(file_answer_json(answer));
  ASSERT_TRUE(again);
  EXPECT_EQ(file_answer_json(*again), file_answer_json(answer));
  EXPECT_EQ(again->reserved_bytes, answer.reserved_bytes);
  EXPECT_FALSE(parse_file_answer("{}"));
  EXPECT_FALSE(parse_file_answer(file_answer_json(answer).substr(0, 100)));
}

class AnswerStoreTest : public ::testing::Test {
 protected:
  AnswerStoreTest() { write(trace(), kTrace); }
  std::string trace() const { return folder_.path() + "/trace.csv"; }
  std::string results() const { return folder_.path() + "/results"; }
  // The only answer's file.
  std::string place() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(results()))
      if (entry.is_regular_file()) return entry.path();
    return "";
  }
  ino_t inode() const {
    struct stat info = {};
    ::stat(place().c_str(), &info);
    return info.st_ino;
  }
  // Whether the file is read again: every answer is a new file.
  bool answers_again(const FileQuestion& question = {}) const {
    const TemporaryFolder kept;
    std::filesystem::create_hard_link(place(), kept.path() + "/old");  // its number stays taken
    const ino_t before = inode();
    AnswerStore(results(), question).answer(trace());
    return inode() != before;
  }
  const TemporaryFolder folder_;
};

TEST_F(AnswerStoreTest, AFileIsAnsweredOnce) {
  const AnswerStore store(results(), {});
  EXPECT_FALSE(store.load(trace()));
  store.answer(trace());
  ASSERT_TRUE(store.load(trace()));
  EXPECT_EQ(store.load(trace())->live_peak_bytes, 1000u);
  EXPECT_FALSE(answers_again());
}

TEST_F(AnswerStoreTest, OtherContentsAnotherQuestionAndDamageAreAnsweredAgain) {
  AnswerStore(results(), {}).answer(trace());
  EXPECT_TRUE(answers_again({.effort = 0.2, .torch = {}}));
  EXPECT_TRUE(answers_again({.effort = 0.1, .torch = TorchVersion{2, 6}}));
  EXPECT_TRUE(answers_again());
  std::string other = kTrace;
  for (std::size_t at; (at = other.find("1000")) != other.npos;) other[at] = '2';
  write(trace(), other);  // as long as before
  EXPECT_TRUE(answers_again());
  EXPECT_EQ(AnswerStore(results(), {}).load(trace())->live_peak_bytes, 2000u);
  std::filesystem::resize_file(place(), std::filesystem::file_size(place()) - 5);
  EXPECT_TRUE(answers_again());
  EXPECT_FALSE(answers_again());
}

TEST_F(AnswerStoreTest, AFailureIsTriedAgain) {
  const AnswerStore store(results(), {});
  store.fail(trace(), "it crashed");
  EXPECT_EQ(store.load(trace())->error, "it crashed");
  store.answer(trace());
  EXPECT_EQ(store.load(trace())->error, "");
}

TEST_F(AnswerStoreTest, AFifoInThePlaceOfAnAnswerIsNotOpened) {
  const AnswerStore store(results(), {});
  store.answer(trace());
  const std::string fifo = place();
  std::filesystem::remove(fifo);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto message = [&](const std::function<void()>& use) -> std::string {
    try {
      use();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  const auto names_it = ::testing::AllOf(HasSubstr(fifo + ": "), HasSubstr("--results"));
  EXPECT_THAT(message([&] { store.answer(trace()); }), names_it);
  EXPECT_THAT(message([&] { store.fail(trace(), "it crashed"); }), names_it);
  EXPECT_THAT(message([&] { store.load(trace()); }), names_it);
}

TEST_F(AnswerStoreTest, AFileThatTheSystemDoesNotGiveIsTriedAgain) {
  std::filesystem::remove(trace());
  const AnswerStore store(results(), {});
  store.answer(trace());
  EXPECT_THAT(store.load(trace())->error, HasSubstr("cannot be read: No such file or directory"));
  EXPECT_TRUE(answers_again());
}

TEST_F(AnswerStoreTest, WhatIsWrongWithAFileIsItsAnswer) {
  write(trace(), "no trace");
  const AnswerStore store(results(), {});
  store.answer(trace());
  EXPECT_THAT(store.load(trace())->error, HasSubstr("trace.csv"));
  EXPECT_FALSE(answers_again());
}

}  // namespace
}  // namespace tenon
