// The stream rule under random schedules: every policy as it is must keep it, and every policy that
// is broken on purpose must be caught.
//
//   bench_schedules [--schedules N] [--broken-schedules N] [--threads N] [--policy P] [--seed S]
//   bench_schedules --policy P --only SEED [--breakage B]      one schedule again, and a short one
//
// Exits with 1 when a whole policy breaks the rule (it prints the seed, and a shrunk schedule), or
// a broken one is not caught.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "progress.h"
#include "rigs/schedules/trial.h"
#include "tenon/lab/text_table.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

struct Options {
  std::uint64_t schedules = 200'000;        // for each policy as it is
  std::uint64_t broken_schedules = 5'000;  // for each broken one
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::uint64_t seed = 1;
  std::string policy = "all";
  std::string breakage = "none";
  std::optional<std::uint64_t> only;
};

struct Failure {
  std::uint64_t seed = 0;
  std::string fault;
};

// "early reuse" of "early reuse: stream 1 uses ...".
std::string kind_of(const std::string& fault) { return fault.substr(0, fault.find(':')); }

struct Tally {
  std::uint64_t schedules = 0;
  std::uint64_t operations = 0;
  std::uint64_t out_of_memory = 0;
  std::uint64_t lost = 0;
  std::uint64_t failed = 0;          // schedules
  std::map<std::string, Failure> first;  // by kind of fault, the one of the lowest seed
};

void keep_first(std::map<std::string, Failure>& failures, const Failure& one) {
  const auto [it, fresh] = failures.try_emplace(kind_of(one.fault), one);
  if (!fresh && one.seed < it->second.seed) it->second = one;
}

// Seeds `first`, `first` + 1, ... on several threads, each with a trial of its own.
Tally run(const std::string& policy, Breakage breakage, std::uint64_t first, std::uint64_t count,
          unsigned threads) {
  constexpr std::uint64_t kBatch = 64;
  Tally tally;
  Progress progress;
  std::mutex mutex;
  std::atomic<std::uint64_t> next{0};
  const auto work = [&] {
    Trial trial(policy, breakage);
    for (std::uint64_t at; (at = next.fetch_add(kBatch)) < count;) {
      Tally batch;
      const std::uint64_t end = std::min(count, at + kBatch);
      for (std::uint64_t seed = first + at; seed < first + end; ++seed) {
        const TrialResult result = trial.run(random_schedule(seed));
        ++batch.schedules;
        batch.operations += result.operations;
        batch.out_of_memory += result.out_of_memory;
        batch.lost += result.lost;
        if (result.faults.empty()) continue;
        ++batch.failed;
        for (const std::string& fault : result.faults) keep_first(batch.first, {seed, fault});
      }
      const std::lock_guard lock(mutex);
      tally.schedules += batch.schedules;
      tally.operations += batch.operations;
      tally.out_of_memory += batch.out_of_memory;
      tally.lost += batch.lost;
      tally.failed += batch.failed;
      for (const auto& [kind, failure] : batch.first) keep_first(tally.first, failure);
      progress.show(policy, tally.schedules, count);
    }
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < threads; ++i) pool.emplace_back(work);
  for (std::thread& thread : pool) thread.join();
  return tally;
}

void print_failure(const std::string& policy, Breakage breakage, const Failure& failure) {
  Trial trial(policy, breakage);
  const Schedule small = shrink(random_schedule(failure.seed), trial);
  fmt::print("{} ({}), seed {}: {}\n", policy, name_of(breakage), failure.seed,
             failure.fault);
  fmt::print("the same in {} steps: {}\n{}", small.steps.size(), trial.run(small).faults.front(),
             to_string(small));
  fmt::print("again: bench_schedules --policy {} --breakage {} --only {}\n", policy,
             key_of(breakage), failure.seed);
}

std::vector<std::string> chosen_policies(const Options& options) {
  if (options.policy != "all") return {find_policy(options.policy).name};
  std::vector<std::string> names;
  for (const Policy& policy : policies())
    if (policy.name != "null") names.push_back(policy.name);  // it hands out no memory
  return names;
}

