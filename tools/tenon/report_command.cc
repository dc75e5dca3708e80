// tenon report: the answer for one snapshot, or for one of each rank, as a web page.
#include <fmt/format.h>

#include <memory>
#include <mutex>

#include "arguments.h"
#include "commands.h"
#include "load_file.h"
#include "process.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/jobs.h"
#include "tenon/lab/ranks/report_page.h"
#include "tenon/trace/file_bytes.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
One web page with the verdict, what fills the peak, what to change, a picture, failures and call
sites. It also has allocator settings, which tenon advise finds with more effort. With one snapshot
of each rank, the report compares ranks: how even their peaks are, which rank is odd and why, and
their common causes. The page begins with a rank that failed. It has no script and makes no
requests.

The number in which the files' names differ is the rank. The report has one sentence for a file that
cannot be read, and for a rank that does not belong to the others.

Examples:
  tenon report snapshot.pickle                    writes snapshot.report.html
  tenon report run/rank_*.pickle -o ranks.html    one page for all ranks
  tenon report rank_*.pickle --json               the comparison as JSON, no page

Exit status: 0. 1 for a bug or a page that cannot be written. 2 for bad usage, or when a file cannot
be read (the report has the others).)";

struct ReportArguments {
  std::vector<std::string> files;
  std::string out;
  std::string capacity;
  bool json = false;
  bool no_replay = false;
  bool no_advice = false;
};

// The ranks of all files, and the files that cannot be read. A snapshot is in memory only while it
// is explained.
void read_ranks(const ReportArguments& arguments, const ProgressLine& line, Report& report) {
  struct File {
    std::vector<Rank> ranks;
    std::string error;
  };
  std::vector<File> files(arguments.files.size());
  std::mutex counting;
  std::size_t done = 0;
  run_jobs(files.size(), 0, [&](std::size_t i) {
    const std::string& path = arguments.files[i];
    try {
      files[i].ranks = ranks_of(load_snapshot(path), path, {.replay = !arguments.no_replay});
      if (files[i].ranks.empty()) files[i].error = "it holds no recorded events";
    } catch (const ParseError& error) {
      files[i].error = error.what();
    } catch (const InvalidArgument& error) {
      files[i].error = error.what();
    }
    const std::lock_guard lock(counting);
    line.show(fmt::format("read {} of {} snapshots", ++done, files.size()));
  });
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!files[i].error.empty()) report.unread.push_back({arguments.files[i], files[i].error});
    for (Rank& rank : files[i].ranks) report.ranks.push_back(std::move(rank));
  }
}

int run_report(const ReportArguments& arguments) {
  const bool writes_page = !arguments.json || !arguments.out.empty();
  const std::string standard = arguments.files.size() == 1
                                   ? trace_name(arguments.files[0]) + ".report.html"
                                   : std::string("ranks.report.html");
  const std::string out =
      writes_page ? page_file(arguments.out, standard, arguments.files) : "";
  Report report;
  if (!arguments.capacity.empty())
    report.capacity_bytes = parse_size("--capacity", arguments.capacity);
  {
    const ProgressLine line;
    read_ranks(arguments, line, report);
  }
  if (arguments.files.size() == 1 && !report.unread.empty())
    throw InvalidArgument(report.unread[0].reason);
  for (const UnreadRank& unread : report.unread) tell(unread.reason);
  if (report.ranks.empty())
    throw InvalidArgument("none of these files could be read: there is nothing to report");
  name_ranks(report.ranks);
  report.comparison = compare_ranks(report.ranks);
  for (const std::string& sentence : report.comparison.apart)
    tell(fmt::format("warning: {}", sentence));
  if (writes_page && !arguments.no_advice)  // of a rank whose file is read again
    add_advice(report, load_snapshot(report.ranks[report.comparison.first].path));
  if (arguments.json) fmt::print("{}", report_json(report));
  if (writes_page) {
    write_file(out, report_html(report));
    if (!arguments.json) fmt::print("{}\n", out);
  }
  return report.unread.empty() ? kSuccess : kBadInput;
}

}  // namespace

Subcommand add_report(CommandLine& app) {
  const auto arguments = std::make_shared<ReportArguments>();
  CommandLine& report =
      app.add_subcommand("report", "Write one page: verdict, causes, picture, ranks");
  report.footer(kHelp);
  report.add_option("SNAPSHOT", arguments->files, "A snapshot, or one of each rank").required();
  report.add_option("-o,--output", arguments->out,
                    "The page (default, in this folder: the snapshot's name with .report.html, or "
                    "ranks.report.html)");
  report.add_option("--capacity", arguments->capacity,
                    "The device's memory, like 24GiB: drawn as a line");
  report.add_flag("--json", arguments->json,
                  "Print the comparison as JSON; write a page only with -o");
  report.add_flag("--no-replay", arguments->no_replay,
                  "Do not replay with other settings and allocators");
  report.add_flag("--no-advice", arguments->no_advice,
                  "Do not search better allocator settings");
  return {&report, [arguments] { return run_report(*arguments); }};
}

}  // namespace tenon::command
