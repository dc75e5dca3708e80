// tenon report, as a user at a shell and a browser meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "support/command.h"
#include "support/temporary.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using testing::contents;
using testing::Outcome;
using testing::TemporaryFile;
using testing::TemporaryFolder;
using testing::kGpt2;
using testing::tenon_command;
using namespace testing::pickled;
using Json = nlohmann::json;
namespace fs = std::filesystem;

const std::string kOther = TENON_SOURCE_DIR "/data/snapshots/gnn_sampled.pickle";

// A program that makes blocks of one size at each of these call sites and keeps them.
struct Site {
  std::string function;
  std::uint64_t bytes = 0;
};

std::string snapshot_of(const std::vector<Site>& sites) {
  std::vector<std::string> entries;
  std::uint64_t address = 1 << 20;
  std::int64_t time_us = 1;
  for (const Site& site : sites) {
    entries.push_back(entry_with("alloc", address, site.bytes, time_us++,
                                 {{"frames", list({frame(site.function, "train.py", 7)})}}));
    address += std::uint64_t{1} << 32;
  }
  return file(dict({{"segments", list({})}, {"device_traces", list({list(entries)})}}));
}

std::string write(const TemporaryFolder& folder, const std::string& name,
                  const std::string& bytes) {
  const std::string path = (fs::path(folder.path()) / name).string();
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(ReportCommand, WritesOnePageWithoutScripts) {
  const TemporaryFile page(".html");
  const Outcome report = tenon_command("report " + kGpt2 + " -o " + page.path());
  ASSERT_EQ(report.status, 0) << report.err;
  EXPECT_EQ(report.out, page.path() + "\n");
  const std::string html = page.contents();
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_THAT(html, HasSubstr("default-src 'none'; style-src 'unsafe-inline'"));
  for (const char* forbidden : {"<script", "<img", "<iframe", " src=", "<link", "@import", "url("})
    EXPECT_EQ(html.find(forbidden), html.npos) << forbidden;
  const Json view = Json::parse(tenon_command("view --json --policy none " + kGpt2).out);
  EXPECT_EQ(view["live_peak_bytes"], 7701353160);
  EXPECT_THAT(html, HasSubstr("7.17 GiB"));
  EXPECT_THAT(html, HasSubstr("<svg class=\"picture\""));
  EXPECT_THAT(html, Not(HasSubstr("id=\"ranks\"")));
}

TEST(ReportCommand, HasTheSettingsThatAdviseFinds) {
  const TemporaryFile page(".html");
  ASSERT_EQ(tenon_command("report " + kOther + " -o " + page.path()).status, 0);
  EXPECT_THAT(page.contents(), HasSubstr("<h2 id=\"advice\">Settings</h2>"));
  EXPECT_THAT(page.contents(), HasSubstr("export PYTORCH_ALLOC_CONF="));
  ASSERT_EQ(tenon_command("report --no-advice " + kOther + " -o " + page.path()).status, 0);
  EXPECT_THAT(page.contents(), Not(HasSubstr("id=\"advice\"")));
}

TEST(ReportCommand, EscapesMarkupAndControlCharacters) {
  const TemporaryFolder folder;
  const std::string evil =
      "</style><script>alert(1)</script><img src=x>\x1b[31m\x07\xff\xe2\x80\xae&";
  const std::string path = write(folder, "a<b>.pickle", snapshot_of({{evil, 1 << 20}}));
  const std::string out = (fs::path(folder.path()) / "out.html").string();
  ASSERT_EQ(tenon_command("report '" + path + "' -o " + out).status, 0);
  const std::string html = contents(out);
  EXPECT_EQ(html.find("<script"), html.npos);
  EXPECT_EQ(html.find("<img"), html.npos);
  EXPECT_EQ(html.find("<b>"), html.npos);
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)"));
  for (const char c : html) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
  EXPECT_EQ(html.find("\xe2\x80\xae"), html.npos);
  EXPECT_EQ(html.find('\xff'), html.npos);
  EXPECT_EQ(std::count(html.begin(), html.end(), '<'), std::count(html.begin(), html.end(), '>'));
}

