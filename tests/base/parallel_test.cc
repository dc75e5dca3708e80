// Loops on several threads: every piece once, failures, and children of fork(2).
#include "tenon/base/parallel.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tenon {
namespace {

class ParallelTest : public ::testing::Test {
 protected:
  ParallelTest() : before_(num_threads()) { set_num_threads(2); }
  ~ParallelTest() override { set_num_threads(before_); }

 private:
  const int before_;
};

TEST_F(ParallelTest, EveryElementOnce) {
  // Loops one after another, and after pauses in which workers fall asleep.
  for (int loop = 0; loop < 2000; ++loop) {
    std::vector<std::atomic<int>> visits(37);
    parallel_for(0, 37, 5, [&](std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(begin % 5, 0);
      for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
    });
    for (const std::atomic<int>& count : visits) ASSERT_EQ(count, 1) << "loop " << loop;
    if (loop % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_F(ParallelTest, TheFirstFailureIsThrownAndTheNextLoopRuns) {
  for (int loop = 0; loop < 100; ++loop) {
    EXPECT_THROW(parallel_for(0, 8, 1, [](std::int64_t, std::int64_t) {
      throw std::runtime_error("a piece failed");
    }), std::runtime_error);
    std::atomic<int> pieces = 0;
    parallel_for(0, 8, 1, [&](std::int64_t begin, std::int64_t end) {
      pieces += static_cast<int>(end - begin);
    });
    EXPECT_EQ(pieces, 8);
  }
}

// Whether two pieces of a loop run at one time, given five seconds to.
bool two_at_once() {
  std::atomic<int> running = 0;
  std::atomic<bool> met = false;
  parallel_for(0, 2, 1, [&](std::int64_t, std::int64_t) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    if (++running == 2) met = true;
    while (!met && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    --running;
  });
  return met;
}

#if !defined(__SANITIZE_THREAD__)  // which lets no child of a process with threads start one
// Runs a loop that a worker takes part in, if it comes within a second. Whether it came, and may
// not run on the processor that the caller ran on before and afterwards.
bool worker_keeps_off() {
  const std::thread::id caller = std::this_thread::get_id();
  const int here = ::sched_getcpu();
  std::atomic<bool> came = false;
  bool may_run_here = true;
  parallel_for(0, 2, 1, [&](std::int64_t, std::int64_t) {
    if (std::this_thread::get_id() == caller) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
      while (!came && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      return;
    }
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
      may_run_here = CPU_ISSET(static_cast<std::size_t>(here), &allowed);
    came = true;
  });
  return came && here == ::sched_getcpu() && !may_run_here;
}

TEST_F(ParallelTest, AWorkerThatIsWokenMayNotRunWhereTheCallerDoes) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2)
    GTEST_SKIP() << "one processor";
  bool kept_off = false;
  for (int loop = 0; loop < 100 && !kept_off; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // it sleeps by then
    kept_off = worker_keeps_off();
  }
  EXPECT_TRUE(kept_off);
}

TEST_F(ParallelTest, AForkedChildHasWorkersOfItsOwn) {
  ASSERT_TRUE(two_at_once());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(two_at_once() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(two_at_once());
}
#endif

}  // namespace
}  // namespace tenon
