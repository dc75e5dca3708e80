// Every allocator with every driver call failing in turn, and with threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <thread>

#include "memory/allocator_conformance.h"

namespace tenon {
namespace {

class AllocatorFailures : public AllocatorConformance {
 protected:
  // Some of everything: growth, reuse on two streams, large blocks, memory given back.
  void scenario() {
    Churn churn(*allocator_, scenario_options());
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 25; ++i) churn.step();
      allocator_->check_invariants();
      try {
        allocator_->empty_cache();
      } catch (const DeviceError&) {
      }
      allocator_->check_invariants();
      ASSERT_EQ(allocator_->stats().allocation[0].current, static_cast<std::int64_t>(churn.live()));
    }
  }

  ChurnOptions scenario_options() {
    ChurnOptions options{.seed = 12, .max_bytes = 24 << 20, .max_live = 20};
    options.streams = {Stream{allocator_->device(), 0}, backend_->create_stream()};
    return options;
  }
};

TEST_P(AllocatorFailures, AnySingleDriverCallMayFail) {
  scenario();
  const DriverLedger calls = backend_->ledger();
  for (std::size_t kind = 0; kind < kDriverCalls; ++kind) {
    // The first calls of the kind, and some from all the way through.
    const std::uint64_t step = std::max<std::uint64_t>(1, calls.calls[kind] / 8);
    for (std::uint64_t nth = 1; nth <= calls.calls[kind]; nth += nth < 8 ? 1 : step) {
      SCOPED_TRACE(std::string(driver_call_name(static_cast<DriverCall>(kind))) + " call " +
                   std::to_string(nth) + " fails");
      start(device());
      backend_->fail_call(static_cast<DriverCall>(kind), nth);
      scenario();
      backend_->clear_failures();
      // What failed once is nothing to remember: the next request is served.
      EXPECT_TRUE(allocator_->allocate(1 << 20));
      allocator_->check_invariants();
      EXPECT_EQ(allocator_->reserved_bytes(), backend_->used_bytes());
      allocator_.reset();
      ASSERT_EQ(backend_->used_bytes(), 0u) << "driver memory leaked";
    }
  }
}

// One failure may come while the allocator undoes what another one broke off.
TEST_P(AllocatorFailures, SeveralDriverCallsMayFailTogether) {
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimOptions options = device(256 << 20);
    options.seed = seed;
    start(options);
    Random random(seed);
    backend_->set_failure_rate(0.05);
    {
      ChurnOptions churning = scenario_options();
      churning.seed = seed;
      churning.lend_chance = 0.3;
      churning.empty_cache_chance = 0.05;
      Churn churn(*allocator_, churning);
      for (int i = 0; i < 300; ++i) {
        if (random.chance(0.1))
          backend_->fail_call(static_cast<DriverCall>(random.below(kDriverCalls)),
                              random.between(1, 3));
        churn.step();
        allocator_->check_invariants();
      }
    }
    backend_->clear_failures();
    EXPECT_EQ(allocator_->stats().allocation[0].current, 0);
    EXPECT_TRUE(allocator_->allocate(1 << 20));
    allocator_->empty_cache();
    allocator_->check_invariants();
    allocator_.reset();
    ASSERT_EQ(backend_->used_bytes(), 0u) << "driver memory leaked";
  }
}

// Whatever the driver refuses then, the allocator makes every other call it has to make.
TEST_P(AllocatorFailures, AnyCallOfTheDestructorMayFail) {
  const auto calls_of_destructor = [&](DriverCall failing, std::uint64_t nth) {
    start(device());
    scenario();
    const Stream other = backend_->create_stream();
    DataPtr first = allocator_->allocate(30 << 20);
    allocator_->allocate_on(3 << 20, other).clear();
    allocator_->allocate_on(300, other).clear();
    first.clear();
    const DriverLedger before = backend_->ledger();
    if (nth != 0) backend_->fail_call(failing, nth);
    allocator_.reset();
    backend_->clear_failures();
    DriverLedger made = backend_->ledger();
    for (std::size_t kind = 0; kind < kDriverCalls; ++kind) made.calls[kind] -= before.calls[kind];
    return made;
  };
  const DriverLedger all = calls_of_destructor({}, 0);
  ASSERT_EQ(backend_->used_bytes(), 0u);
  for (std::size_t kind = 0; kind < kDriverCalls; ++kind)
    for (std::uint64_t nth = 1; nth <= all.calls[kind]; nth += nth < 8 ? 1 : 8) {
      const auto failing = static_cast<DriverCall>(kind);
      SCOPED_TRACE(std::string(driver_call_name(failing)) + " call " + std::to_string(nth));
      const DriverLedger made = calls_of_destructor(failing, nth);
      for (std::size_t other = 0; other < kDriverCalls; ++other)
        EXPECT_GE(made.calls[other] + 1, all.calls[other])
            << driver_call_name(static_cast<DriverCall>(other));
    }
  start(device());  // the last device kept what it refused to take
}

