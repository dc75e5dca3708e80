// What a second thread on a second stream adds: the rate of two threads that replay a real trace,
// each on a stream of its own, over the rate of one. On one allocator; and with an allocator each,
// which is what the machine allows.
//   bench_two_threads [passes] [TRACE]
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tenon/device/sim/sim_backend.h"
#include "tenon/lab/workload.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/load.h"

namespace {

using namespace tenon;

constexpr int kRounds = 8;  // replays of the trace by each thread, in a pass

void replay(const Workload& workload, DeviceAllocator& allocator, Stream stream, int rounds) {
  std::vector<DataPtr> blocks(workload.slots());
  for (int round = 0; round < rounds; ++round) {
    for (const ReplayOp& op : workload.ops()) {
      if (op.alloc)
        blocks[op.slot] = allocator.allocate_on(op.size_bytes, stream);
      else
        blocks[op.slot].clear();
    }
    for (DataPtr& block : blocks) block.clear();
  }
}

// Allocators over devices of their own, and the streams that threads use.
struct Subjects {
  Subjects(const std::string& policy, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      devices.push_back(std::make_unique<SimBackend>(SimOptions{}));
      allocators.push_back(make_policy(policy, *devices.back()));
    }
    for (std::size_t thread = 0; thread < 2; ++thread)
      streams.push_back(devices[thread % count]->create_stream());
  }
  DeviceAllocator& of(std::size_t thread) { return *allocators[thread % allocators.size()]; }

  std::vector<std::unique_ptr<SimBackend>> devices;
  std::vector<std::unique_ptr<DeviceAllocator>> allocators;
  std::vector<Stream> streams;
};

// Events a microsecond of all threads together.
double rate(const Workload& workload, Subjects& subjects, std::size_t threads) {
  std::atomic<std::size_t> ready = 0;
  std::atomic<bool> go = false;
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t)
    running.emplace_back([&, t] {
      replay(workload, subjects.of(t), subjects.streams[t], 1);  // its heap, its memory
      ++ready;
      while (!go) std::this_thread::yield();
      replay(workload, subjects.of(t), subjects.streams[t], kRounds);
    });
  while (ready != threads) std::this_thread::yield();
  const auto start = std::chrono::steady_clock::now();
  go = true;
  for (std::thread& thread : running) thread.join();
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  return static_cast<double>(threads * kRounds * workload.ops().size()) / elapsed.count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(int passes, const std::string& file) {
  const std::vector<Trace> traces = load_traces(file);
  const Workload workload(traces.at(0));
  fmt::print("{:>11} {:>11} {:>11} {:>9} {:>17}\n", "policy", "1 thread", "2 threads", "ratio",
             "ratio if apart");
  for (const Policy& policy : policies()) {
    if (policy.name == "plan") continue;  // serves the order that it was planned from
    Subjects together(policy.name, 1);
    Subjects apart(policy.name, 2);
    std::vector<double> one;
    std::vector<double> two;
    std::vector<double> ratios;  // of neighbouring measurements: a noisy moment meets all three
    std::vector<double> bounds;
    for (int pass = 0; pass < passes; ++pass) {
      one.push_back(rate(workload, together, 1));
      two.push_back(rate(workload, together, 2));
      ratios.push_back(two.back() / one.back());
      bounds.push_back(rate(workload, apart, 2) / one.back());
    }
    fmt::print("{:>11} {:>8.1f}/us {:>8.1f}/us {:>8.2f}x {:>16.2f}x\n", policy.name, median(one),
               median(two), median(ratios), median(bounds));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (std::thread::hardware_concurrency() < 2) {
    fmt::print("this machine runs one thread at a time: nothing to measure\n");
    return 0;
  }
  try {
    run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 9,
        argc > 2 ? argv[2] : TENON_SOURCE_DIR "/data/traces/gpt2.csv.zst");
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_two_threads: {}\n", error.what());
    return 2;
  }
}
