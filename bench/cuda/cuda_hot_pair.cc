// What a block costs that is made and dropped again and again on the device:
//
//   bench_cuda_hot_pair [--device 0]
//
// Nanoseconds for an allocation and its free, the least of many rounds, by size and policy; and
// the same by bare pointer, as PyTorch's hooks take it. (PyTorch's own: 410; cudaMallocAsync: 650.)
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "cuda_or_not.h"
#include "tenon/base/byte_size.h"
#include "tenon/device/cuda/cuda_backend.h"
#include "tenon/lab/text_table.h"
#include "tenon/memory/policies.h"

using namespace tenon;

namespace {

// The least of many rounds, within a third of a second: a policy that goes to the driver each time
// has few.
template <typename Pair>
double least_ns(Pair&& pair) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(300);
  double least = 1e300;
  for (int pairs = 1; Clock::now() < end; pairs = std::min(pairs * 2, 4096)) {
    const auto start = Clock::now();
    for (int i = 0; i < pairs; ++i) pair();
    const std::chrono::duration<double, std::nano> ns = Clock::now() - start;
    least = std::min(least, ns.count() / pairs);
  }
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  int index = 0;
  CLI::App app{"Hot pairs on a GPU"};
  app.add_option("--device", index, "Which GPU")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto driver = bench::cuda_or_not("bench_cuda_hot_pair");
  if (driver == nullptr) return 0;
  CudaBackend backend(driver, index);
  TextTable table({"policy", "512 B", "1 MiB", "64 MiB", "1 MiB, bare pointer"});
  for (const char* policy : {"stitched", "caching", "expandable", "unified", "arena"}) {
    const auto allocator = make_policy(policy, backend);
    const Stream stream = backend.create_stream();
    std::vector<std::string> row = {policy};
    for (const std::uint64_t size : {std::uint64_t{512}, kMiB, 64 * kMiB})
      row.push_back(fmt::format("{:.1f}", least_ns([&] {
                                  const DataPtr block = allocator->allocate_on(size, stream);
                                })));
    row.push_back(fmt::format("{:.1f}", least_ns([&] {
                                allocator->raw_deallocate(allocator->raw_allocate_on(kMiB, stream));
                              })));
    table.add(row);
  }
  fmt::print("ns for an allocation and its free, on {}\n{}", to_string(backend.device()),
             table.format());
  return 0;
}
