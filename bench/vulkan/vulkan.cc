// What a Vulkan device costs: a recycled buffer, recording an operator, memory held for programs
// (beside policies with pages, on a simulated device), products beside the host's. The driver is
// the one that VK_DRIVER_FILES names.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/parallel.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/device/vulkan/vulkan_backend.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/registry.h"
#include "tenon/ops/conv.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

constexpr Device kVulkan{DeviceType::kVulkan, 0};
constexpr int kRuns = 7;
constexpr int kTries = 25;

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of all runs but the first.
double median_of_warm(std::vector<double> times) {
  times.erase(times.begin());
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

double median_seconds(const std::function<void()>& run) {
  std::vector<double> times;
  for (int i = 0; i <= kRuns; ++i) times.push_back(seconds_of(run));
  return median_of_warm(std::move(times));
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
    times.push_back(seconds_of([&] {
      for (int i = 0; i < kCalls; ++i) ops::add_(a, a);
    }));
    vulkan_backend(0).synchronize();
  }
  fmt::print("recording an operator, submissions included: {:.2f} us\n",
             1e6 * median_of_warm(times) / kCalls);
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

struct Least {
  double seconds = 1e9;
  double of_cores = 1e9;  // seconds that the process computed, all threads together
};
Least least_of(const std::function<void()>& run) {
  const auto of_cores = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  Least least;
  for (int i = 0; i < kTries; ++i) {
    const double before = of_cores();
    least.seconds = std::min(least.seconds, seconds_of(run));
    least.of_cores = std::min(least.of_cores, of_cores() - before);
  }
  return least;
}

// The least of many runs, since other programs disturb most of them; by the clock and by the time
// that cores computed for this process. One side after the other: the host's idle threads spin for
// a while.
void print_beside_host(const std::string& what, double flops, const std::function<void()>& on_host,
                       const std::function<void()>& on_device) {
  const Least host = least_of(on_host);
  const Least device = least_of([&] {
    on_device();
    vulkan_backend(0).synchronize();
  });
  fmt::print("{}: {:6.1f} GFLOP/s, the host {:6.1f}: {:.0f} %; in a second of one core {:.1f} "
             "GFLOP, the host {:.1f}: {:.0f} %\n",
             what, flops / device.seconds / 1e9, flops / host.seconds / 1e9,
             100 * host.seconds / device.seconds, flops / device.of_cores / 1e9,
             flops / host.of_cores / 1e9, 100 * host.of_cores / device.of_cores);
}

void print_products() {
  Generator generator(1);
  for (const std::int64_t n : {256, 512, 1024}) {
    const Tensor a = randn({n, n}, DType::kF32, generator);
    const Tensor there = to(a, kVulkan);
    print_beside_host(
        fmt::format("product of {} x {}", n, n), 2.0 * static_cast<double>(n * n * n),
        [&] { static_cast<void>(ops::matmul(a, a)); },
        [&] { static_cast<void>(ops::matmul(there, there)); });
  }
  const Tensor images = randn({8, 64, 28, 28}, DType::kF32, generator);
  const Tensor weight = randn({64, 64, 3, 3}, DType::kF32, generator);
  const Tensor images_there = to(images, kVulkan), weight_there = to(weight, kVulkan);
  print_beside_host(
      "convolution of 8 x 64 x 28 x 28 by 64 x 3 x 3",
      2.0 * static_cast<double>(images.numel()) * 64 * 9,
      [&] { static_cast<void>(ops::conv2d(images, weight, {}, {.padding = 1})); },
      [&] { static_cast<void>(ops::conv2d(images_there, weight_there, {}, {.padding = 1})); });
}

void run() {
  fmt::print("{}\n{} threads of the host; medians of {} runs; products and convolutions: the "
             "least time of {}\n\n",
             vulkan_backend(0).description(), num_threads(), kRuns, kTries);
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
