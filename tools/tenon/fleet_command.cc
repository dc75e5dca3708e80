// tenon fleet: all recordings of a folder, explained, advised and compared.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <system_error>
#include <thread>

#include "arguments.h"
#include "commands.h"
#include "fleet_ranks.h"
#include "fleet_workers.h"
#include "process.h"
#include "progress.h"
#include "tenon/base/error.h"
#include "tenon/base/file_writer.h"
#include "tenon/base/hash.h"
#include "tenon/base/printable.h"
#include "tenon/device/host/machine_memory.h"
#include "tenon/lab/fleet/answer_store.h"
#include "tenon/lab/fleet/fleet.h"
#include "tenon/lab/text_table.h"
#include "tenon/trace/recording_scope.h"

namespace tenon::command {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHelp = R"(
Explains and advises every file in DIR, at any depth (what tenon explain takes, compressed or not).
Prints one report: one setting of PyTorch's allocator for all files, outliers, common causes, and a
line for each file, also for those that cannot be read and those that hold no history. Skips names
that begin with a dot, and folders whose names end in .fleet.

Each file is read in a process of its own, largest files first, on all cores. A file that takes all
memory or crashes is tried again alone, and then has a line in the report; the others go on. So has
one that takes too long (--time-limit).

The answers are kept, one small file each, in a folder of results: NAME.fleet in the current folder,
for a DIR named NAME. The same command goes on where it was interrupted, and reads again what has
changed. The report has the same bytes for any number of jobs, and after any interruption.

Under mpirun, in a build with MPI, the files are divided among the ranks. All must see DIR and the
folder of results. Rank 0 prints the report.

--json prints files, no_history (the names of those without), unread, one_setting, outliers, and
states, causes, categories, call_sites, losses and changes with the number of files and bytes.

Examples:
  tenon fleet snapshots
  tenon fleet snapshots -o report.md --results /scratch/answers
  mpirun -n 16 tenon fleet snapshots -o report.md
  tenon fleet snapshots --json | jq -r .one_setting.conf

Exit status: 0, also for files without history. 1 for a bug or a file that cannot be written. 2 for
bad usage, or when a file cannot be read (the report has the others). 128 + the signal when one ends
it.)";

struct FleetArguments {
  std::string folder;
  std::string out;
  std::string results;
  std::string memory;
  std::string torch;
  int jobs = 0;
  double seconds = 3600;
  bool json = false;
  FileQuestion question;
};

// "NAME.fleet", for whatever name DIR is given by.
std::string default_results(const std::string& folder) {
  std::error_code missing;  // then reading the folder says so
  const std::string name = fs::canonical(folder, missing).filename().string();
  return (name.empty() ? "root" : name) + std::string(kResultsEnding);
}

// What is done in one run.
class FleetRun {
 public:
  explicit FleetRun(const FleetArguments& arguments)
      : arguments_(arguments),
        results_(fs::absolute(arguments.results.empty() ? default_results(arguments.folder)
                                                        : arguments.results)),
        found_(find_files(arguments.folder, results_)) {
    if (found_.files.empty())
      throw InvalidArgument(fmt::format("{}: no files in this folder", arguments.folder));
    if (!arguments.out.empty()) check_output();
    store_ = std::make_unique<AnswerStore>(results_, arguments.question);
  }

  // What all ranks must have in common.
  std::vector<std::pair<std::string, std::string>> setup() const {
    std::string files;
    for (const FoundFile& file : found_.files)
      files += fmt::format("{}\n{}\n", file.path, file.bytes);
    return {{"DIR", one_line(arguments_.folder)},
            {"what DIR holds", fmt::format("{} files, hash {:x}", found_.files.size(),
                                           hash_of_text(files))},
            {"the folder of results", one_line(results_)},
            {"the question", arguments_.question.text()}};
  }

  // Answers the files, or this rank's part of them. Returns 0 or a signal's number.
  int answer(FleetRanks* ranks) {
    order_by_size();
    if (ranks != nullptr) ranks->begin(order_.size(), setup());
    const ProgressLine line;
    std::size_t begun = 0;
    return run_in_processes(
        limits(ranks != nullptr ? 1 : std::thread::hardware_concurrency()),
        {.next = [&]() -> std::optional<std::size_t> {
           if (ranks == nullptr && begun == order_.size()) return std::nullopt;
           const auto job = ranks != nullptr ? ranks->next() : std::optional(begun++);
           return job ? std::optional(order_[*job]) : std::nullopt;
         },
         .work =
             [&](std::size_t file) {
               if (::chdir(arguments_.folder.c_str()) != 0)
                 throw std::system_error(errno, std::generic_category(), arguments_.folder);
               store_->answer(found_.files[file].path);
             },
         .ended =
             [&](std::size_t file, const std::string& failure) {
               if (!failure.empty()) store_->fail(found_.files[file].path, failure);
               line.show(fmt::format("{} of {} files", ++done_, found_.files.size()));
             },
         .meanwhile = ranks != nullptr ? std::function([&] { ranks->serve(); }) : nullptr,
         .period = ranks != nullptr ? ranks->period() : std::chrono::milliseconds()});
  }

  int say_interrupted(int signal) const {
    tell(fmt::format("ended by signal {}: {} of {} files are done, in {}; the same command goes "
                     "on",
                     signal, done_, found_.files.size(), one_line(results_)));
    return kSignalled + signal;
  }

