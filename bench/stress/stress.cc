// Long random operations over every policy with content checks: several threads and streams, blocks
// freed on other threads, cached memory given back, driver calls that fail.
// Usage: bench_stress [operations per policy and thread, default 200000] [seed, default 1]
// Exits with 1 at the first wrong byte, broken invariant or leak, and prints the seed.
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

constexpr int kThreads = 2;

struct Held {
  DataPtr data;
  std::uint64_t size_bytes = 0;
  std::uint8_t value = 0;
};

// Blocks on their way to be checked and freed by another thread.
class Exchange {
 public:
  void give(Held held) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(held));
  }
  bool take(Held* held) {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return false;
    *held = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::deque<Held> queue_;
};

struct Totals {
  std::atomic<std::uint64_t> operations{0};
  std::atomic<std::uint64_t> out_of_memory{0};
  std::atomic<std::uint64_t> device_errors{0};
  std::atomic<std::uint64_t> wrong{0};
};

void fill(Held& held) { std::memset(held.data.get(), held.value, held.size_bytes); }

bool holds_its_value(const Held& held) {
  const auto* bytes = static_cast<const std::uint8_t*>(held.data.get());
  for (std::uint64_t i = 0; i < held.size_bytes; ++i)
    if (bytes[i] != held.value) return false;
  return true;
}

// One thread on its own stream: what it frees it checks first, and so it does what others gave it.
void churn(DeviceAllocator& allocator, Stream stream, std::uint64_t seed, std::uint64_t operations,
           Exchange& exchange, Totals& totals) {
  Random random(seed);
  std::vector<Held> live;
  const auto check_and_free = [&](Held held) {
    if (!holds_its_value(held)) ++totals.wrong;
    held.data.clear();
  };
  for (std::uint64_t i = 0; i < operations && totals.wrong == 0; ++i) {
    ++totals.operations;
    Held given;
    const std::uint64_t dice = random.below(1000);
    try {
      if (dice < 480 || live.empty()) {
        const std::uint64_t size = random.between(1, std::uint64_t{64} << random.below(14));
        Held held{allocator.allocate_on(size, stream), size,
                  static_cast<std::uint8_t>(random.next())};
        fill(held);
        live.push_back(std::move(held));
      } else if (dice < 998) {
        std::swap(live[random.below(live.size())], live.back());
        Held held = std::move(live.back());
        live.pop_back();
        if (dice < 900)
          check_and_free(std::move(held));
        else
          exchange.give(std::move(held));
      } else {
        allocator.empty_cache();
      }
    } catch (const OutOfMemory&) {
      ++totals.out_of_memory;
      for (int n = 0; n < 8 && !live.empty(); ++n) live.pop_back();
    } catch (const DeviceError&) {
      ++totals.device_errors;
    }
    if (random.below(16) == 0 && exchange.take(&given)) check_and_free(std::move(given));
  }
  for (Held& held : live) check_and_free(std::move(held));
}

bool stress(const Policy& policy, std::uint64_t operations, std::uint64_t seed) {
  SimOptions options;
  options.real_memory = true;
  options.capacity_bytes = 1ull << 30;
  options.seed = seed;
  SimBackend backend(options);
  std::vector<Stream> streams{Stream{backend.device(), 0}};
  while (streams.size() < kThreads) streams.push_back(backend.create_stream());
  auto allocator = policy.make(backend, {});
  backend.set_failure_rate(0.01);
  Totals totals;
  {
    Exchange exchange;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        churn(*allocator, streams[static_cast<std::size_t>(t)], seed * 1000 + t, operations,
              exchange, totals);
      });
    for (std::thread& thread : threads) thread.join();
  }
  backend.clear_failures();
  allocator->check_invariants();
  const auto left = allocator->stats().allocation[0].current;
  allocator.reset();
  const bool good = totals.wrong == 0 && left == 0 && backend.used_bytes() == 0;
  fmt::print("{:<12} {:>10} operations, {:>6} out of memory, {:>4} device errors: {}\n",
             policy.name, totals.operations.load(), totals.out_of_memory.load(),
             totals.device_errors.load(),
             good ? "every byte right, nothing leaked"
                  : fmt::format("FAILED: {} wrong blocks, {} blocks left, {} bytes left; seed {}",
                                totals.wrong.load(), left, backend.used_bytes(), seed));
  std::fflush(stdout);
  return good;
}

}  // namespace
}  // namespace tenon

int main(int argc, char** argv) {
  const std::uint64_t operations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200'000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  bool good = true;
  for (const tenon::Policy& policy : tenon::policies()) {
    if (policy.name == "null" || policy.name == "plan") continue;  // no memory; needs a recording
    good = tenon::stress(policy, operations, seed) && good;
  }
  return good ? 0 : 1;
}
