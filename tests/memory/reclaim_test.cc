#include "tenon/memory/reclaim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/adaptors/limit_adaptor.h"
#include "tenon/memory/adaptors/pressure_adaptor.h"
#include "tenon/memory/adaptors/thread_safe_adaptor.h"
#include "tenon/memory/gpu/caching_allocator.h"
#include "tenon/memory/gpu/pinned_allocator.h"
#include "tenon/memory/gpu/private_pool.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/placement/arena_allocator.h"
#include "tenon/memory/placement/size_class_pool.h"
#include "tenon/memory/scopes/with_scope.h"
#include "tenon/memory/system/system_allocator.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::uint64_t kDeviceBytes = 64 << 20;

class Reclaim : public ::testing::Test {
 protected:
  SimBackend backend_{{.capacity_bytes = kDeviceBytes}};
  SystemAllocator system_{backend_};
  CachingAllocator caching_{backend_};
};

// A pool with 40 MiB idle: then 40 MiB more fit only when they come back.
constexpr std::uint64_t kIdle = 40 << 20;

TEST_F(Reclaim, ASizeClassPoolGivesItsFreeBuffersBack) {
  SizeClassPool pool(caching_);
  pool.allocate(kIdle).clear();
  EXPECT_GT(pool.stats().free_bytes, 0u);
  EXPECT_NE(caching_.allocate(kDeviceBytes / 2), nullptr);
  EXPECT_EQ(pool.stats().free_bytes, 0u);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // no fork beside threads there
TEST_F(Reclaim, InAForkedChildACacheEndsThatAThreadOfTheParentWasAsking) {
  struct Slow final : Reclaimer {
    std::string reclaim_name() const override { return "slow"; }
    std::uint64_t idle_bytes() const override {
      asked = true;
      while (!may_end) std::this_thread::yield();
      return 0;
    }
    void reclaim() override {}
    mutable std::atomic<bool> asked = false;
    std::atomic<bool> may_end = false;
  } slow;
  get_cpu_allocator();  // whose first use watches forks
  auto enrolment = std::make_unique<ReclaimEnrolment>(IdleOrigin::driver(backend_), slow);
  std::thread asks([&] { caching_.try_allocate(2 * kDeviceBytes); });
  while (!slow.asked) std::this_thread::yield();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    enrolment.reset();
    _exit(0);
  }
  int status = 1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  slow.may_end = true;
  asks.join();
}
#endif

// A program's own policy, that no policy of ours knows.
TEST_F(Reclaim, AnyAllocatorsCacheMayBeEnrolled) {
  LimitAdaptor limited(caching_, kDeviceBytes);
  int asked = 0;
  struct Counts final : Reclaimer {
    explicit Counts(int& asked) : asked_(asked) {}
    std::string reclaim_name() const override { return "the program's cache"; }
    std::uint64_t idle_bytes() const override { return 1; }
    void reclaim() override {
      ++asked_;
      throw asked_;  // swallowed, whatever it is
    }
    int& asked_;
  } counts(asked);
  ReclaimEnrolment enrolment({{backend_.device(), &backend_}, {}}, counts);
  EXPECT_THROW(system_.allocate(2 * kDeviceBytes), OutOfMemory);
  EXPECT_EQ(asked, 1);
  limited.set_limit(0);
  EXPECT_THROW(limited.allocate(1), OutOfMemory);
  EXPECT_EQ(asked, 2) << "nobody knows what its memory counts against";
  enrolment.end();
  EXPECT_THROW(system_.allocate(2 * kDeviceBytes), OutOfMemory);
  EXPECT_EQ(asked, 2);
}

TEST_F(Reclaim, AnArenaGivesItsFreeBuffersBack) {
  ArenaAllocator arena(backend_);
  arena.allocate(kIdle).clear();
  EXPECT_NE(caching_.allocate(kIdle), nullptr);
  EXPECT_EQ(arena.reserved_bytes(), 0u);
}

