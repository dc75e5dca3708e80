// What an allocate and free pair costs on the host, beside the C library.
//   bench_host_pair [passes]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/cpu/cpu_allocator.h"
#include "tenon/memory/host/host_allocator.h"

namespace {

using Clock = std::chrono::steady_clock;

// One byte of each page, as a user would touch what it gets.
void touch(void* data, std::size_t size_bytes) {
  volatile char* bytes = static_cast<volatile char*>(data);
  for (std::size_t at = 0; at < size_bytes; at += 4096) bytes[at] = 1;
}

// The median over `passes` of ns per call.
template <typename Call>
double median_ns(int passes, int calls, Call&& call) {
  std::vector<double> ns;
  for (int pass = 0; pass < passes; ++pass) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
    ns.push_back(elapsed.count() / calls);
  }
  std::nth_element(ns.begin(), ns.begin() + passes / 2, ns.end());
  return ns[static_cast<std::size_t>(passes / 2)];
}

}  // namespace

int main(int argc, char** argv) {
  const int passes = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  tenon::SimOptions options;
  options.real_memory = true;
  tenon::SimBackend backend(options);
  tenon::HostAllocator host(backend);
  tenon::Allocator& cpu = *tenon::get_default_cpu_allocator();

  // With only one thread ever started, glibc skips its atomics: that would be no comparison.
  std::thread([] {}).join();

  fmt::print("allocate, touch a byte per page, free; ns, median of {} passes\n", passes);
  fmt::print("{:>10} {:>12} {:>12} {:>12} {:>14}\n", "size", "glibc", "cpu", "host",
             "glibc / host");
  for (std::size_t size : {64, 512, 4096, 65536, 262144, 1 << 20, 16 << 20, 64 << 20}) {
    const int calls = static_cast<int>(std::clamp<std::size_t>((256u << 20) / size, 8, 200000));
    const double glibc = median_ns(passes, calls, [&] {
      void* data = std::aligned_alloc(64, size);
      touch(data, size);
      std::free(data);
    });
    const auto pair_of = [&](tenon::Allocator& allocator) {
      return median_ns(passes, calls, [&] {
        const tenon::DataPtr data = allocator.allocate(size);
        touch(data.get(), size);
      });
    };
    const double cpu_ns = pair_of(cpu);
    const double host_ns = pair_of(host);
    fmt::print("{:>10} {:>12.1f} {:>12.1f} {:>12.1f} {:>13.2f}x\n", tenon::format_byte_size(size),
               glibc, cpu_ns, host_ns, glibc / host_ns);
  }
  return 0;
}
