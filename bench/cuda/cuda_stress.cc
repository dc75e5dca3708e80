// Random operations on a GPU with kernels that check contents:
//
//   bench_cuda_stress [--operations 100000000] [--policy stitched] [--threads 2] [--streams 4]
//                     [--seconds 0]
//
// Fails when one word was wrong, memory was left over, or the device was lost. After --seconds the
// rest is left out: several runs with other seeds make up a long one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "cuda_or_not.h"
#include "tenon/base/byte_size.h"
#include "rigs/content_stress.h"
#include "tenon/memory/policies.h"

using namespace tenon;

int main(int argc, char** argv) {
  ContentStressOptions options;
  options.operations = 100'000'000;
  options.threads = 2;
  options.streams = 4;
  std::string policy = "stitched";
  std::string live = "4GiB";
  int index = 0;
  CLI::App app{"Random use of an allocator on a GPU, with kernels that check contents"};
  app.add_option("--operations", options.operations, "Allocations and frees in all")
      ->capture_default_str();
  app.add_option("--policy", policy, "One that knows other streams")->capture_default_str();
  app.add_option("--threads", options.threads, "Threads")->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--streams", options.streams, "Streams of each thread")->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--live", live, "Most bytes live at once, of each thread")->capture_default_str();
  app.add_option("--seed", options.seed, "Of the random numbers")->capture_default_str();
  app.add_option("--seconds", options.most_seconds, "Stop after so long; 0: never")
      ->capture_default_str();
  app.add_option("--device", index, "Which GPU")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto driver = bench::cuda_or_not("bench_cuda_stress");
  if (driver == nullptr) return 0;
  CudaBackend backend(driver, index);
  options.max_live_bytes = parse_byte_size(live);
  const auto start = std::chrono::steady_clock::now();
  ContentStressResult result;
  std::uint64_t left = 0;
  try {
    const auto allocator = make_policy(policy, backend);
    result = run_content_stress(backend, *allocator, options);
    allocator->check_invariants();
    allocator->empty_cache();
    left = static_cast<std::uint64_t>(allocator->stats().allocated_bytes[0].current);
  } catch (const std::exception& error) {
    fmt::print("bench_cuda_stress: {} on {}, seed {}: {}\n", policy, to_string(backend.device()),
               options.seed, error.what());
    return 1;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{} on {}, seed {}: {} operations in {:.0f} s, {} allocations, {} lent to other "
             "streams, {} out of memory, {} wrong words, {} bytes leaked, {} still held\n",
             policy, to_string(backend.device()), options.seed, result.operations, seconds.count(),
             result.allocations, result.lent, result.out_of_memory, result.wrong_words, left,
             backend.held_bytes());
  return result.wrong_words == 0 && left == 0 && backend.held_bytes() == 0 ? 0 : 1;
}
