// Every policy while memory for its own bookkeeping runs out: the n-th allocation fails, for every
// n of a schedule. Afterwards the books balance, the allocator serves again, and no lock is held.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "failing_memory/refused_memory.h"
#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/heap/plan.h"
#include "tenon/memory/adaptors/aligned_adaptor.h"
#include "tenon/memory/adaptors/fallback_adaptor.h"
#include "tenon/memory/adaptors/guard_adaptor.h"
#include "tenon/memory/adaptors/limit_adaptor.h"
#include "tenon/memory/adaptors/logging_adaptor.h"
#include "tenon/memory/adaptors/page_guard_allocator.h"
#include "tenon/memory/adaptors/pressure_adaptor.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/adaptors/thread_safe_adaptor.h"
#include "tenon/memory/adaptors/tracking_adaptor.h"
#include "tenon/memory/growable/growable_buffer.h"
#include "tenon/memory/host/host_allocator.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/system/system_allocator.h"
#include "tenon/memory/unified/callbacks.h"
#include "tenon/memory/unified/unified_allocator.h"

// The C library's allocator under names of its own, so that this program can refuse requests.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void* malloc(std::size_t size) {
  return tenon::failing::is_refused() ? nullptr : __libc_malloc(size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return tenon::failing::is_refused() ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  *out = tenon::failing::is_refused() ? nullptr : __libc_memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}
}
#endif

namespace tenon {
namespace {

using namespace failing;

constexpr int kSteps = 160;

// Blocks that threads leave for each other, so that each also frees what others have allocated.
class Exchange {
 public:
  void swap(DataPtr& block) {
    const std::lock_guard lock(mutex_);
    std::swap(block, left_[next_++ % left_.size()]);
  }
  std::size_t blocks() const {
    return static_cast<std::size_t>(
        std::count_if(left_.begin(), left_.end(), [](const DataPtr& b) { return b != nullptr; }));
  }
  void clear() {
    for (DataPtr& block : left_) block.clear();
  }

 private:
  std::mutex mutex_;
  std::size_t next_ = 0;
  std::array<DataPtr, 8> left_;
};

// The requests of a schedule, by stream, while they are being recorded.
std::map<std::uint32_t, std::vector<PlanSlot>>* g_recorded = nullptr;

// One thread's share of a schedule: requests of many sizes on its stream and now and then on
// another, uses on another stream, frees in any order, and memory given back.
std::uint64_t run_steps(Subject& subject, int thread, std::vector<DataPtr>& live, bool* freed,
                        Exchange* others = nullptr) {
  DeviceAllocator& allocator = *subject.allocator;
  Random random(static_cast<std::uint64_t>(31 + thread));
  std::uint64_t refused = 0;
  for (int step = 0; step < kSteps; ++step) {
    const Stream stream = subject.streams[random.chance(0.8) ? thread : kThreads];
    const std::uint64_t size = random.between(1, std::uint64_t{1} << random.between(8, 25));
    const bool allocates = live.size() < 2 || (live.size() < 40 && random.chance(0.55));
    const std::size_t which = live.empty() ? 0 : random.below(live.size());
    const bool lends = random.chance(0.15);
    const bool gives_back = random.chance(0.02);
    if (!allocates) {
      std::swap(live[which], live.back());
      if (others != nullptr && random.chance(0.5)) others->swap(live.back());
      const std::uint64_t before = g_requests;
      {
        const Counted counted;
        live.pop_back();  // a destructor that throws ends the program
      }
      *freed = *freed || g_requests != before;
      continue;
    }
    if (g_recorded != nullptr) {
      std::vector<PlanSlot>& slots = (*g_recorded)[stream.id];
      slots.push_back({slots.size() % 8 * 32 * kMiB, align_up(size, 512)});
    }
    try {
      const Counted counted;
      DataPtr block = allocator.allocate_on(size, stream);
      {
        const Counted uncounted(false);
        live.push_back(std::move(block));
      }
      if (lends) allocator.record_stream(live.back(), subject.streams[(thread + 1) % kThreads]);
      if (gives_back) allocator.empty_cache();
    } catch (const std::bad_alloc&) {
      ++refused;
    } catch (const InvalidArgument&) {  // a policy that knows no record_stream
    }
  }
  return refused;
}

void check_whole(Subject& subject, std::size_t live) {
  DeviceAllocator& allocator = *subject.allocator;
  ASSERT_NO_THROW(allocator.check_invariants());
  ASSERT_EQ(allocator.stats().allocation[0].current, static_cast<std::int64_t>(live));
  for (const Stream stream : subject.streams)
    ASSERT_NO_THROW(allocator.allocate_on(3 * kMiB, stream));
  ASSERT_NO_THROW(allocator.check_invariants());
}

// A plan of what the first thread's schedule requests. Some places are still in use when their
// turn comes, so that the plan is kept and left.
const Plan& plan_of_schedule() {
  static const Plan plan = [] {
    std::map<std::uint32_t, std::vector<PlanSlot>> recorded;
    Subject subject("system");
    std::vector<DataPtr> live;
    bool freed = false;
    g_recorded = &recorded;
    run_steps(subject, 0, live, &freed);
    g_recorded = nullptr;
    Plan made(512);
    for (auto& [stream, slots] : recorded) made.set_stream(stream, slots);
    return made;
  }();
  return plan;
}

class FailingMemory : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!kCanRefuse) GTEST_SKIP() << "the sanitizer's allocator refuses nothing";
  }
};

