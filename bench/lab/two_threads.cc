// What a second thread on a second stream adds: the rate of two threads that replay a real trace,
// each on a stream of its own, over the rate of one that is alone with its allocator. On one
// allocator; and with an allocator each, which is what the machine allows for such work: of that
// rate, 95 % is wanted. The ratio of `null`, which shares nothing, is what the machine allows at
// all.
//   bench_two_threads [passes] [TRACE] [POLICY]
#include <fmt/format.h>

#include <ctime>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tenon/device/sim/sim_backend.h"
#include "tenon/lab/workload.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/load.h"

namespace {

using namespace tenon;

constexpr std::size_t kThreads = 2;
constexpr int kRounds = 6;  // replays of the trace by each thread, in a measurement

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

// Two threads that live as long as it does, so that what an allocator keeps for a thread stays its
// own from one measurement to the next.
class Workers {
 public:
  using Work = std::function<void(std::size_t thread)>;

  Workers() {
    for (std::size_t t = 0; t < kThreads; ++t) threads_[t] = std::thread([this, t] { serve(t); });
  }
  ~Workers() {
    run(kThreads, nullptr);
    for (std::thread& thread : threads_) thread.join();
  }

  // Runs `work` on the first `count` threads at once and returns when all have done it.
  void run(std::size_t count, Work work) {
    std::unique_lock lock(mutex_);
    work_ = std::move(work);
    left_ = count_ = count;
    ++turn_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return left_ == 0; });
  }

 private:
  void serve(std::size_t thread) {
    for (std::size_t turns = 0;; ) {
      Work work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return turn_ != turns; });
        turns = turn_;
        if (thread >= count_) continue;
        work = work_;
      }
      if (work) work(thread);
      const std::lock_guard lock(mutex_);
      --left_;
      changed_.notify_all();
      if (!work) return;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Work work_;
  std::size_t count_ = 0;
  std::size_t left_ = 0;
  std::size_t turn_ = 0;
  std::array<std::thread, kThreads> threads_;
};

// Allocators over devices of their own, and the streams that threads use.
struct Subjects {
  Subjects(const std::string& policy, std::size_t thread_count, std::size_t count)
      : threads(thread_count) {
    for (std::size_t i = 0; i < count; ++i) {
      devices.push_back(std::make_unique<SimBackend>(SimOptions{}));
      allocators.push_back(make_policy(policy, *devices.back()));
    }
    for (std::size_t thread = 0; thread < threads; ++thread)
      streams.push_back(devices[thread % count]->create_stream());
  }
  void replay(const Workload& workload, std::size_t thread, int rounds) {
    ::replay(workload, *allocators[thread % allocators.size()], streams[thread], rounds);
  }

  const std::size_t threads;
  std::vector<std::unique_ptr<SimBackend>> devices;
  std::vector<std::unique_ptr<DeviceAllocator>> allocators;
  std::vector<Stream> streams;
};

double cpu_seconds_of_this_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Of one configuration: the best of all measurements, since whatever else runs on the machine only
// makes them worse.
struct Best {
  double rate = 0;          // events a microsecond of all threads together
  double cpu_ns = 1e30;     // processor time an event

  void measure(const Workload& workload, Workers& workers, Subjects& subjects) {
    using Clock = std::chrono::steady_clock;
    std::array<Clock::time_point, kThreads> begin, end;
    std::array<double, kThreads> cpu = {};
    workers.run(subjects.threads, [&](std::size_t thread) {
      const double before = cpu_seconds_of_this_thread();
      begin[thread] = Clock::now();
      subjects.replay(workload, thread, kRounds);
      end[thread] = Clock::now();
      cpu[thread] = cpu_seconds_of_this_thread() - before;
    });
    const std::size_t n = subjects.threads;
    const std::chrono::duration<double, std::micro> elapsed =
        *std::max_element(end.begin(), end.begin() + n) -
        *std::min_element(begin.begin(), begin.begin() + n);
    const auto events = static_cast<double>(n * kRounds * workload.ops().size());
    rate = std::max(rate, events / elapsed.count());
    cpu_ns = std::min(cpu_ns, 1e9 * (cpu[0] + cpu[1]) / events);
  }
};