TEST(ReportCommand, ComparesRanksAndNamesTheOddOne) {
  const TemporaryFolder folder;
  std::string files;
  for (int rank = 0; rank < 6; ++rank) {
    std::vector<Site> sites = {{"weights", 100 << 20}, {"forward", 50 << 20}};
    if (rank == 3) sites.push_back({"gather_all", 64 << 20});
    // Twelve comes after two.
    files +=
        write(folder, "rank_" + std::to_string(rank * 6) + ".pickle", snapshot_of(sites)) + " ";
  }
  const Json json = Json::parse(tenon_command("report --json " + files).out);
  EXPECT_EQ(json["compared"], 6);
  ASSERT_EQ(json["ranks"].size(), 6u);
  EXPECT_EQ(json["ranks"][1]["name"], "rank 6");
  EXPECT_EQ(json["ranks"][2]["name"], "rank 12");
  EXPECT_EQ(json["ranks"][0]["live_peak_bytes"], 150 << 20);
  EXPECT_EQ(json["highest"], "rank 18");
  EXPECT_NEAR(json["imbalance"].get<double>(), 64.0 / 150, 1e-9);
  ASSERT_EQ(json["odd"].size(), 1u);
  EXPECT_EQ(json["odd"][0]["rank"], "rank 18");
  EXPECT_THAT(json["odd"][0]["why"].dump(), HasSubstr("gather_all"));
  EXPECT_THAT(json["common_call_sites"][0]["name"].get<std::string>(), HasSubstr("weights"));
  EXPECT_EQ(json["common_call_sites"][0]["ranks"], 6);
  EXPECT_EQ(json["apart"].size(), 0u);
}

TEST(ReportCommand, LeavesOutRanksThatDoNotBelongAndSaysSo) {
  const TemporaryFolder folder;
  const TemporaryFile page(".html");
  const std::string mine = snapshot_of({{"weights", 100 << 20}, {"forward", 50 << 20}});
  const std::string files = write(folder, "rank_0.pickle", mine) + " " +
                            write(folder, "rank_1.pickle", mine) + " " +
                            write(folder, "rank_2.pickle", contents(kOther));
  const Outcome report = tenon_command("report --json " + files + " -o " + page.path());
  EXPECT_EQ(report.status, 0) << report.err;
  const Json json = Json::parse(report.out);
  EXPECT_EQ(json["compared"], 2);
  ASSERT_EQ(json["apart"].size(), 1u);
  EXPECT_THAT(report.err, HasSubstr("rank 2 does not belong to the others"));
  EXPECT_THAT(page.contents(), HasSubstr("rank 2 does not belong to the others"));
  EXPECT_THAT(page.contents(), HasSubstr("<summary>rank 2: peak"));
}

TEST(ReportCommand, DoesNotSayThatARankWithoutHistoryPassed) {
  const TemporaryFolder folder;
  const TemporaryFile page(".html");
  const std::string still =
      snapshot({segment(0, 0, 4096, {block(0, 4096, "active_allocated")})}, {});
  const std::string files = write(folder, "rank_0.pickle", still) + " " +
                            write(folder, "rank_1.pickle", still);
  const Outcome report = tenon_command("report --no-advice " + files + " -o " + page.path());
  EXPECT_EQ(report.status, 0) << report.err;
  EXPECT_THAT(page.contents(), HasSubstr("no history"));
  EXPECT_THAT(page.contents(), Not(HasSubstr("passed")));
}

