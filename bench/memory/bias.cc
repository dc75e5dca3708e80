// What polling costs: ns per event of one thread before, while and after another thread asks for
// stats(). Before and afterwards an allocator that nobody asks is measured in turn with it, since
// the machine's speed changes and no two heaps lie alike.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tenon/base/random.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

constexpr int kEvents = 100'000;  // of a pass
constexpr int kPasses = 11;
constexpr int kRounds = 7;
constexpr int kPolls = 1'000'000;
constexpr double kMostAfter = 1.10;
constexpr double kMostMeanwhile = 1.20;

// The thread's own time: what other programs do meanwhile does not count.
std::int64_t thread_ns() {
  timespec used = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return used.tv_sec * 1'000'000'000 + used.tv_nsec;
}

// Among 64 live blocks one is freed and another allocated, half an event each.
class Work {
 public:
  explicit Work(DeviceAllocator& allocator) : allocator_(allocator), blocks_(64) {
    for (std::size_t& size : sizes_) size = 512 * random_.between(1, 96);
    for (DataPtr& block : blocks_) block = allocator_.allocate(sizes_[0]);
  }
  // Ns per event in the fastest pass, which is long enough for several visits by a poller; what
  // other programs do to the caches varies from pass to pass.
  double measure() {
    double best = 1e300;
    for (int pass = 0; pass < kPasses; ++pass) {
      const std::int64_t start = thread_ns();
      for (int i = 0; i < kEvents / 2; ++i) {
        DataPtr& block = blocks_[random_.below(blocks_.size())];
        block.clear();
        block = allocator_.allocate(sizes_[static_cast<std::size_t>(i) % sizes_.size()]);
      }
      best = std::min(best, static_cast<double>(thread_ns() - start) / kEvents);
    }
    return best;
  }

 private:
  DeviceAllocator& allocator_;
  Random random_{1};
  std::vector<std::size_t> sizes_ = std::vector<std::size_t>(256);
  std::vector<DataPtr> blocks_;
};

// Asks in a thread of its own, once in each period, until it is gone.
class Poller {
 public:
  Poller(const DeviceAllocator& allocator, std::chrono::microseconds period)
      : thread_([this, &allocator, period] {
          for (auto next = std::chrono::steady_clock::now(); !stop_; next += period) {
            std::this_thread::sleep_until(next);
            allocator.stats();
            ++polls_;
          }
        }) {}
  ~Poller() {
    stop_ = true;
    thread_.join();
  }
  int polls() const { return polls_; }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<int> polls_ = 0;
  std::thread thread_;
};

// What is measured in turn, and its ratio.
struct Sides {
  std::vector<double> first, second, ratio;
  void add(double a, double b) {
    first.push_back(a), second.push_back(b), ratio.push_back(b / a);
  }
};
Sides in_turn(Work& unpolled, Work& polled) {
  Sides sides;
  for (int round = 0; round < kRounds; ++round) {
    const double other = unpolled.measure();
    sides.add(other, polled.measure());
  }
  return sides;
}
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool measure(const std::string& policy, Backend& backend) {
  const auto allocator = make_policy(policy, backend), other = make_policy(policy, backend);
  Work work(*allocator), unpolled(*other);
  work.measure();
  const Sides before = in_turn(unpolled, work);
  double polls_per_s = 1e300;
  Sides meanwhile;
  for (int round = 0; round < kRounds; ++round) {
    const double alone = work.measure();
    const auto start = std::chrono::steady_clock::now();
    const Poller poller(*allocator, std::chrono::microseconds(1000));
    meanwhile.add(alone, work.measure());
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    polls_per_s = std::min(polls_per_s, poller.polls() / passed.count());
  }
  std::atomic<bool> done = false;
  std::thread often([&] {
    for (int i = 0; i < kPolls; ++i) allocator->stats();
    done = true;
  });
  int passes = 0;
  double under_fire = 0;
  for (; !done; ++passes) under_fire += work.measure();
  often.join();
  const Sides after = in_turn(unpolled, work);
  const double while_polled = median(meanwhile.ratio);
  const double afterwards = median(after.ratio) / median(before.ratio);
  const bool kept = afterwards <= kMostAfter && while_polled <= kMostMeanwhile;
  fmt::print("{:<12} {:>8.1f} {:>10.1f} {:>6.2f} {:>8.0f} {:>12.1f} {:>8.1f} {:>9.1f} {:>6.2f}"
             "{}\n", policy, median(meanwhile.first), median(meanwhile.second), while_polled,
             polls_per_s, passes == 0 ? 0 : under_fire / passes, median(after.second),
             median(after.first), afterwards, kept ? "" : "  (MISSED)");
  return kept;
}

int run() {
  fmt::print("ns per event of the thread's own time, the fastest of {} passes of {} events, "
             "medians of {} rounds; another thread calls stats()\n\n", kPasses, kEvents, kRounds);
  fmt::print("{:<12} {:>8} {:>10} {:>6} {:>8} {:>12} {:>8} {:>9} {:>6}\n", "policy", "before",
             "1000 /s", "ratio", "reached", "as it can", "after", "unpolled", "ratio");
  SimBackend sim;
  HostBackend host;
  bool kept = true;
  for (const char* policy : {"caching", "expandable", "stitched", "pool", "buddy", "arena",
                             "unified"})
    kept = measure(policy, sim) && kept;
  kept = measure("host", host) && kept;
  fmt::print("\nat 1000 calls a second an event is to cost at most {:.2f} x, and after {} calls "
             "{:.2f} x, as against an unpolled one before and after{}\n", kMostMeanwhile, kPolls,
             kMostAfter, kept ? "" : " (MISSED)");
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace tenon

int main() { return tenon::run(); }