// A policy's allocators, in the three configurations.
struct Candidate {
  explicit Candidate(const std::string& policy)
      : name(policy), alone(policy, 1, 1), together(policy, 2, 1), apart(policy, 2, 2) {}

  std::string name;
  Subjects alone, together, apart;
  Best one, two, bound;
};

void print_machine() {
  std::string siblings;
  std::getline(std::ifstream("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list"),
               siblings);
  fmt::print("{} processors; the system says that the first shares its core with {}\n",
             std::thread::hardware_concurrency(),
             siblings.empty() ? "it does not know whom"
             : siblings == "0" ? "none (a virtual machine may not know)" : siblings);
}

void print(const std::vector<Candidate*>& candidates) {
  fmt::print("best of all passes; by processor time: 2 x what one thread takes for an event over "
             "what each of two takes\n\n");
  fmt::print("{:>11} {:>11} {:>11} {:>8} {:>8} {:>9} {:>11} {:>10} {:>10}\n", "policy",
             "1 thread", "2 threads", "ratio", "apart", "of apart", "of null's", "by cpu", "apart");
  double null_ratio = 0;
  double least = 1e9;
  std::string least_of;
  for (const Candidate* c : candidates) {
    const double ratio = c->two.rate / c->one.rate;
    if (c->name == "null") null_ratio = ratio;
    const double of_apart = c->two.rate / c->bound.rate;
    if (c->name != "system" && of_apart < least) {
      least = of_apart;
      least_of = c->name;
    }
    fmt::print("{:>11} {:>8.1f}/us {:>8.1f}/us {:>7.2f}x {:>7.2f}x {:>8.0f}% {:>10.0f}%", c->name,
               c->one.rate, c->two.rate, ratio, c->bound.rate / c->one.rate, 100 * of_apart,
               100 * ratio / null_ratio);
    fmt::print(" {:>9.2f}x {:>9.2f}x\n", 2 * c->one.cpu_ns / c->two.cpu_ns,
               2 * c->one.cpu_ns / c->bound.cpu_ns);
  }
  fmt::print("\nleast of apart, but for system: {:.1f} % ({}); wanted: at least 95 %: {}\n",
             100 * least, least_of, least >= 0.95 ? "kept" : "NOT");
}

// Every pass measures every policy in every configuration, so that a noisy moment spoils no row.
// The configurations with two threads take turns in being the first, which finds colder caches.
void run(int passes, const std::string& file, const std::string& only) {
  const std::vector<Trace> traces = load_traces(file);
  const Workload workload(traces.at(0));
  std::vector<std::unique_ptr<Candidate>> candidates;
  for (const Policy& policy : policies()) {
    if (policy.name == "plan") continue;  // serves the order that it was planned from
    if (only.empty() || policy.name == only || policy.name == "null")
      candidates.push_back(std::make_unique<Candidate>(policy.name));
  }
  Workers workers;
  for (const auto& c : candidates)
    for (Subjects* subjects : {&c->alone, &c->together, &c->apart})
      workers.run(subjects->threads,
                  [&](std::size_t thread) { subjects->replay(workload, thread, 1); });
  for (int pass = 0; pass < passes; ++pass)
    for (const auto& c : candidates) {
      c->one.measure(workload, workers, c->alone);
      if (pass % 2 != 0) c->bound.measure(workload, workers, c->apart);
      c->two.measure(workload, workers, c->together);
      if (pass % 2 == 0) c->bound.measure(workload, workers, c->apart);
    }
  print_machine();
  std::vector<Candidate*> rows;
  for (const auto& c : candidates) rows.push_back(c.get());
  print(rows);
}

}  // namespace

int main(int argc, char** argv) {
  if (std::thread::hardware_concurrency() < kThreads) {
    fmt::print("this machine runs one thread at a time: nothing to measure\n");
    return 0;
  }
  try {
    run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 15,
        argc > 2 ? argv[2] : TENON_SOURCE_DIR "/data/traces/gpt2.csv.zst",
        argc > 3 ? argv[3] : "");
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_two_threads: {}\n", error.what());
    return 2;
  }
}