// A rank that needs more than the one that failed does not hide it.
TEST(ReportCommand, BeginsWithTheRankThatFailed) {
  const TemporaryFolder folder;
  const TemporaryFile page(".html");
  const std::string passed = contents(kGpt2);
  const std::string failed = contents(TENON_SOURCE_DIR "/data/failed/gpt2.pickle");
  std::string files;
  for (int rank = 0; rank < 4; ++rank)
    files += write(folder, "rank_" + std::to_string(rank) + ".pickle",
                   rank == 2 ? failed : passed) +
             " ";
  const Outcome report =
      tenon_command("report --json --no-advice --no-replay " + files + " -o " + page.path());
  ASSERT_EQ(report.status, 0) << report.err;
  const Json json = Json::parse(report.out);
  EXPECT_EQ(json["failed"], Json::array({"rank 2"}));
  EXPECT_EQ(json["highest"], "rank 3");
  EXPECT_EQ(json["lowest"], "rank 2");
  EXPECT_EQ(json["ranks"][2]["needed_bytes"], 7302462212);  // as `tenon advise` counts it
  EXPECT_LT(json["ranks"][2]["live_peak_bytes"], 7302462212);
  EXPECT_EQ(json["ranks"][0]["needed_bytes"], json["ranks"][0]["live_peak_bytes"]);
  const std::string says = "An allocation failed on 1 of 4 ranks: rank 2.";
  EXPECT_THAT(json["sentences"][0].get<std::string>(), StartsWith(says));
  const std::string html = page.contents();
  const auto header = html.substr(0, html.find("</header>"));
  EXPECT_THAT(header, HasSubstr(says));
  EXPECT_THAT(header, HasSubstr("The answer is that of rank 2, which failed."));
  EXPECT_THAT(html.substr(html.find("<h2 id=\"verdict\">Verdict</h2>\n")),
              StartsWith("<h2 id=\"verdict\">Verdict</h2>\n<p class=\"lead\">Out of memory: "));
  EXPECT_THAT(html, HasSubstr("6.80 GiB with the request that failed"));
}

// It may share nothing with the others, as a stage of a pipeline.
TEST(ReportCommand, BeginsWithAFailedRankThatIsNotCompared) {
  const TemporaryFolder folder;
  const TemporaryFile page(".html");
  const std::string other = snapshot_of({{"weights", 100 << 20}, {"forward", 50 << 20}});
  const std::string files =
      write(folder, "rank_0.pickle", other) + " " + write(folder, "rank_1.pickle", other) + " " +
      write(folder, "rank_2.pickle", contents(TENON_SOURCE_DIR "/data/failed/gpt2.pickle"));
  const Outcome report =
      tenon_command("report --json --no-advice --no-replay " + files + " -o " + page.path());
  ASSERT_EQ(report.status, 0) << report.err;
  const Json json = Json::parse(report.out);
  EXPECT_EQ(json["compared"], 2);
  EXPECT_EQ(json["failed"], Json::array({"rank 2"}));
  EXPECT_EQ(json["highest"], "rank 1");
  EXPECT_THAT(page.contents(), HasSubstr("The answer is that of rank 2, which failed."));
}

TEST(ReportCommand, KeepsWhatItCanRead) {
  const TemporaryFolder folder;
  const TemporaryFile page(".html");
  const std::string files = write(folder, "rank_0.pickle", snapshot_of({{"weights", 1 << 20}})) +
                            " " + write(folder, "rank_1.pickle", "no pickle at all") +
                            " /no/such.pickle";
  const Outcome report = tenon_command("report " + files + " -o " + page.path());
  EXPECT_EQ(report.status, 2);
  EXPECT_THAT(report.err, HasSubstr("rank_1.pickle"));
  EXPECT_THAT(report.err, HasSubstr("/no/such.pickle"));
  EXPECT_THAT(page.contents(), HasSubstr("/no/such.pickle could not be read"));
  EXPECT_THAT(page.contents(), HasSubstr("1 MiB"));
  const std::string never = (fs::path(folder.path()) / "never.html").string();
  const Outcome nothing = tenon_command("report /no/such.pickle -o " + never);
  EXPECT_EQ(nothing.status, 2);
  EXPECT_FALSE(fs::exists(never));
}

}  // namespace
}  // namespace tenon
