// What a Vulkan device costs: a recycled buffer, recording an operator, memory held for programs
// (beside policies with pages, on a simulated device), products beside the host's. The driver is
// the one that VK_DRIVER_FILES names.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/parallel.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/device/vulkan/vulkan_backend.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/registry.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

constexpr Device kVulkan{DeviceType::kVulkan, 0};
constexpr int kRuns = 7;

// Seconds of the median run.
double median_seconds(const std::function<void()>& run) {
  std::vector<double> times;
  run();
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

void print_pairs() {
  constexpr int kPairs = 100000;
  Allocator& allocator = *current_allocator(kVulkan);
  for (const std::size_t size : {std::size_t{1000}, std::size_t{1} << 20, std::size_t{8} << 20}) {
    const double seconds = median_seconds([&] {
      for (int i = 0; i < kPairs; ++i) static_cast<void>(allocator.allocate(size));
    });
    fmt::print("allocate and free {:>8} again: {:6.1f} ns\n", format_byte_size(size),
               1e9 * seconds / kPairs);
  }
}

// The host's time alone: the device works on tensors of one element, and is waited for between
// runs.
void print_recording() {
  constexpr int kCalls = 2000;
  const Tensor a = to(ones({1}, DType::kF32), kVulkan);
  std::vector<double> times;
  for (int run = 0; run <= kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) ops::add_(a, a);
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    vulkan_backend(0).synchronize();
  }
  std::sort(times.begin(), times.end());
  fmt::print("recording an operator, submissions included: {:.2f} us\n",
             1e6 * times[kRuns / 2] / kCalls);
}

// Tensors of 4 KiB to 64 MiB, 10 GiB in all, at most 1 GiB of them alive.
void run_program(DeviceAllocator& allocator) {
  Random random(1);
  std::vector<DataPtr> live;
  std::vector<std::uint64_t> sizes;
  std::uint64_t live_bytes = 0, made = 0;
  while (made < 10 * kGiB) {
    const std::uint64_t size = random.between(2048, 4096) << random.below(15);
    while (live_bytes + size > kGiB) {
      const std::size_t which = random.below(live.size());
      live_bytes -= sizes[which];
      std::swap(live[which], live.back());
      std::swap(sizes[which], sizes.back());
      live.pop_back();
      sizes.pop_back();
    }
    live.push_back(allocator.allocate(size));
    sizes.push_back(size);
    live_bytes += size;
    made += size;
  }
}

void print_memory(Backend& backend, const char* policy, const char* device) {
  const auto allocator = make_policy(policy, backend);
  const std::uint64_t before = backend.ledger().count(DriverCall::kAllocate);
  run_program(*allocator);
  const AllocatorStats stats = allocator->stats();
  fmt::print("{:>10}, {}: reserved / live peak {:.3f}, {} segments for 10 GiB of tensors\n", policy,
             device,
             static_cast<double>(stats.reserved_bytes[0].peak) /
                 static_cast<double>(stats.requested_bytes[0].peak),
             backend.ledger().count(DriverCall::kAllocate) - before);
}

void print_memory() {
  for (const char* policy : {"unified", "pool", "caching"})
    print_memory(vulkan_backend(0), policy, "Vulkan");
  for (const char* policy : {"unified", "pool", "caching", "expandable", "stitched"}) {
    SimBackend simulated;
    print_memory(simulated, policy, "simulated");
  }
}

void print_products() {
  Generator generator(1);
  for (const std::int64_t n : {256, 512, 1024}) {
    const Tensor a = randn({n, n}, DType::kF32, generator);
    const Tensor there = to(a, kVulkan);
    const double flops = 2.0 * static_cast<double>(n * n * n);
    const double host = median_seconds([&] { static_cast<void>(ops::matmul(a, a)); });
    const double device = median_seconds([&] {
      static_cast<void>(ops::matmul(there, there));
      vulkan_backend(0).synchronize();
    });
    fmt::print("product of {} x {}: {:6.1f} GFLOP/s, the host {:6.1f}: {:.0f} %\n", n, n,
               flops / device / 1e9, flops / host / 1e9, 100 * host / device);
  }
}

void run() {
  fmt::print("{}\n{} threads of the host; medians of {} runs\n\n",
             vulkan_backend(0).description(), num_threads(), kRuns);
  print_pairs();
  print_recording();
  print_memory();
  print_products();
}

}  // namespace
}  // namespace tenon

int main() {
  try {
    tenon::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_vulkan: {}\n", error.what());
    return 1;
  }
}
