// What every policy holds against Robson's adversary: bench_robson [LIVE SMALLEST LARGEST].
#include <fmt/format.h>

#include <exception>
#include <string>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"
#include "rigs/robson.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

struct Case {
  std::uint64_t live = 0;
  std::uint64_t smallest = 0;
  std::uint64_t largest = 0;
};

std::string cell(const std::string& policy, std::uint64_t page_bytes, const Case& c) {
  SimBackend backend;
  try {
    PolicyOptions options;
    options.page_bytes = page_bytes;
    const auto allocator = make_policy(policy, backend, options);
    const RobsonFigures figures = run_robson(*allocator, c.live, c.smallest, c.largest);
    return fmt::format("{:.3f}", static_cast<double>(figures.reserved_peak_bytes) /
                                     static_cast<double>(figures.live_peak_bytes));
  } catch (const OutOfMemory&) {
    return "no room";
  }
}

void print(const std::vector<Case>& cases) {
  fmt::print("Robson's adversary: reserved / live peak\n{:<22}", "");
  for (const Case& c : cases)
    fmt::print("{:>24}", fmt::format("{}: {}-{}", format_byte_size(c.live),
                                     format_byte_size(c.smallest), format_byte_size(c.largest)));
  fmt::print("\n{:<22}", "bound without moving");
  for (const Case& c : cases)
    fmt::print("{:>24.3f}", robson_bound(c.live, c.smallest, c.largest));
  fmt::print("\n");
  const auto row = [&](const std::string& title, const std::string& policy, std::uint64_t page) {
    fmt::print("{:<22}", title);
    for (const Case& c : cases) fmt::print("{:>24}", cell(policy, page, c));
    fmt::print("\n");
  };
  for (const Policy& policy : policies()) {
    if (policy.name == "null" || policy.needs_plan) continue;  // no memory; no recording
    row(policy.name, policy.name, 0);
    if (policy.name == "stitched") row("stitched, 2 MiB pages", policy.name, 2 * kMiB);
  }
}

}  // namespace
}  // namespace tenon

int main(int argc, char** argv) {
  using namespace tenon;
  try {
    if (argc == 4)
      print({{parse_byte_size(argv[1]), parse_byte_size(argv[2]), parse_byte_size(argv[3])}});
    else if (argc == 1)
      print({{kGiB, 2 * kMiB, 64 * kMiB}, {4 * kGiB, 16 * kMiB, 256 * kMiB},
             {256 * kMiB, 512, kMiB}});
    else
      throw InvalidArgument("usage: bench_robson [LIVE SMALLEST LARGEST], like 1GiB 2MiB 64MiB");
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_robson: {}\n", error.what());
    return 2;
  }
}
