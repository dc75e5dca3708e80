// Policies on programs that nobody tuned them on: tightness and stall at five lags.
//
//   bench_generated [--programs N] [--gate]    default: 100 of each set
//
// Three sets: the shipped traces, generated programs of seeds from 0 on, on which constants are
// chosen, and of seeds from 1,000 on, which are only reported.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/lab/capacity.h"
#include "tenon/lab/jobs.h"
#include "tenon/lab/replayer.h"
#include "tenon/lab/synthesis/synthesis.h"
#include "tenon/lab/text_table.h"
#include "tenon/trace/load.h"

namespace {

using namespace tenon;

constexpr std::array<std::uint64_t, 5> kLagsMs = {0, 5, 20, 100, 500};
const std::vector<std::string> kPolicies = {"caching", "expandable", "stitched", "plan"};
constexpr std::uint64_t kFirstReported = 1'000;
constexpr double kTight = 1.02;           // a capacity, / live peak
constexpr std::size_t kCapacityEvery = 5;  // programs of which one is searched for its capacity

// What is aimed at, of `stitched`.
constexpr double kReserved = 1.02, kReservedLarge = 1.035, kReservedSmall = 1.05;
constexpr double kStall = 1.5, kStallWorst = 2, kNegligible = 0.003;
constexpr double kMoreThanExpandable = 1.002;
constexpr double kCapacity = 1.01, kCapacityWorst = 1.02;
constexpr double kTightStall = 0.03;

struct Options {
  std::size_t programs = 100;
  bool gate = false;
};

// A value and whether it is what was aimed at.
class Verdicts {
 public:
  std::string judge(const std::string& text, bool met) {
    missed_ += !met;
    return fmt::format("{} {}", text, met ? "met" : "MISSED");
  }
  std::string at_most(double value, double most, int digits) {
    return judge(fmt::format("{:.{}f}", value, digits), value <= most);
  }
  int missed() const { return missed_; }

 private:
  int missed_ = 0;
};

struct Set {
  std::string name;
  std::vector<Trace> traces;
  std::vector<Workload> workloads;
};

Set shipped() {
  Set set{"shipped", {}, {}};
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(TENON_SOURCE_DIR "/data/traces"))
    if (entry.path().string().ends_with(".csv.zst")) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths)
    for (Trace& trace : load_traces(path)) set.traces.push_back(std::move(trace));
  return set;
}

Set generated(const std::string& name, std::uint64_t first, std::size_t count) {
  Set set{name, std::vector<Trace>(count), {}};
  run_jobs(count, 0, [&](std::size_t i) {
    SynthesisOptions options;
    options.seed = first + i;
    set.traces[i] = synthesize(options);
  });
  return set;
}

double ratio(double a, double b) { return b == 0 ? 1 : a / b; }

// ------------------------------------------------------------------------------------------------
// Are the programs like recorded ones?

struct Shape {
  std::array<double, 5> sizes = {};  // shares of blocks below 4 KiB, 1 MiB, 10 MiB, 100 MiB, above
  double common = 0;                 // share of blocks of the ten most frequent sizes
  double median_life = 0, long_life = 0;  // events; of half the blocks, of nine in ten
  double mean_live = 0;              // / live peak
  double events_us = 0;              // time between events
};