TEST_F(Reclaim, APrivatePoolGivesBackOnlyWhatNoGraphNeeds) {
  PrivatePool pool(backend_);
  pool.allocate(kIdle).clear();
  EXPECT_THROW(caching_.allocate(kIdle), OutOfMemory);
  EXPECT_GT(pool.reserved_bytes(), 0u);
  pool.allow_release();
  DataPtr block = pool.allocate(kIdle);
  block.clear();
  EXPECT_NE(caching_.allocate(kIdle), nullptr);
  EXPECT_EQ(pool.reserved_bytes(), 0u);
}

TEST_F(Reclaim, PinnedMemoryIsGivenBackWhenMemoryIsShort) {
  PinnedAllocator pinned(backend_);
  pinned.allocate(4 << 20).clear();
  EXPECT_GT(pinned.reserved_bytes(), 0u);
  EXPECT_THROW(caching_.allocate(2 * kDeviceBytes), OutOfMemory);
  EXPECT_EQ(pinned.reserved_bytes(), 0u);
}

TEST_F(Reclaim, APoolOfAnotherBackendIsLeftAlone) {
  SimBackend other({.capacity_bytes = kDeviceBytes});
  ArenaAllocator arena(other);
  arena.allocate(kIdle).clear();
  EXPECT_THROW(caching_.allocate(2 * kDeviceBytes), OutOfMemory);
  EXPECT_GT(arena.reserved_bytes(), 0u);
}

// The limit is reached by memory that a scope pool keeps.
TEST_F(Reclaim, AnAdaptorsLimitIsMadeRoomBelow) {
  LimitAdaptor limited(caching_, 50 << 20);
  with_scope(limited, [](ScopeArena& arena) { return arena.allocate(kIdle) == nullptr; });
  EXPECT_GT(limited.used_bytes(), kIdle - 1);
  EXPECT_NE(limited.allocate(kIdle), nullptr);
  LimitAdaptor on_host(*get_cpu_allocator(), 50 << 20);
  with_scope(on_host, [](ScopeArena& arena) { return arena.allocate(kIdle) == nullptr; });
  EXPECT_NE(on_host.allocate(kIdle), nullptr);
}

TEST_F(Reclaim, OutOfMemoryNamesWhatOthersHold) {
  const DataPtr own = caching_.allocate(30 << 20);
  const auto failure = [&](DeviceAllocator& asked) -> std::string {
    try {
      asked.allocate(kIdle);
    } catch (const OutOfMemory& error) {
      return error.details().advice;
    }
    return "served";
  };
  EXPECT_THAT(failure(caching_), HasSubstr("if reserved")) << "it holds all itself";
  EXPECT_THAT(failure(caching_), Not(HasSubstr("other allocators")));
  const DataPtr held = system_.allocate(20 << 20);
  EXPECT_THAT(failure(caching_), StartsWith("other allocators or programs hold 20 MiB of the "
                                            "device, 14 MiB is free; if reserved"));
  EXPECT_EQ(failure(system_),
            "other allocators or programs hold 30 MiB of the device, 14 MiB is free");
}

// Five rounds over an adaptor each: nothing may stay with the upstream.
TEST_F(Reclaim, AScopeOverAnAdaptorLosesNothing) {
  for (int round = 0; round < 5; ++round) {
    LimitAdaptor limited(caching_, kDeviceBytes);
    with_scope(limited, [](ScopeArena& arena) { return arena.allocate(kIdle) == nullptr; });
  }
  EXPECT_EQ(caching_.stats().allocated_bytes[0].current, 0);
  caching_.empty_cache();
  EXPECT_EQ(backend_.used_bytes(), 0u);
}

TEST_F(Reclaim, AnEscapeOutlivesTheAdaptorAndGoesBackUpstream) {
  DataPtr escape;
  {
    LimitAdaptor limited(caching_, kDeviceBytes);
    escape = with_scope(limited, [](ScopeArena& arena) { return arena.allocate(1000); });
  }
  EXPECT_GT(caching_.stats().allocated_bytes[0].current, 0);
  escape.clear();
  EXPECT_EQ(caching_.stats().allocated_bytes[0].current, 0);
}

