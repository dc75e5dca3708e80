// Random operations over every policy with real memory and content checks: several threads and
// streams, threads that end and begin, blocks freed on other threads, statistics asked for
// meanwhile, forks (host), cached memory given back, memory short, driver calls that fail.
//
//   bench_stress [--operations N] [--threads N] [--policy P] [--seed S]
//   bench_stress --policy P --rounds 1 --seed S        one round again
//
// Exits with 1 at the first wrong byte, broken invariant, leak, or exception that has no place
// here, and prints policy, seed, thread and block. Where no operation is made for two minutes it
// aborts.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "progress.h"
#include "rigs/stress/round.h"
#include "tenon/lab/text_table.h"

namespace tenon {
namespace {

struct Options {
  std::uint64_t operations = 20'000'000;  // over all policies
  std::uint64_t rounds = 0;               // for each policy; 0: as the operations need
  unsigned threads = 2;
  std::uint64_t seed = 1;
  std::string policy = "all";
};

constexpr std::uint64_t kIterations = 64;

// A policy's share of the operations: less where many of them are driver calls.
double weight_of(const Policy& policy) {
  if (policy.name == "system") return 0.02;
  return policy.name == "arena" ? 0.25 : 1;
}

std::vector<const Policy*> chosen_policies(const Options& options) {
  std::vector<const Policy*> chosen;
  for (const Policy& policy : policies()) {
    const bool wanted = options.policy == "all" ? policy.name != "null"  // it has no memory
                                                : policy.name == options.policy;
    if (wanted) chosen.push_back(&policy);
  }
  if (chosen.empty()) find_policy(options.policy);  // says which there are
  return chosen;
}

// Rounds until so many operations are done; true when all was well.
bool stress(const Policy& policy, std::uint64_t operations, const Options& options,
            TextTable& table) {
  const auto start = std::chrono::steady_clock::now();
  Progress progress;
  RoundResult sum;
  std::uint64_t rounds = 0;
  const auto is_done = [&] {
    return options.rounds != 0 ? rounds >= options.rounds : sum.operations >= operations;
  };
  // Short runs are cut short inside a round.
  const std::uint64_t iterations =
      std::clamp<std::uint64_t>(operations / (4 * Round::kSteps * options.threads), 1,
                                kIterations);
  while (!is_done() && sum.violation.empty()) {
    const std::uint64_t seed = options.seed + rounds++;
    const RoundResult one = Round(policy, seed, options.threads, iterations).run();
    sum += one;
    if (!one.violation.empty())
      fmt::print("{}: {}\nagain: bench_stress --policy {} --threads {} --rounds 1 --seed {}\n",
                 policy.name, one.violation, policy.name, options.threads, seed);
    progress.show(policy.name, std::min(sum.operations, operations), operations);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  table.add({policy.name, grouped(sum.operations), grouped(rounds), grouped(sum.exchanged),
             grouped(sum.threads), grouped(sum.polls), grouped(sum.forks),
             grouped(sum.out_of_memory), grouped(sum.device_errors),
             fmt::format("{:.1f}", seconds.count()),
             sum.violation.empty() ? "every byte right, nothing leaked" : "FAILED"});
  return sum.violation.empty();
}

bool stress_all(const Options& options) {
  const std::vector<const Policy*> chosen = chosen_policies(options);
  double weights = 0;
  for (const Policy* policy : chosen) weights += weight_of(*policy);
  TextTable table({"policy", "operations", "rounds", "exchanged", "threads", "polls", "forks",
                   "out of memory", "driver errors", "seconds", "verdict"});
  bool good = true;
  for (const Policy* policy : chosen) {
    const double share = weight_of(*policy) / weights;
    const auto operations =
        static_cast<std::uint64_t>(share * static_cast<double>(options.operations));
    good = stress(*policy, operations, options, table) && good;
  }
  fmt::print("{}", table.format());
  return good;
}

}  // namespace
}  // namespace tenon

int main(int argc, char** argv) {
  tenon::Options options;
  CLI::App app{"Random operations over every policy with content checks."};
  app.add_option("--operations", options.operations, "allocations and frees, over all policies");
  app.add_option("--rounds", options.rounds, "for each policy, instead of a number of operations");
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 64));
  app.add_option("--seed", options.seed, "of the first round");
  app.add_option("--policy", options.policy, "one policy alone");
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a long run is watched through its log
  fmt::print("{} operations on {} threads, rounds from seed {}\n",
             tenon::grouped(options.operations), options.threads, options.seed);
  return tenon::stress_all(options) ? 0 : 1;
}