  // Makes the report and writes the file of -o. Calls `meanwhile` between its steps.
  void make_report(const std::function<void()>& meanwhile = [] {}) {
    FleetReport report{.files = {}, .left_out = found_.left_out,
                       .question = arguments_.question, .comparison = {}};
    for (const FoundFile& file : found_.files) {
      std::optional<FileAnswer> answer = store_->load(file.path);
      if (!answer)
        answer = no_answer("its answer is not in the folder of results, which all ranks must see");
      report.files.push_back({file.path, file.bytes, std::move(*answer)});
      meanwhile();
    }
    report.comparison = compare_fleet(report.files, arguments_.question.settings());
    unread_ = report.comparison.unread.size() + found_.left_out.size();
    no_history_ = report.comparison.no_history.size();
    meanwhile();
    if (arguments_.json) printed_ = fleet_json(report);
    meanwhile();
    const std::string& out = arguments_.out;
    if (!out.empty()) write_whole_file(out, fleet_text(report));
    if (!arguments_.json) printed_ = out.empty() ? fleet_text(report) : out + "\n";
  }

  int print_report() const {
    fmt::print("{}", printed_);
    if (no_history_ != 0)
      tell(fmt::format("warning: {} of {} files hold no history, so nothing is judged of them; the "
                       "report says how to record one",
                       grouped(no_history_), grouped(found_.files.size())));
    if (unread_ == 0) return kSuccess;
    tell(fmt::format("{} of {} files could not be read; the report names them",
                     grouped(unread_), grouped(found_.files.size() + found_.left_out.size())));
    return kBadInput;
  }

 private:
  void check_output() const {
    std::vector<std::string> inputs;
    for (const FoundFile& file : found_.files)
      inputs.push_back(arguments_.folder + "/" + file.path);
    require_answer_file(arguments_.out, inputs);
    FileWriter::check(arguments_.out);
  }

  void order_by_size() {
    order_.resize(found_.files.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return found_.files[a].bytes > found_.files[b].bytes;
    });
  }

  WorkerLimits limits(unsigned usual_jobs) const {
    WorkerLimits limits;
    limits.processes =
        arguments_.jobs != 0 ? arguments_.jobs : std::max(1, static_cast<int>(usual_jobs));
    limits.memory_bytes = arguments_.memory.empty() ? machine_memory().total_bytes
                                                    : parse_size("--memory", arguments_.memory);
    limits.seconds = arguments_.seconds;
    return limits;
  }

  const FleetArguments& arguments_;
  const std::string results_;
  const FoundFiles found_;
  std::unique_ptr<AnswerStore> store_;
  std::vector<std::size_t> order_;  // largest file first
  std::size_t done_ = 0;
  std::string printed_;  // the report on standard output
  std::size_t unread_ = 0;
  std::size_t no_history_ = 0;
};

// One rank's part; rank 0 writes the report. The others watch it until it prints, which may wait
// for a reader.
int run_on_ranks(const FleetArguments& arguments, FleetRanks& ranks) {
  FleetRun run(arguments);
  // The launcher ends the others.
  if (const int signal = run.answer(&ranks); signal != 0) ::raise(signal);
  ranks.wait();
  const bool reports = ranks.reports();
  if (reports) run.make_report([&] { ranks.serve(); });
  ranks.leave();
  return reports ? run.print_report() : kSuccess;
}

int run_fleet(FleetArguments& arguments, const std::function<std::unique_ptr<FleetRanks>()>& join) {
  keep_no_failure_of_environment();  // of its replays
  if (!arguments.torch.empty()) arguments.question.torch = parse_torch_version(arguments.torch);
  if (!arguments.memory.empty()) parse_size("--memory", arguments.memory);  // before any work
  if (join) return run_on_ranks(arguments, *join());
  FleetRun run(arguments);
  if (const int signal = run.answer(nullptr); signal != 0) return run.say_interrupted(signal);
  run.make_report();
  return run.print_report();
}

}  // namespace

Subcommand add_fleet(CommandLine& app, std::function<std::unique_ptr<FleetRanks>()> join) {
  const auto arguments = std::make_shared<FleetArguments>();
  CommandLine& fleet = app.add_subcommand(
      "fleet", "Explain, advise and compare all recordings of a folder, in one report");
  fleet.footer(kHelp);
  fleet.add_option("DIR", arguments->folder, "The folder").required();
  fleet.add_option("-o,--output", arguments->out, "Write the report, Markdown, to this file");
  fleet.add_flag("--json", arguments->json, "Print JSON; write Markdown only with -o");
  fleet.add_option("--results", arguments->results,
                   "The folder of answers (default: NAME.fleet in this folder)");
  fleet.add_option("--jobs", arguments->jobs,
                   "Files at a time; 0: one for each core, under mpirun one for each rank")
      .show_default()
      .between(0, 1024);
  fleet.add_option("--memory", arguments->memory,
                   "Memory that one file may take, like 8GiB (default: the machine's)");
  fleet.add_option("--time-limit", arguments->seconds,
                   "Seconds that one file may take, and then has a line in the report; 0: no limit")
      .show_default()
      .between(0, 1e9, " of seconds");
  fleet.add_option("--torch", arguments->torch,
                   "The version of PyTorch, like 2.6 (default: what each file tells; 2.1 for all)");
  fleet.add_option("--effort", arguments->question.effort,
                   "Effort of the search for each file's best settings, as for tenon advise")
      .show_default()
      .between(0.01, 100.0);
  return {&fleet, [arguments, join] { return run_fleet(*arguments, join); }};
}

}  // namespace tenon::command