TEST_P(FailingMemory, AnySingleRequestMayBeRefused) {
  std::uint64_t requests = 0;
  {
    Subject subject(GetParam(), &plan_of_schedule());
    std::vector<DataPtr> live;
    bool freed = false;
    refuse_nothing();
    run_steps(subject, 0, live, &freed);
    requests = g_requests;
  }
  ASSERT_GT(requests, 0u);
  std::uint64_t refused = 0;
  const std::uint64_t all = requests + requests / 4;  // a refusal may lead to more requests
  for (std::uint64_t n = 1; n <= all; ++n) {
    SCOPED_TRACE("request " + std::to_string(n) + " is refused");
    Subject subject(GetParam(), &plan_of_schedule());
    std::vector<DataPtr> live;
    bool freed = false;
    refuse(n, n);
    refused += run_steps(subject, 0, live, &freed);
    refuse_nothing();
    check_whole(subject, live.size());
    if (HasFatalFailure()) return;
    live.clear();
    subject.allocator->empty_cache();
    ASSERT_EQ(subject.allocator->reserved_bytes(), subject.device.used_bytes());
    subject.allocator.reset();
    ASSERT_EQ(subject.device.used_bytes(), 0u) << "driver memory leaked";
  }
  EXPECT_GT(refused, requests / 2) << "the refusals do not reach the allocator";
}

// All requests from the n-th on, until the schedule ends: frees go on all the same.
TEST_P(FailingMemory, AllRequestsMayBeRefusedFromSomeMomentOn) {
  for (std::uint64_t n = 1; n <= 60; n += n < 8 ? 1 : 4) {
    SCOPED_TRACE("requests from " + std::to_string(n) + " on are refused");
    Subject subject(GetParam(), &plan_of_schedule());
    std::vector<DataPtr> live;
    bool freed = false;
    refuse(n, UINT64_MAX);
    run_steps(subject, 0, live, &freed);
    {
      const Counted counted;
      live.clear();
    }
    refuse_nothing();
    check_whole(subject, 0);
    if (HasFatalFailure()) return;
  }
}

TEST_P(FailingMemory, AFreeAllocatesNothing) {
  Subject subject(GetParam(), &plan_of_schedule());
  std::vector<DataPtr> live;
  bool freed = false;
  refuse_nothing();
  for (int round = 0; round < 4; ++round) run_steps(subject, 0, live, &freed);
  EXPECT_FALSE(freed);
}

// So many that an index of free memory changes its form.
TEST_P(FailingMemory, AFreeOfManyNearSizesAllocatesNothing) {
  Subject subject(GetParam(), &plan_of_schedule());
  std::vector<DataPtr> live;
  for (std::size_t i = 0; i < 600; ++i)
    live.push_back(subject.allocator->allocate_on(512 * kKiB + 128 * i, subject.streams[0]));
  refuse(1, UINT64_MAX);
  for (const std::size_t odd : {0, 1})
    for (std::size_t i = odd; i < live.size(); i += 2) {
      const Counted counted;
      live[i].clear();
    }
  EXPECT_EQ(g_requests, 0u);
  refuse_nothing();
  subject.allocator->check_invariants();
}

