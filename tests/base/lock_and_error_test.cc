// The locks, checks and error types.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include "tenon/base/biased_lock.h"
#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/base/spin_lock.h"

namespace tenon {
namespace {

TEST(SpinLock, ExcludesOtherThreads) {
  SpinLock lock;
  std::uint64_t plain_counter = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        const std::lock_guard guard(lock);
        ++plain_counter;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(plain_counter, 80000u);
}

TEST(SpinLock, TryLockFailsWhileHeld) {
  SpinLock lock;
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST(SpinLock, LetsADescheduledOwnerRun) {
  SpinLock lock;
  lock.lock();
  bool entered = false;
  std::thread waiting([&] {
    const std::lock_guard guard(lock);
    entered = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  lock.unlock();
  waiting.join();
  EXPECT_TRUE(entered);
}

TEST(SpinLock, SleepsWhenItWaitsLong) {
  SpinLock lock;
  lock.lock();
  std::int64_t used_ns = 0;
  std::thread waiting([&] {
    const std::lock_guard guard(lock);
    timespec used = {};
    ASSERT_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
    used_ns = used.tv_sec * 1'000'000'000 + used.tv_nsec;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  lock.unlock();
  waiting.join();
  EXPECT_LT(used_ns, 50'000'000);
}

TEST(BiasedLock, ExcludesThreadsThatComeAllAtOnce) {
  BiasedLock lock;
  std::uint64_t plain_counter = 0;
  const auto count = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const std::lock_guard guard(lock);
      ++plain_counter;
    }
  };
  std::vector<std::thread> many;
  for (int t = 0; t < 3; ++t) many.emplace_back([&] { count(20'000); });
  count(100'000);
  for (std::thread& thread : many) thread.join();
  EXPECT_EQ(plain_counter, 160'000u);
}

// Runs that are long enough for the bias to move, with every thread's last bias still granted while
// others get theirs.
TEST(BiasedLock, ExcludesThreadsThatTakeTheBiasFromEachOther) {
  BiasedLock lock;
  std::uint64_t plain_counter = 0;
  std::atomic<int> times_owner = 0;
  const auto visit = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (std::uint32_t i = 0; i < 3 * BiasedLock::kFirstTurns; ++i) {
        const BiasedGuard guard(lock);
        ++plain_counter;
        if (i + 1 == 3 * BiasedLock::kFirstTurns && lock.is_owner()) ++times_owner;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  };
  std::vector<std::thread> many;
  for (int t = 0; t < 6; ++t) many.emplace_back([&] { visit(40); });
  for (std::thread& thread : many) thread.join();
  EXPECT_EQ(plain_counter, 6u * 40 * 3 * BiasedLock::kFirstTurns);
  EXPECT_GT(times_owner.load(), 0);
}

void take(BiasedLock& lock, std::uint32_t times) {
  for (std::uint32_t i = 0; i < times; ++i) const BiasedGuard guard(lock);
}

TEST(BiasedLock, IsBiasedAgainAfterAnyNumberOfVisits) {
  BiasedLock lock;
  take(lock, 1);
  EXPECT_TRUE(lock.is_owner());
  std::atomic<bool> stop = false;
  std::thread owner([&] {
    while (!stop) take(lock, 100);
    take(lock, BiasedLock::kMostTurns);
    EXPECT_TRUE(lock.is_owner());
  });
  take(lock, 100'000);
  stop = true;
  owner.join();
  take(lock, 1 + BiasedLock::kMostTurns);
  EXPECT_TRUE(lock.is_owner());
}

TEST(BiasedLock, GoesToTheThreadThatUsesItWhenItsFirstOwnerSleeps) {
  BiasedLock lock;
  take(lock, 1);
  std::thread other([&] {
    take(lock, BiasedLock::kMostTurns);
    EXPECT_TRUE(lock.is_owner());
  });
  other.join();
  EXPECT_FALSE(lock.is_owner());
}

TEST(BiasedLock, StaysALockWhenMoreOwnersAreGoneThanItHasBiases) {
  BiasedLock lock;
  std::atomic<int> here = 0;
  std::vector<std::thread> threads;
  constexpr int kThreads = static_cast<int>(BiasedLock::kBiases) + 2;
  for (int t = 0; t < kThreads; ++t)  // one after the other, and all alive until the last has been
    threads.emplace_back([&, t] {
      while (here != t) std::this_thread::yield();
      take(lock, BiasedLock::kMostTurns);
      ++here;
      while (here != kThreads) std::this_thread::yield();
    });
  for (std::thread& thread : threads) thread.join();
  take(lock, 1);
  EXPECT_FALSE(lock.is_owner());
}

#if defined(__linux__) && !defined(__SANITIZE_THREAD__)
// From now on this thread's membarrier(2) fails, as in a sandbox.
bool refuse_barriers() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog program = {4, filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Bias, WaitsForTheClockAndIsGivenToNobodyElseInASandboxWithoutBarriers) {
  BiasedLock probe;
  take(probe, 1);
  if (!probe.is_owner()) GTEST_SKIP() << "this system has no barriers";
  const pid_t child = ::fork();  // its sandbox ends with it
  if (child == 0) {
    Bias bias;
    bias.grant(thread_mark());
    if (!refuse_barriers()) ::_exit(2);
    const auto start = std::chrono::steady_clock::now();
    bias.revoke();
    const bool waited = std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(20);
    BiasedLock later;
    take(later, 1);
    ::_exit(waited && !later.is_owner() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(status, 0);
}
#endif

TEST(OwnerGuard, EntersForTheOwnerAlone) {
  BiasedLock lock;
  EXPECT_FALSE(OwnerGuard(lock));  // nobody owns it yet
  take(lock, 1);
  EXPECT_TRUE(OwnerGuard(lock));
  std::thread([&] {
    EXPECT_FALSE(OwnerGuard(lock));
    const BiasedGuard visit(lock);
  }).join();
  EXPECT_FALSE(OwnerGuard(lock));  // it is shared for some turns
}

// The owner is inside most of the time, and others come rarely enough that it stays biased.
TEST(BiasedGuard, ExcludesOwnerAndOthersAndLeavesAsItCame) {
  BiasedLock lock;
  std::uint64_t counter = 0;
  const auto count = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const BiasedGuard guard(lock);
      ++counter;
    }
  };
  count(1);  // so that this thread owns it
  std::thread other([&] { count(20'000); });
  count(200'000);
  other.join();
  EXPECT_EQ(counter, 220'001u);
  const std::lock_guard held(lock);  // nobody left it locked
}

TEST(BiasedLock, RevokersWaitForAnOwnerThatIsInside) {
  for (int round = 0; round < 20; ++round) {
    BiasedLock lock;
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    std::atomic<bool> stop = false;
    std::atomic<bool> begun = false;
    std::thread owner([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        const std::lock_guard guard(lock);
        ++a;
        ++b;
        begun.store(true, std::memory_order_relaxed);
      }
    });
    while (!begun.load(std::memory_order_relaxed)) std::this_thread::yield();
    for (int i = 0; i < 40; ++i) {
      const std::lock_guard guard(lock);
      EXPECT_EQ(a, b);
      ++a;
      ++b;
    }
    stop = true;
    owner.join();
    EXPECT_EQ(a, b);
  }
}

TEST(AppointedLock, IsPassedFromOwnerToOwner) {
  AppointedLock lock;
  int counter = 0;
  for (int i = 0; i < 3; ++i) {
    std::thread([&] {
      {
        const std::lock_guard guard(lock);
        lock.become_owner();
      }
      for (int j = 0; j < 1000; ++j) {
        const std::lock_guard guard(lock);
        ++counter;
      }
      lock.resign();
    }).join();
  }
  EXPECT_EQ(counter, 3000);
}

// No join orders the two threads, only the lock: ThreadSanitizer says so if it does not.
TEST(AppointedLock, ShowsWhatAnOwnerDidThatHasResigned) {
  AppointedLock lock;
  int counter = 0;
  std::atomic<bool> resigned = false;
  std::thread owner([&] {
    {
      const std::lock_guard guard(lock);
      lock.become_owner();
    }
    {
      const std::lock_guard guard(lock);
      ++counter;
    }
    lock.resign();
    resigned.store(true, std::memory_order_relaxed);
  });
  while (!resigned.load(std::memory_order_relaxed)) std::this_thread::yield();
  {
    const std::lock_guard guard(lock);
    EXPECT_EQ(counter, 1);
  }
  owner.join();
}

TEST(AppointedLock, StaysItsOwnersHoweverManyOthersCome) {
  AppointedLock lock;
  int counter = 0;
  {
    const std::lock_guard guard(lock);
    lock.become_owner();
  }
  const auto count = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const std::lock_guard guard(lock);
      ++counter;
    }
  };
  std::thread other([&] { count(20'000); });
  count(200'000);
  other.join();
  EXPECT_EQ(counter, 220'000);
  EXPECT_TRUE(OwnerGuard(lock));
}

#if !defined(__SANITIZE_THREAD__)  // which does not follow a fork among threads
// In each child, `use` gets the locks as they were at the fork.
void fork_often(std::vector<AppointedLock>& locks, const std::function<void()>& use) {
  for (int round = 0; round < 60; ++round) {
    for (AppointedLock& lock : locks) lock.before_fork();
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);
      for (AppointedLock& lock : locks) lock.after_fork_in_child();
      use();
      _exit(0);
    }
    for (AppointedLock& lock : locks) lock.after_fork_in_parent();
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "round " << round;
  }
}

void own(AppointedLock& lock) {
  const std::lock_guard guard(lock);
  lock.become_owner();
}

// Owners that try to enter all the time: in the child one's flag may be set, and nobody clears it.
TEST(AppointedLock, ServesAForkedChildWhoseOwnersWereAboutToEnter) {
  std::vector<AppointedLock> locks(4);
  std::atomic<std::size_t> begun = 0;
  std::atomic<bool> stop = false;
  std::vector<std::thread> owners;
  for (AppointedLock& lock : locks)
    owners.emplace_back([&] {
      own(lock);
      ++begun;
      while (!stop.load(std::memory_order_relaxed)) const OwnerGuard attempt(lock);
    });
  while (begun != locks.size()) std::this_thread::yield();
  fork_often(locks, [&] {
    for (AppointedLock& lock : locks) {
      own(lock);
      std::thread([&] { const std::lock_guard guard(lock); }).join();
    }
  });
  stop = true;
  for (std::thread& owner : owners) owner.join();
}

// The thread that forks owns the locks, while visitors wait to enter.
TEST(AppointedLock, ServesAForkedChildWhenVisitorsWereWaiting) {
  std::vector<AppointedLock> locks(4);
  std::atomic<bool> stop = false;
  std::vector<std::thread> visitors;
  for (AppointedLock& lock : locks) {
    own(lock);
    visitors.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        { const std::lock_guard guard(lock); }
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    });
  }
  fork_often(locks, [&] {
    for (AppointedLock& lock : locks)
      for (int i = 0; i < 3; ++i) const std::lock_guard guard(lock);
  });
  stop = true;
  for (std::thread& visitor : visitors) visitor.join();
}
#endif

TEST(Check, FailsWithPlaceConditionAndMessage) {
  const int answer = 41;
  TENON_CHECK(answer == 41);
  try {
    TENON_CHECK(answer == 42, "the answer is {}", answer);
    FAIL();
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("lock_and_error_test.cc:"), std::string::npos) << text;
    EXPECT_NE(text.find("answer == 42: the answer is 41"), std::string::npos) << text;
  }
}

TEST(Errors, DeriveFromTheStandardTypes) {
  EXPECT_THROW(throw InvalidArgument("x"), std::invalid_argument);
  EXPECT_THROW(throw InvalidPointer("x"), std::runtime_error);
  EXPECT_THROW(throw DeviceError("x"), std::runtime_error);
  EXPECT_THROW(throw InternalError("x"), std::logic_error);
  EXPECT_THROW(throw ParseError("f", 1, 2, "x"), std::runtime_error);
  EXPECT_THROW(throw OutOfMemory({}), std::bad_alloc);
}

TEST(Errors, ParseErrorsNameThePlace) {
  EXPECT_STREQ(ParseError("a.csv", 3, 7, "bad").what(), "a.csv:3:7: bad");
  EXPECT_STREQ(ParseError("a.csv", 3, 0, "bad").what(), "a.csv:3: bad");
  const ParseError quoting("a.csv", 0, 0, std::string("column \"\0\33[2J\xff\"", 15));
  EXPECT_STREQ(quoting.what(), "a.csv: column \"\uFFFD\uFFFD[2J\uFFFD\"");
  EXPECT_EQ(quoting.reason(), "column \"\uFFFD\uFFFD[2J\uFFFD\"");
  EXPECT_STREQ(ParseError("a.bin", 0, 0, "bad").what(), "a.bin: bad");
  const ParseError error("a.csv", 3, 7, "bad");
  EXPECT_EQ(error.name(), "a.csv");
  EXPECT_EQ(error.line(), 3u);
  EXPECT_EQ(error.column(), 7u);
  EXPECT_EQ(error.reason(), "bad");
}

TEST(Errors, OutOfMemoryTellsAllItKnows) {
  const OutOfMemory error({.allocator = "caching",
                           .device = "sim:0",
                           .requested_bytes = 3 << 20,
                           .allocated_bytes = 5 << 20,
                           .reserved_bytes = 6 << 20,
                           .limit_bytes = 8 << 20,
                           .largest_free_bytes = 512,
                           .idle = {},
                           .advice = "free something"});
  EXPECT_STREQ(error.what(),
               "out of memory on sim:0 (caching): requested 3 MiB, allocated 5 MiB, reserved "
               "6 MiB, limit 8 MiB, largest free block 512 B; free something");
  EXPECT_EQ(error.details().requested_bytes, 3u << 20);
  const std::string unlimited =
      OutOfMemory({.allocator = "pool", .device = "cpu:0", .idle = {}, .advice = ""}).what();
  EXPECT_EQ(unlimited.find("limit"), std::string::npos) << unlimited;
}

}  // namespace
}  // namespace tenon
