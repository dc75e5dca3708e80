// How many bytes of a peak get a category, and how many the right one: over programs whose
// categories are known. Recordings that begin with the program and have stacks must get 99 % and 95
// %, each kind of them; of others the categories are guesses (they say so), and their figures are
// printed beside.
//   bench_verdict [FIRST [COUNT]]     seeds; 1000 and 300 without
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <map>
#include <string>

#include "tenon/base/byte_size.h"
#include "tenon/lab/explain/live_set.h"
#include "rigs/known_program.h"

namespace {

using namespace tenon;

struct Score {
  std::uint64_t programs = 0;
  double told = 0;  // sums of shares of each program's peak
  double right = 0;
  double worst = 1;
  std::uint64_t worst_seed = 0;

  void add(double told_share, double right_share, std::uint64_t seed) {
    ++programs;
    told += told_share;
    right += right_share;
    if (right_share < worst) {
      worst = right_share;
      worst_seed = seed;
    }
  }
};

void print(const std::string& name, const Score& score) {
  const auto count = static_cast<double>(score.programs);
  fmt::print(
      "{:<28} {:>5} programs  told {:>6.2f} %  right {:>6.2f} %  worst {:>6.2f} % (seed {})\n",
      name, score.programs, 100 * score.told / count, 100 * score.right / count, 100 * score.worst,
      score.worst_seed);
}

// Bytes by truth and answer, for the mistakes that cost most.
using Confusion = std::map<std::pair<Category, Category>, double>;

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000;
  const std::uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 300;
  const bool each = argc > 3;
  std::map<std::string, Score> kinds;
  Score all;
  Confusion confusion;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const KnownProgram program = make_known_program(seed);
    const TraceFacts facts(program.trace);
    const Moment peak = live_peak(program.trace);
    std::uint64_t told = 0;
    std::uint64_t right = 0;
    for (std::uint32_t block = 0; block < program.trace.blocks; ++block) {
      const Lifetime& life = facts.lives[block];
      if (!life.live_after(peak.events)) continue;
      const Category found = facts.categories.blocks[block].category;
      if (found != Category::kUnknown) told += life.size_bytes;
      if (found == program.truth[block])
        right += life.size_bytes;
      else
        confusion[{program.truth[block], found}] +=
            static_cast<double>(life.size_bytes) / static_cast<double>(peak.bytes);
    }
    const auto bytes = static_cast<double>(peak.bytes);
    const double told_share = static_cast<double>(told) / bytes;
    const double right_share = static_cast<double>(right) / bytes;
    all.add(told_share, right_share, seed);
    const auto has = [&](const char* text) { return program.what.find(text) != std::string::npos; };
    std::string kind = has("no stacks")               ? "no stacks"
                       : has("C++ and Python stacks") ? "C++ and Python stacks"
                                                      : "Python stacks";
    if (has("begun late")) kind += ", late";
    kinds[kind].add(told_share, right_share, seed);
    if (each) fmt::print("{:>5} {:>6.2f} %  {}\n", seed, 100 * right_share, program.what);
  }
  fmt::print("programs with known categories, seeds {} to {}: bytes of the live peak\n", first,
             first + count - 1);
  for (const auto& [name, score] : kinds) print(name, score);
  print("all", all);
  for (const auto& [pair, share] : confusion)
    if (share * 500 > static_cast<double>(count))
      fmt::print("  {} taken for {}: {:.2f} % of all peaks\n", category_name(pair.first),
                 category_name(pair.second), 100 * share / static_cast<double>(count));
  bool good = all.told / static_cast<double>(all.programs) >= 0.99;
  for (const char* kind : {"Python stacks", "C++ and Python stacks"})
    good = good && kinds[kind].right >= 0.95 * static_cast<double>(kinds[kind].programs);
  return good ? 0 : 1;
}