TEST(FailingMemoryTest, AGrowableBufferEndsWithoutMemory) {
  if (!kCanRefuse) GTEST_SKIP() << "the sanitizer's allocator refuses nothing";
  SimBackend device({.capacity_bytes = 64 * kMiB});
  SparedBackend spared(device);
  const auto pool = PagePool::make(spared);
  auto buffer = std::make_unique<GrowableBuffer>(pool, 64 * kMiB);
  buffer->resize(40 * kMiB);
  pool->trim();
  refuse(1, UINT64_MAX);
  {
    const Counted counted;
    EXPECT_THROW(buffer->resize(0), std::bad_alloc) << "no place for its event";
    EXPECT_EQ(buffer->size(), 40 * kMiB);
    buffer.reset();
  }
  refuse_nothing();
  EXPECT_EQ(pool->stats().pages_in_use, 0u);
  pool->trim();
  EXPECT_EQ(device.used_bytes(), 0u);
}

TEST(FailingMemoryTest, AFreeAllocatesNothingWhereHostMemoryGoesBack) {
  if (!kCanRefuse) GTEST_SKIP() << "the sanitizer's allocator refuses nothing";
  SimBackend device({.capacity_bytes = 2 * kGiB});
  SparedBackend spared(device);
  HostAllocator host(spared);
  const DataPtr small = host.allocate(kMiB);
  host.allocate(512 * kMiB).clear();  // a region of its own, which decays
  const std::uint64_t before = device.used_bytes();
  refuse_nothing();
  for (std::uint64_t i = 0; i < host::RegionStore::kDecayOperations; ++i) {
    DataPtr block = host.allocate(kMiB);
    const Counted counted;
    block.clear();
  }
  EXPECT_LT(device.used_bytes(), before);
  EXPECT_EQ(g_requests, 0u);
}

TEST(FailingMemoryTest, TheHostTakesSegmentsBackWithoutMemory) {
  if (!kCanRefuse) GTEST_SKIP() << "the sanitizer's allocator refuses nothing";
  HostBackend device({.cache_bytes = 16 * kMiB});
  SystemAllocator system(device);
  std::vector<DataPtr> blocks;
  refuse_nothing();
  for (std::uint64_t n = 1; blocks.size() < 40; ++n) {  // each request of an allocation is refused
    refuse(n, n);
    try {
      const Counted counted;
      DataPtr block = system.allocate(kMiB);
      const Counted uncounted(false);
      blocks.push_back(std::move(block));
      n = 0;
    } catch (const std::bad_alloc&) {
    }
  }
  refuse_nothing();
  EXPECT_EQ(device.held_bytes(), device.cached_bytes() + 40 * kMiB);
  {
    const Counted counted;
    blocks.clear();
  }
  EXPECT_EQ(g_requests, 0u);
  EXPECT_EQ(device.held_bytes(), 16 * kMiB) << "what the cache keeps";
}

TEST(FailingMemoryTest, AFreeThroughAnAdaptorNeedsNoMemory) {
  if (!kCanRefuse) GTEST_SKIP() << "the sanitizer's allocator refuses nothing";
  SimBackend device({.capacity_bytes = kGiB, .real_memory = true, .unified = true});
  SparedBackend spared(device);
  const auto upstream = make_policy("caching", spared);
  Stream stream = device.create_stream();
  while (stream.id < 100) stream = device.create_stream();  // a long name
  const auto check = [&](DeviceAllocator& adaptor) {
    SCOPED_TRACE(adaptor.name());
    std::vector<DataPtr> blocks;
    for (std::size_t i = 0; i < 2000; ++i) blocks.push_back(adaptor.allocate_on(600 + i, stream));
    refuse(1, UINT64_MAX);
    {
      const Counted counted;
      for (DataPtr& block : blocks) block.clear();
    }
    refuse_nothing();
    adaptor.empty_cache();
    EXPECT_EQ(upstream->stats().allocation[0].current, 0);
  };
  AlignedAdaptor aligned(*upstream, 4096);
  check(aligned);
  const auto second = make_policy("pool", spared);
  FallbackAdaptor fallback(*upstream, *second);
  check(fallback);
  GuardOptions small_quarantine;
  small_quarantine.quarantine_bytes = 500 * kKiB;
  GuardAdaptor guard(*upstream, small_quarantine);
  check(guard);
  LimitAdaptor limit(*upstream, kGiB);
  check(limit);
  LoggingAdaptor logging(*upstream, [](std::string_view) {});
  check(logging);
  PressureAdaptor pressure(*upstream, kGiB);
  check(pressure);
  StatisticsAdaptor statistics(*upstream);
  check(statistics);
  ThreadSafeAdaptor thread_safe(*upstream);
  check(thread_safe);
  TrackingAdaptor tracking(*upstream);
  check(tracking);
}

