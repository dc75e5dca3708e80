// Static planning and advice beside what was promised: bench_planning [--traces-only |
// --plans-only] [--minimalloc PROGRAM] [FOLDER]. Plans every problem of data/plans at its capacity,
// generated ones and every shipped trace, checks each with the validator, and asks for advice on
// each trace. With google/minimalloc's program at hand, its times are beside ours.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <vector>

#include "rigs/perfect_packing.h"
#include "tenon/lab/advice/advice.h"
#include "tenon/lab/capacity.h"
#include "tenon/lab/plan_validator.h"
#include "tenon/lab/planner.h"
#include "tenon/lab/planning/fit.h"
#include "tenon/lab/planning/instance.h"
#include "tenon/lab/text_table.h"
#include "tenon/lab/workload.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"

namespace {

using namespace tenon;
namespace fs = std::filesystem;

constexpr std::uint64_t kCapacity = 1'048'576;    // of every problem in data/plans
constexpr double kMostSeconds = 28;               // allowed for the eight, and for the generated
constexpr double kMostSecondsForManyEnds = 60;
constexpr double kMostAboveLivePeak = 1.005;
constexpr std::size_t kManyEvents = 250'000;
constexpr double kSecondsForManyEvents = 10;
constexpr double kAdviceSecondsPer100k = 60;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<fs::path> files_in(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().string().ends_with(ending)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// A problem, and what is known of its solution by either side. Times are of processor, of all
// threads: other programs do not count.
struct Problem {
  std::string name;
  std::vector<PlanRequest> requests;
  std::string csv;
  double seconds = 0;
  std::string packing_error;
  std::optional<double> peer_seconds;  // where minimalloc is at hand and solved it
};

double cpu_seconds(int who) {
  rusage used = {};
  getrusage(who, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

void solve(Problem& problem) {
  const double before = cpu_seconds(RUSAGE_SELF);
  const FitResult found = fit_within(problem.requests, kCapacity, 20'000'000);
  problem.seconds = cpu_seconds(RUSAGE_SELF) - before;
  problem.packing_error = "no packing";
  if (found.fit != Fit::kFits) return;
  std::vector<PlacedBuffer> placed;
  for (std::size_t i = 0; i < found.offsets.size(); ++i) {
    const PlanRequest& r = problem.requests[i];
    placed.push_back({r.begin, r.end, r.size, found.offsets[i]});
  }
  problem.packing_error = find_packing_error(placed, kCapacity);
}

// google/minimalloc's program ("": not at hand). It gets the first of each `every` problems.
struct Peer {
  std::string program;
  std::size_t every = 1;
  int seconds = 60;
};

// The peer on the same problem.
void solve_by_peer(Problem& problem, const Peer& peer) {
  const fs::path input = fs::temp_directory_path() / fmt::format("tenon_problem_{}.csv", getpid());
  std::ofstream(input) << problem.csv;
  const std::vector<std::string> words = {peer.program, fmt::format("--capacity={}", kCapacity),
                                          "--input=" + input.string(), "--output=/dev/null",
                                          fmt::format("--timeout={}s", peer.seconds)};
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const double before = cpu_seconds(RUSAGE_CHILDREN);
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stderr) != nullptr)
      execvp(peer.program.c_str(), arguments.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  fs::remove(input);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    throw std::runtime_error(fmt::format(
        "--minimalloc: '{}' cannot be run; build github.com/google/minimalloc",
        peer.program));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    problem.peer_seconds = cpu_seconds(RUSAGE_CHILDREN) - before;
}

std::vector<Problem> shipped_problems(const fs::path& folder) {
  std::vector<Problem> problems;
  for (const fs::path& file : files_in(folder, ".csv")) {
    const FileBytes bytes(file.string());
    const Instance instance = parse_instance(bytes.view(), file.string());
    Problem problem;
    problem.name = instance.name;
    problem.requests = requests_of(instance);
    problem.csv = std::string(bytes.view());
    problems.push_back(std::move(problem));
  }
  return problems;
}

// 100 packings without a free byte, of `least` to `most` buffers that live in [0, duration).
std::vector<Problem> generated_problems(std::size_t least, std::size_t most,
                                        std::uint32_t duration) {
  std::vector<Problem> problems;
  for (std::uint64_t seed = 1000; seed < 1100; ++seed) {
    Random random(seed);
    Problem problem;
    problem.name = fmt::format("seed {}", seed);
    const std::size_t buffers = least + (most - least) * (seed - 1000) / 99;
    problem.requests = rigs::cut_rectangle(random, kCapacity, duration, buffers).requests;
    problem.csv = "id,lower,upper,size\n";
    for (const PlanRequest& r : problem.requests)
      problem.csv += fmt::format("{},{},{},{}\n", &r - problem.requests.data(), r.begin, r.end,
                                 r.size);
    problems.push_back(std::move(problem));
  }
  return problems;
}

// Solves all by both sides; whether ours kept what was promised.
bool solve_problems(const std::string& what, std::vector<Problem> problems,
                    const Peer& peer, bool each, double most_seconds = kMostSeconds) {
  TextTable table({"problem", "buffers", "solved at its capacity", "validated", "seconds",
                   "minimalloc's", "ratio"});
  std::size_t solved = 0, tried_by_peer = 0, solved_by_peer = 0;
  double sum = 0, sum_beside_peer = 0, peer_sum = 0, worst = 0;
  for (Problem& problem : problems) {
    solve(problem);
    sum += problem.seconds;
    const auto index = static_cast<std::size_t>(&problem - problems.data());
    if (!peer.program.empty() && index % peer.every == 0) {
      solve_by_peer(problem, peer);
      ++tried_by_peer;
      sum_beside_peer += problem.seconds;
    }
    const bool valid = problem.packing_error.empty();
    solved += valid;
    solved_by_peer += problem.peer_seconds.has_value();
    std::string theirs = "-", ratio = "-";
    if (problem.peer_seconds) {
      peer_sum += *problem.peer_seconds;
      // Starting a program takes some milliseconds: below ten, times are not compared.
      const double floor = 0.01;
      const double times =
          std::max(problem.seconds, floor) / std::max(*problem.peer_seconds, floor);
      worst = std::max(worst, times);
      theirs = fmt::format("{:.2f}", *problem.peer_seconds);
      ratio = fmt::format("{:.2f}", times);
    }
    table.add({problem.name, grouped(problem.requests.size()),
               problem.packing_error == "no packing" ? "NO" : "yes", valid ? "yes" : "NO",
               fmt::format("{:.2f}", problem.seconds), theirs, ratio});
  }
  if (each) fmt::print("{}", table.format());
  fmt::print("{}: {} of {} solved, {:.2f} s of processor time, {:.0f} allowed: {}", what, solved,
             problems.size(), sum, most_seconds, sum <= most_seconds ? "kept" : "NOT");
  if (peer.program.empty())
    fmt::print("; minimalloc: - (--minimalloc PROGRAM, built of github.com/google/minimalloc)\n");
  else
    fmt::print("\n  minimalloc: {} of {} solved in {} s each, {:.2f} s of processor time for "
               "these; ours {:.2f} s for all {}, wanted at most as long: {}; "
               "worst problem {:.2f} x its time, wanted at most 3: {}\n",
               solved_by_peer, tried_by_peer, peer.seconds, peer_sum, sum_beside_peer,
               tried_by_peer, sum_beside_peer <= peer_sum || solved_by_peer == 0 ? "kept" : "NOT",
               worst, worst <= 3 ? "kept" : "NOT");
  return solved == problems.size() && sum <= most_seconds;
}

bool solve_all(const fs::path& folder, const std::string& minimalloc) {
  const Peer of_all = {minimalloc};
  const Peer of_some = {minimalloc, 10, 10};
  bool kept = solve_problems("shipped", shipped_problems(folder), of_all, true);
  kept &= solve_problems("generated, 50 to 100 buffers without a free byte",
                         generated_problems(50, 100, 200), of_all, false);
  kept &= solve_problems("generated, 100 to 500 buffers without a free byte",
                         generated_problems(100, 500, 2000), of_some, false);
  kept &= solve_problems("generated, 1,000 to 2,000 buffers without a free byte",
                         generated_problems(1000, 2000, 20'000), of_some, false);
  // Where ten requests and more end at one moment, many sets of them have the same size.
  kept &= solve_problems("generated, 1,000 to 2,000 buffers, many of which end at once",
                         generated_problems(1000, 2000, 2000), of_some, false,
                         kMostSecondsForManyEnds);
  fmt::print("\n");
  return kept;
}

// A trace again and again until it has that many events that a replay performs.
Trace repeated(const Trace& trace, std::size_t events) {
  Trace out = trace;
  const std::uint64_t each = trace.replayed_events();
  for (std::uint64_t sum = each; each > 0 && sum < events; sum += each) {
    for (TraceEvent event : trace.events) {
      event.block += out.blocks;
      out.events.push_back(event);
    }
    out.blocks += trace.blocks;
  }
  return out;
}

bool plan_traces(const std::vector<fs::path>& files) {
  TextTable table({"trace", "events", "peak/live", "whole/live", "loop", "validated", "seconds"});
  bool all = true;
  for (const fs::path& file : files) {
    const Trace trace = load_traces(file.string()).at(0);
    const Workload workload(trace);
    const auto ratio = [&](const Plan& plan) {
      return static_cast<double>(plan.total_bytes()) /
             static_cast<double>(std::max<std::uint64_t>(1, workload.live_peak_bytes()));
    };
    PlanOptions options;
    options.find_loops = true;
    const auto start = std::chrono::steady_clock::now();
    const PlanResult result = plan_program(workload.ops(), options);
    const double seconds = seconds_since(start);
    const Plan whole = make_plan(workload.ops());
    const bool valid =
        find_plan_error(result.plan, trace).empty() && find_plan_error(whole, trace).empty();
    const double worst = std::max(ratio(result.plan), ratio(whole));
    all &= valid && worst <= kMostAboveLivePeak;
    bool loop = false;
    for (const auto& [id, stream] : result.plan.streams()) loop |= stream.loop_begin != 0;
    table.add({trace.name, grouped(workload.ops().size()),
               fmt::format("{:.4f}", ratio(result.plan)), fmt::format("{:.4f}", ratio(whole)),
               loop ? "yes" : "no", valid ? "yes" : "NO",
               fmt::format("{:.2f}", seconds)});
  }
  fmt::print("{}promised: at most {} x the live peak: {}\n\n", table.format(), kMostAboveLivePeak,
             all ? "kept" : "NOT");
  return all;
}

bool plan_many_events(const std::vector<fs::path>& files) {
  Trace largest;
  for (const fs::path& file : files) {
    Trace trace = load_traces(file.string()).at(0);
    if (trace.events.size() > largest.events.size()) largest = std::move(trace);
  }
  const Trace many = repeated(largest, kManyEvents);
  const Workload workload(many);
  const auto start = std::chrono::steady_clock::now();
  const Plan plan = make_plan(workload.ops());
  const double seconds = seconds_since(start);
  const bool valid = find_plan_error(plan, many).empty();
  const bool kept = valid && seconds <= kSecondsForManyEvents;
  fmt::print("{} repeated to {} events: planned in {:.2f} s, {}; promised: {} s: {}\n\n",
             largest.name, grouped(workload.ops().size()), seconds, valid ? "valid" : "NOT VALID",
             kSecondsForManyEvents, kept ? "kept" : "NOT");
  return kept;
}

bool advise_on(const std::vector<fs::path>& files) {
  TextTable table({"trace", "default", "expandable", "advised", "seconds"});
  bool all = true;
  for (const fs::path& file : files) {
    const Workload workload(load_traces(file.string()).at(0));
    const auto start = std::chrono::steady_clock::now();
    const Advice advice = advise(workload, {});
    const double seconds = seconds_since(start);
    const auto figures = [&](const SettingsFigures& f) {
      const auto live = static_cast<double>(std::max<std::uint64_t>(1, advice.live_peak_bytes));
      return fmt::format("{:.3f} {:.3f}",
                         static_cast<double>(f.programs[0].reserved_peak_bytes) / live,
                         static_cast<double>(f.programs[0].min_capacity_bytes) / live);
    };
    const AdviceFigures& before = advice.recorded.programs[0];
    const AdviceFigures& best = advice.best.programs[0];
    ReplaySetup setup;
    setup.policy = "caching";
    setup.options.conf = advice.best.conf;
    const bool again =
        replay(workload, setup).reserved_peak_bytes == best.reserved_peak_bytes &&
        find_min_capacity(workload, setup, best.reserved_peak_bytes) == best.min_capacity_bytes;
    const double allowed = kAdviceSecondsPer100k *
                           std::max(1.0, static_cast<double>(workload.ops().size()) / 100'000);
    all &= again && best.reserved_peak_bytes <= before.reserved_peak_bytes &&
           best.min_capacity_bytes <= before.min_capacity_bytes && seconds <= allowed;
    table.add({workload.name(), figures(advice.defaults),
               advice.expandable ? figures(*advice.expandable) : "-", figures(advice.best),
               fmt::format("{:.1f}", seconds)});
    fmt::print("  {}: {}\n", workload.name(),
               advice.best.conf.empty() ? "(the defaults)" : advice.best.conf);
  }
  fmt::print("{}reserved and smallest device, as multiples of the live peak; as recorded: the "
             "defaults.\npromised: never worse than recorded in either, the same figures from "
             "replays: {}\n",
             table.format(), all ? "kept" : "NOT");
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    std::string peer;
    if (const auto at = std::find(arguments.begin(), arguments.end(), "--minimalloc");
        at != arguments.end()) {
      if (at + 1 == arguments.end()) throw std::runtime_error("--minimalloc takes a program");
      peer = at[1];
      arguments.erase(at, at + 2);
    }
    const auto asked = [&](const char* flag) {
      return std::find(arguments.begin(), arguments.end(), flag) != arguments.end();
    };
    fs::path data = TENON_SOURCE_DIR "/data";
    if (!arguments.empty() && !arguments.back().starts_with("--")) data = arguments.back();
    bool kept = true;
    if (!asked("--traces-only")) kept &= solve_all(data / "plans", peer);
    if (!asked("--plans-only")) {
      const std::vector<fs::path> traces = files_in(data / "traces", ".csv.zst");
      kept &= plan_traces(traces);
      kept &= plan_many_events(traces);
      kept &= advise_on(traces);
    }
    return kept ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_planning: {}\n", error.what());
    return 2;
  }
}