Shape shape_of(const Trace& trace) {
  Shape shape;
  constexpr std::array<std::uint64_t, 4> kBounds = {4 * kKiB, kMiB, 10 * kMiB, 100 * kMiB};
  std::map<std::uint64_t, std::size_t> counts;
  std::vector<std::size_t> begin(trace.blocks), lives;
  std::size_t number = 0;
  double live = 0, sum = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.op == TraceOp::kFreeRequested) continue;
    ++number;
    if (event.op == TraceOp::kAlloc) {
      const auto bound = std::upper_bound(kBounds.begin(), kBounds.end(), event.size_bytes);
      shape.sizes[static_cast<std::size_t>(bound - kBounds.begin())] += 1;
      ++counts[event.size_bytes];
      begin[event.block] = number;
      live += static_cast<double>(event.size_bytes);
    } else {
      lives.push_back(number - begin[event.block]);
      live -= static_cast<double>(event.size_bytes);
    }
    sum += live;
  }
  for (double& share : shape.sizes) share /= trace.blocks;
  std::vector<std::size_t> most;
  for (const auto& [size, count] : counts) most.push_back(count);
  std::sort(most.rbegin(), most.rend());
  for (std::size_t i = 0; i < std::min<std::size_t>(10, most.size()); ++i)
    shape.common += static_cast<double>(most[i]) / trace.blocks;
  std::sort(lives.begin(), lives.end());
  shape.median_life = static_cast<double>(lives[lives.size() / 2]);
  shape.long_life = static_cast<double>(lives[lives.size() * 9 / 10]);
  const auto peak = static_cast<double>(trace.live_peak_bytes());
  shape.mean_live = sum / static_cast<double>(number) / peak;
  shape.events_us = static_cast<double>(trace.duration_us()) / static_cast<double>(number);
  return shape;
}

void add_shape(TextTable& table, const std::string& name, const Shape& shape) {
  std::vector<std::string> row = {name};
  for (const double share : shape.sizes) row.push_back(fmt::format("{:.0f}", 100 * share));
  row.push_back(fmt::format("{:.0f}", 100 * shape.common));
  row.push_back(fmt::format("{:.0f}", shape.median_life));
  row.push_back(fmt::format("{:.0f}", shape.long_life));
  row.push_back(fmt::format("{:.0f}", 100 * shape.mean_live));
  row.push_back(fmt::format("{:.0f}", shape.events_us));
  table.add(row);
}

// The median of each figure over the traces.
Shape middle(const std::vector<const Trace*>& traces) {
  std::vector<Shape> shapes;
  for (const Trace* trace : traces) shapes.push_back(shape_of(*trace));
  const auto of = [&](auto&& field) {
    std::vector<double> values;
    for (const Shape& shape : shapes) values.push_back(field(shape));
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  Shape shape;
  for (std::size_t i = 0; i < shape.sizes.size(); ++i)
    shape.sizes[i] = of([i](const Shape& s) { return s.sizes[i]; });
  shape.common = of([](const Shape& s) { return s.common; });
  shape.median_life = of([](const Shape& s) { return s.median_life; });
  shape.long_life = of([](const Shape& s) { return s.long_life; });
  shape.mean_live = of([](const Shape& s) { return s.mean_live; });
  shape.events_us = of([](const Shape& s) { return s.events_us; });
  return shape;
}

void print_shapes(const std::vector<Set>& sets) {
  TextTable table({"program", "% < 4K", "< 1M", "< 10M", "< 100M", "above", "% ten sizes",
                   "median life", "90 % live", "% mean live", "us/event"});
  for (const Trace& trace : sets[0].traces) add_shape(table, trace.name, shape_of(trace));
  std::map<std::string, std::vector<const Trace*>> kinds;
  for (std::size_t i = 1; i < sets.size(); ++i)
    for (const Trace& trace : sets[i].traces)
      kinds[trace.name.substr(0, trace.name.rfind('-'))].push_back(&trace);
  for (const auto& [kind, traces] : kinds)
    add_shape(table, fmt::format("{} ({})", kind, traces.size()), middle(traces));
  fmt::print("blocks by size, how many share ten sizes, lives in events; of generated programs "
             "medians by kind\n{}\n",
             table.format());
}

// ------------------------------------------------------------------------------------------------
// Memory and stall

// By workload, policy and lag.
using Figures = std::vector<std::vector<std::array<ReplayFigures, kLagsMs.size()>>>;

Figures replay_all(const std::vector<Workload>& workloads) {
  Figures figures(workloads.size());
  for (auto& of : figures) of.resize(kPolicies.size());
  const std::size_t runs = kPolicies.size() * kLagsMs.size();
  run_jobs(workloads.size() * runs, 0, [&](std::size_t job) {
    const std::size_t policy = job % runs / kLagsMs.size();
    const std::size_t lag = job % kLagsMs.size();
    ReplaySetup setup;
    setup.policy = kPolicies[policy];
    setup.lag_ns = kLagsMs[lag] * 1'000'000;
    figures[job / runs][policy][lag] = replay(workloads[job / runs], setup);
  });
  return figures;
}

// One policy at one lag over a set.
struct Summary {
  double reserved = 0, worst_large = 0, worst_small = 0, stall = 0, worst_stall = 0;
  std::size_t more = 0;
};

Summary summarise(const std::vector<Workload>& workloads, const Figures& figures,
                  std::size_t policy, std::size_t lag) {
  Summary sum;
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    const ReplayFigures& mine = figures[i][policy][lag];
    const ReplayFigures& expandable = figures[i][1][lag];
    const auto live = static_cast<double>(workloads[i].live_peak_bytes());
    const auto held = static_cast<double>(mine.reserved_peak_bytes);
    const double reserved = held / live;
    sum.reserved += std::log(reserved);
    double& worst = live >= kGiB ? sum.worst_large : sum.worst_small;
    worst = std::max(worst, reserved);
    const auto stall_ns = static_cast<double>(mine.ledger.stall_ns);
    const double stall = ratio(stall_ns, static_cast<double>(expandable.ledger.stall_ns));
    sum.stall += std::log(std::max(stall, 1e-3));
    const double share = stall_ns / (1e3 * static_cast<double>(workloads[i].duration_us()));
    if (share > kNegligible) sum.worst_stall = std::max(sum.worst_stall, stall);
    sum.more += held > kMoreThanExpandable * static_cast<double>(expandable.reserved_peak_bytes);
  }
  const auto count = static_cast<double>(workloads.size());
  sum.reserved = std::exp(sum.reserved / count);
  sum.stall = std::exp(sum.stall / count);
  return sum;
}