TEST_P(AllocatorFailures, HalfTheGrowthMayFail) {
  for (std::uint64_t seed : {1, 2, 3, 4}) {
    SimOptions options = device();
    options.seed = seed;
    start(options);
    backend_->set_failure_rate(0.5);
    scenario();
    backend_->clear_failures();
    EXPECT_EQ(allocator_->stats().allocation[0].current, 0);
    EXPECT_TRUE(allocator_->allocate(1 << 20));
  }
}

TEST_P(AllocatorFailures, LifeGoesOnInTooLittleMemory) {
  start(device(160 << 20));
  ChurnOptions options{.seed = 13, .steps = 1500, .max_bytes = 40 << 20};
  {
    Churn churn(*allocator_, options);
    for (int i = 0; i < 15; ++i) {
      for (int j = 0; j < 100; ++j) churn.step();
      allocator_->check_invariants();
      ASSERT_LE(backend_->used_bytes(), 160u << 20);
    }
    EXPECT_GT(churn.out_of_memory(), 0);
    EXPECT_EQ(churn.device_errors(), 0);
  }
  EXPECT_EQ(allocator_->stats().allocation[0].current, 0);
}

// --- Threads: blocks are made on one thread, and checked and dropped on another.

class AllocatorThreads : public AllocatorConformance {
 protected:
  struct Parcel {
    DataPtr data;
    std::size_t size_bytes = 0;
    std::uint64_t number = 0;
  };

  void work(int thread, Stream stream) {
    Random random(static_cast<std::uint64_t>(thread) + 100);
    const StreamGuard guard(stream);
    for (int i = 0; i < 1500; ++i) {
      const std::size_t size = random.between(1, std::uint64_t{1} << random.between(3, 18));
      const std::uint64_t number = static_cast<std::uint64_t>(thread) * 100000 + i;
      Parcel parcel{allocator_->allocate(size), size, number};
      fill_block(parcel.data.get(), size, number);
      {
        const std::lock_guard lock(mutex_);
        std::swap(parcel, shelf_[random.below(shelf_.size())]);
      }
      if (parcel.data && !block_is_intact(parcel.data.get(), parcel.size_bytes, parcel.number))
        ++damaged_;
    }
  }

  std::mutex mutex_;
  std::array<Parcel, 64> shelf_;
  std::atomic<int> damaged_{0};
};

TEST_P(AllocatorThreads, BlocksMayBeDroppedOnAnyThread) {
  for (bool streams_of_their_own : {false, true}) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      const Stream stream =
          streams_of_their_own ? backend_->create_stream() : Stream{allocator_->device(), 0};
      threads.emplace_back([this, t, stream] { work(t, stream); });
    }
    for (std::thread& thread : threads) thread.join();
    for (Parcel& parcel : shelf_) parcel.data.clear();
    EXPECT_EQ(damaged_, 0);
    EXPECT_EQ(allocator_->stats().allocation[0].current, 0);
    EXPECT_EQ(allocator_->stats().requested_bytes[0].current, 0);
    allocator_->check_invariants();
  }
}

TEST_P(AllocatorThreads, MaintenanceMayRunBesideWork) {
  std::atomic<bool> done{false};
  std::thread worker([&] {
    work(1, Stream{allocator_->device(), 0});
    done = true;
  });
  while (!done) {
    allocator_->empty_cache();
    EXPECT_GE(allocator_->stats().reserved_bytes[0].peak, 0);
    allocator_->check_invariants();
    std::this_thread::yield();
  }
  worker.join();
  for (Parcel& parcel : shelf_) parcel.data.clear();
  EXPECT_EQ(damaged_, 0);
}

INSTANTIATE_TEST_SUITE_P(All, AllocatorFailures, ::testing::ValuesIn(conformance_cases()),
                         conformance_case_name);
INSTANTIATE_TEST_SUITE_P(All, AllocatorThreads, ::testing::ValuesIn(conformance_cases()),
                         conformance_case_name);

}  // namespace
}  // namespace tenon