TEST(FailingMemoryTest, AFreeOfGuardedPagesNeedsNoMemory) {
  if (!kCanRefuse) GTEST_SKIP() << "the sanitizer's allocator refuses nothing";
  PageGuardOptions options;
  options.quarantine_bytes = 500 * kKiB;
  PageGuardAllocator guard(options);
  for (int round = 0; round < 2; ++round) {
    std::vector<DataPtr> blocks;
    for (std::size_t i = 0; i < 1000; ++i) blocks.push_back(guard.allocate(600 + i));
    refuse(1, UINT64_MAX);
    {
      const Counted counted;
      for (DataPtr& block : blocks) block.clear();
    }
    refuse_nothing();
    EXPECT_EQ(g_requests, 0u);
  }
}

TEST(FailingMemoryTest, AFreeTellsCallbacksWithoutMemory) {
  if (!kCanRefuse) GTEST_SKIP() << "the sanitizer's allocator refuses nothing";
  static std::atomic<int> frees{0};
  struct Callback : UnifiedAllocatorCallback {
    void on_buffer_event(void*, MemoryEvent event) override {
      if (event == MemoryEvent::kFreed) ++frees;
    }
  };
  UnifiedCallbackRegistry::instance().add("without memory", std::make_unique<Callback>());
  {
    Subject subject("unified");
    DataPtr block = subject.allocator->allocate(kMiB);
    refuse(1, UINT64_MAX);
    const Counted counted;
    block.clear();
  }
  refuse_nothing();
  UnifiedCallbackRegistry::instance().remove("without memory");
  EXPECT_EQ(frees, 1);
}

TEST(FailingMemoryTest, AFreeBeyondTheCacheLimitAllocatesNothing) {
  if (!kCanRefuse) GTEST_SKIP() << "the sanitizer's allocator refuses nothing";
  SimBackend device({.capacity_bytes = kGiB});
  SparedBackend spared(device);
  UnifiedAllocator unified(spared);
  unified.set_cache_limit(0);
  for (int i = 0; i < 2; ++i) {
    DataPtr block = unified.allocate(32 * kMiB);
    refuse(1, UINT64_MAX);
    {
      const Counted counted;
      block.clear();
    }
    refuse_nothing();
    EXPECT_EQ(device.used_bytes(), 0u);
  }
}

// For every n, until the four schedules end before the n-th request.
TEST_P(FailingMemory, FourThreadsMayBeRefusedAnything) {
  std::uint64_t requests = UINT64_MAX;
  for (std::uint64_t n = 1; n <= requests; ++n) {
    SCOPED_TRACE("requests " + std::to_string(n) + " to " + std::to_string(2 * n) +
                 " are refused");
    Subject subject(GetParam(), &plan_of_schedule());
    Exchange exchange;
    std::vector<DataPtr> live[kThreads];
    refuse(n, 2 * n);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        bool freed = false;
        run_steps(subject, t, live[t], &freed, &exchange);
      });
    for (std::thread& thread : threads) thread.join();
    requests = g_requests;
    refuse_nothing();
    std::size_t blocks = exchange.blocks();
    for (const auto& each : live) blocks += each.size();
    check_whole(subject, blocks);
    if (HasFatalFailure()) return;
    exchange.clear();
    for (auto& each : live) each.clear();
    subject.allocator->empty_cache();
    ASSERT_EQ(subject.allocator->reserved_bytes(), subject.device.used_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, FailingMemory,
                         ::testing::Values("caching", "expandable", "stitched", "private pool",
                                           "pinned", "pool", "buddy", "arena", "plan", "unified",
                                           "system", "host"),
                         [](const auto& which) {
                           std::string name = which.param;
                           for (char& c : name)
                             if (c == ' ') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace tenon