void print_figures(const Set& set, Verdicts& verdicts) {
  const Figures figures = replay_all(set.workloads);
  TextTable table({"policy", "lag", "reserved/live", "worst >= 1 GiB", "worst below",
                   "stall/expandable's", "worst above 0.3 %", "more than expandable"});
  for (std::size_t policy = 0; policy < kPolicies.size(); ++policy)
    for (std::size_t lag = 0; lag < kLagsMs.size(); ++lag) {
      const Summary sum = summarise(set.workloads, figures, policy, lag);
      const bool judged = kPolicies[policy] == "stitched";
      const auto show = [&](double value, double most, int digits) {
        if (value == 0) return std::string("-");
        return judged ? verdicts.at_most(value, most, digits)
                      : fmt::format("{:.{}f}", value, digits);
      };
      const std::string more = fmt::format("{} of {}", sum.more, set.workloads.size());
      table.add({kPolicies[policy], fmt::format("{} ms", kLagsMs[lag]),
                 show(sum.reserved, kReserved, 4), show(sum.worst_large, kReservedLarge, 4),
                 show(sum.worst_small, kReservedSmall, 4), show(sum.stall, kStall, 2),
                 show(sum.worst_stall, kStallWorst, 2),
                 judged ? verdicts.judge(more, sum.more == 0) : more});
    }
  fmt::print("{}: {} programs, unlimited memory\n{}\n", set.name, set.workloads.size(),
             table.format());
}

// ------------------------------------------------------------------------------------------------
// With little memory

struct Tight {
  double capacity = 0, expandable = 0;       // / live peak
  double step = 0;                           // the search's, / live peak
  std::array<double, 2> stall = {-1, -1};    // share of time at 1.02 x live; -1: out of memory
};
constexpr std::array<std::uint64_t, 2> kTightLagsMs = {5, 20};