bool whole_policies(const Options& options) {
  bool good = true;
  TextTable table({"policy", "schedules", "operations", "out of memory", "violations", "seconds"});
  for (const std::string& policy : chosen_policies(options)) {
    const auto start = std::chrono::steady_clock::now();
    const Tally tally = run(policy, Breakage::kNone, options.seed, options.schedules,
                            options.threads);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    table.add({policy, grouped(tally.schedules), grouped(tally.operations),
               grouped(tally.out_of_memory), grouped(tally.failed),
               fmt::format("{:.1f}", seconds.count())});
    for (const auto& [kind, failure] : tally.first)
      print_failure(policy, Breakage::kNone, failure);
    good = good && tally.first.empty();
  }
  fmt::print("{}\n", table.format());
  return good;
}

// system's blocks go back to a driver that waits for the whole device at each free: it needs
// neither streams nor record_stream.
bool is_immune(const std::string& policy) { return policy == "system"; }

// "reuse after 3, unmap after 17": for each kind of fault, the schedules until it was first caught.
std::string caught(const Tally& tally, std::uint64_t first_seed) {
  std::string text;
  for (const auto& [kind, failure] : tally.first)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind, failure.seed - first_seed + 1);
  return text;
}

bool broken_policies(const Options& options) {
  bool good = true;
  for (const Breakage breakage : breakages()) {
    TextTable table({"policy", name_of(breakage), "schedules", "calls lost", "caught in"});
    for (const std::string& policy : chosen_policies(options)) {
      const Tally tally = run(policy, breakage, options.seed, options.broken_schedules,
                              options.threads);
      const bool missed = tally.lost != 0 && tally.failed == 0 && !is_immune(policy);
      std::string verdict = caught(tally, options.seed);
      if (tally.lost == 0) verdict = "never used";
      if (verdict.empty()) verdict = missed ? "NOT CAUGHT" : "immune: frees wait";
      table.add({policy, verdict, grouped(tally.schedules), grouped(tally.lost),
                 grouped(tally.failed)});
      good = good && !missed;
    }
    fmt::print("{}\n", table.format());
  }
  return good;
}

int one_schedule(const Options& options) {
  const Breakage breakage = find_breakage(options.breakage);
  bool good = true;
  for (const std::string& policy : chosen_policies(options)) {
    const Schedule schedule = random_schedule(*options.only);
    const TrialResult result = Trial(policy, breakage).run(schedule);
    fmt::print("{}: {} operations, {} out of memory, {} faults\n", policy, result.operations,
               result.out_of_memory, result.faults.size());
    for (const std::string& fault : result.faults) fmt::print("  {}\n", fault);
    if (result.faults.empty()) continue;
    good = false;
    print_failure(policy, breakage, {*options.only, result.faults.front()});
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tenon

int main(int argc, char** argv) {
  tenon::Options options;
  CLI::App app{"The stream rule under random schedules."};
  app.add_option("--schedules", options.schedules, "for each policy");
  app.add_option("--broken-schedules", options.broken_schedules, "for each broken policy");
  app.add_option("--threads", options.threads);
  app.add_option("--seed", options.seed, "of the first schedule");
  app.add_option("--policy", options.policy, "one policy alone");
  app.add_option("--only", options.only, "run the schedule of this seed, and shrink it");
  app.add_option("--breakage", options.breakage, "with --only: how the policy is broken");
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a long run is watched through its log
  if (options.only) return tenon::one_schedule(options);
  fmt::print("Every policy as it is, seeds from {}:\n\n", options.seed);
  const bool whole = tenon::whole_policies(options);
  fmt::print("Every policy broken on purpose: after how many schedules which fault was first\n"
             "caught, and in how many of all (\"never used\": the policy does without what was\n"
             "broken):\n\n");
  return tenon::broken_policies(options) && whole ? 0 : 1;
}