TEST_F(Reclaim, OnlyTheChunkOfAnEscapeOutlivesTheAdaptor) {
  DataPtr escape;
  {
    LimitAdaptor limited(caching_, kDeviceBytes);
    escape = with_scope(limited, [](ScopeArena& arena) { return arena.allocate(1000); });
    with_scope(limited, [](ScopeArena& arena) { arena.allocate(kIdle).clear(); });
    EXPECT_GE(caching_.stats().allocated_bytes[0].current, std::int64_t{kIdle});
  }
  EXPECT_GT(caching_.stats().allocated_bytes[0].current, 0);
  EXPECT_LT(caching_.stats().allocated_bytes[0].current, std::int64_t{kIdle});
}

DataPtr* held_by_callback = nullptr;
struct LetsGo final : FreeMemoryCallback {
  bool execute() override {
    const bool any = *held_by_callback != nullptr;
    held_by_callback->clear();
    return any;
  }
};

TEST_F(Reclaim, AProgramsCallbackIsAskedLast) {
  DataPtr held = caching_.allocate(kIdle);
  held_by_callback = &held;
  EXPECT_THROW(caching_.allocate(kIdle), OutOfMemory);
  add_free_memory_callback("lets go", std::make_unique<LetsGo>());
  EXPECT_THROW(add_free_memory_callback("lets go", std::make_unique<LetsGo>()), InvalidArgument);
  EXPECT_NE(caching_.allocate(kIdle), nullptr);
  EXPECT_EQ(held, nullptr);
  remove_free_memory_callback("lets go");
}

// What a reclaim frees may need the lock that the thread with the failed request holds.
TEST_F(Reclaim, ALockedUpstreamDoesNotStopTwoThreads) {
  ThreadSafeAdaptor shared(caching_);
  const auto pool = ScopePool::make(shared);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        with_scope(pool, [](ScopeArena& arena) { return arena.allocate(1 << 20) == nullptr; });
        EXPECT_THROW(shared.allocate(2 * kDeviceBytes), OutOfMemory);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Reclaim, PressureCallbacksServeAnyPolicy) {
  PressureAdaptor pressed(caching_, 0);
  DataPtr cached = pressed.allocate(kIdle);
  EXPECT_EQ(pressed.used_bytes(), kIdle);
  int asked = 0;
  pressed.callbacks().add([&](std::uint64_t wanted) {
    ++asked;
    EXPECT_EQ(wanted, kIdle);
    if (cached == nullptr) return std::uint64_t{0};
    cached.clear();
    return wanted;
  });
  const DataPtr block = pressed.allocate(kIdle);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(asked, 1);
  EXPECT_THROW(pressed.allocate(kIdle), OutOfMemory) << "nothing more to let go";
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(pressed.used_bytes(), kIdle);
}

TEST_F(Reclaim, PressureMarksAreKeptOnAnyPolicy) {
  PressureAdaptor pressed(caching_, 10 << 20);
  pressed.watermarks().set_high_ratio(2.0);
  pressed.watermarks().set_low_ratio(1.0);
  std::uint64_t wanted_bytes = 0;
  pressed.callbacks().add([&](std::uint64_t wanted) {
    wanted_bytes = wanted;
    return std::uint64_t{0};
  });
  const DataPtr first = pressed.allocate(8 << 20);
  EXPECT_EQ(wanted_bytes, 0u);
  const DataPtr second = pressed.allocate(8 << 20);
  EXPECT_EQ(wanted_bytes, 6u << 20) << "what is above the low mark";
  EXPECT_THROW(pressed.allocate(8 << 20), OutOfMemory) << "above the high mark";
  EXPECT_EQ(pressed.used_bytes(), 16u << 20);
}

}  // namespace
}  // namespace tenon