Tight tighten(const Workload& workload) {
  Tight tight;
  const auto live = static_cast<double>(workload.live_peak_bytes());
  tight.step = std::max<double>(8 * kMiB, live / 500) / live;
  for (const bool stitched : {true, false}) {
    ReplaySetup setup;
    setup.policy = stitched ? "stitched" : "expandable";
    const std::uint64_t reserved = replay(workload, setup).reserved_peak_bytes;
    (stitched ? tight.capacity : tight.expandable) =
        static_cast<double>(find_min_capacity(workload, setup, reserved)) / live;
  }
  for (std::size_t i = 0; i < kTightLagsMs.size(); ++i) {
    ReplaySetup setup;
    setup.policy = "stitched";
    setup.lag_ns = kTightLagsMs[i] * 1'000'000;
    setup.capacity_bytes = static_cast<std::uint64_t>(kTight * live);
    const ReplayFigures figures = replay(workload, setup);
    if (figures.out_of_memory) continue;
    tight.stall[i] = static_cast<double>(figures.ledger.stall_ns) /
                     (1e3 * static_cast<double>(workload.duration_us()));
  }
  return tight;
}

void print_tight(const Set& set, Verdicts& verdicts) {
  std::vector<const Workload*> chosen;
  const std::size_t every = set.workloads.size() > 20 ? kCapacityEvery : 1;
  for (std::size_t i = 0; i < set.workloads.size(); i += every) chosen.push_back(&set.workloads[i]);
  std::vector<Tight> all(chosen.size());
  run_jobs(chosen.size(), 0, [&](std::size_t i) { all[i] = tighten(*chosen[i]); });
  double mean = 0, worst = 0;
  std::size_t above = 0;
  std::array<std::size_t, 2> completed = {};
  std::array<double, 2> stall = {};
  for (const Tight& tight : all) {
    mean += std::log(tight.capacity) / static_cast<double>(all.size());
    worst = std::max(worst, tight.capacity);
    above += tight.capacity > tight.expandable + tight.step;
    for (std::size_t i = 0; i < stall.size(); ++i) {
      completed[i] += tight.stall[i] >= 0;
      stall[i] = std::max(stall[i], tight.stall[i]);
    }
  }
  TextTable table({"stitched, little memory", "value"});
  table.add({"smallest capacity / live", verdicts.at_most(std::exp(mean), kCapacity, 4)});
  table.add({"worst", verdicts.at_most(worst, kCapacityWorst, 4)});
  table.add({"above expandable's by more than the search's step",
             verdicts.judge(fmt::format("{} of {}", above, all.size()), above == 0)});
  for (std::size_t i = 0; i < stall.size(); ++i) {
    const std::string where = fmt::format("at {} x live, lag {} ms: ", kTight, kTightLagsMs[i]);
    table.add({where + "completed",
               verdicts.judge(fmt::format("{} of {}", completed[i], all.size()),
                              completed[i] == all.size())});
    table.add({where + "worst stall, % of the time",
               verdicts.at_most(100 * stall[i], 100 * kTightStall, 2)});
  }
  fmt::print("{}: {} programs\n{}\n", set.name, all.size(), table.format());
}

int run(const Options& options) {
  Verdicts verdicts;
  std::vector<Set> sets;
  sets.push_back(shipped());
  sets.push_back(generated("generated, seeds from 0 on (constants are chosen on these)", 0,
                           std::min<std::size_t>(options.programs, kFirstReported)));
  sets.push_back(generated("generated, seeds from 1,000 on (reported)", kFirstReported,
                           options.programs));
  print_shapes(sets);
  for (Set& set : sets) {
    for (const Trace& trace : set.traces) set.workloads.emplace_back(trace);
    print_figures(set, verdicts);
    print_tight(set, verdicts);
  }
  fmt::print("aimed at: reserved {} x live, {} worst from 1 GiB on, {} below; stall {} x, worst {} "
             "x where it is above {} % of the time; {} values are MISSED\n",
             kReserved, kReservedLarge, kReservedSmall, kStall, kStallWorst, 100 * kNegligible,
             verdicts.missed());
  return options.gate && verdicts.missed() > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Policies on generated programs");
  app.add_option("--programs", options.programs, "Of each set")->check(CLI::Range(1, 100'000));
  app.add_flag("--gate", options.gate, "Fail where a value is MISSED");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_generated: {}\n", error.what());
    return 2;
  }
}
