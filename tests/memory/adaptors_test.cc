#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <sstream>
#include <thread>
#include <type_traits>
#include <vector>

#include "memory/failure_adaptor.h"
#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/adaptors/aligned_adaptor.h"
#include "tenon/memory/adaptors/fallback_adaptor.h"
#include "tenon/memory/adaptors/limit_adaptor.h"
#include "tenon/memory/adaptors/logging_adaptor.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/adaptors/thread_safe_adaptor.h"
#include "tenon/memory/adaptors/tracking_adaptor.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/host/host_allocator.h"
#include "tenon/memory/tag.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class AdaptorsTest : public ::testing::Test {
 protected:
  static SimOptions options() {
    SimOptions options;
    options.capacity_bytes = kGiB;
    options.real_memory = true;
    options.unified = true;
    return options;
  }
  Allocator& cpu_ = *get_default_cpu_allocator();
  SimBackend backend_{options()};
  HostAllocator device_{backend_};
};

// --- What all of them do.

TEST_F(AdaptorsTest, AnAdaptorIsWhatItWraps) {
  LimitAdaptor over_cpu(cpu_, 1000);
  LimitAdaptor over_device(device_, 1000);
  static_assert(std::is_base_of_v<Allocator, decltype(over_cpu)>);
  static_assert(!std::is_base_of_v<DeviceAllocator, decltype(over_cpu)>);
  static_assert(std::is_base_of_v<DeviceAllocator, decltype(over_device)>);
  EXPECT_EQ(over_device.name(), "limit(host)");
  EXPECT_EQ(over_device.device(), device_.device());
}

TEST_F(AdaptorsTest, ComposedAdaptorsEachSeeEveryBlock) {
  std::ostringstream log;
  LimitAdaptor limited(device_, 10000);
  TrackingAdaptor tracked(limited);
  LoggingAdaptor logged(tracked, log);
  StatisticsAdaptor counted(logged);
  EXPECT_EQ(counted.name(), "statistics(logging(tracking(limit(host))))");
  DataPtr block = counted.allocate(600);
  EXPECT_EQ(limited.used_bytes(), 600u);
  EXPECT_EQ(tracked.live_bytes(), 600u);
  EXPECT_EQ(counted.passed().bytes.current, 600);
  EXPECT_EQ(counted.stats().requested_bytes[0].current, 600) << "the upstream's statistics";
  DataPtr moved = std::move(block);
  block.clear();
  EXPECT_EQ(limited.used_bytes(), 600u) << "moving is no event";
  std::thread([held = std::move(moved)]() mutable { held.clear(); }).join();
  EXPECT_EQ(limited.used_bytes(), 0u);
  EXPECT_EQ(tracked.live_blocks(), 0u);
  EXPECT_EQ(counted.passed().bytes.current, 0);
}

TEST_F(AdaptorsTest, RawBlocksPassThroughTooAndASecondFreeIsNamed) {
  LimitAdaptor over_cpu(cpu_, 1000);
  LimitAdaptor over_device(device_, 1000);
  const auto check = [](Allocator& limited, const auto& used) {
    void* raw = limited.raw_allocate(100);
    std::memset(raw, 1, 100);
    EXPECT_EQ(used(), 100u);
    limited.raw_deallocate(raw);
    EXPECT_EQ(used(), 0u);
    EXPECT_THROW(limited.raw_deallocate(raw), InvalidPointer);
    EXPECT_EQ(limited.raw_allocate(0), nullptr);
    limited.raw_deallocate(nullptr);
  };
  check(over_cpu, [&] { return over_cpu.used_bytes(); });
  check(over_device, [&] { return over_device.used_bytes(); });
}

TEST_F(AdaptorsTest, BlocksOfOthersAreNamed) {
  LimitAdaptor limited(device_, 1000);
  const DataPtr foreign = device_.allocate(10);
  EXPECT_THROW(limited.record_stream(foreign, Stream{device_.device(), 0}), InvalidPointer);
  EXPECT_THROW(limited.layout_offset(foreign), InvalidPointer);
}

// --- Statistics.

TEST_F(AdaptorsTest, StatisticsCountWhatPassedAndNothingElse) {
  StatisticsAdaptor counted(cpu_);
  const DataPtr elsewhere = cpu_.allocate(5000);
  DataPtr a = counted.allocate(100);
  DataPtr b = counted.allocate(1024);
  const DataPtr none = counted.allocate(0);
  a.clear();
  EXPECT_THROW(counted.allocate(std::numeric_limits<std::size_t>::max()), InvalidArgument);
  const PassedStatistics passed = counted.passed();
  EXPECT_EQ(passed.blocks.current, 1);
  EXPECT_EQ(passed.blocks.peak, 2);
  EXPECT_EQ(passed.bytes.allocated, 1124);
  EXPECT_EQ(passed.zero_requests, 1u);
  EXPECT_EQ(passed.failures, 1u);
  EXPECT_EQ(passed.largest_bytes, 1024u);
  EXPECT_EQ(passed.by_octave[6], 1u);
  EXPECT_EQ(passed.by_octave[10], 1u);
  counted.reset_passed_peaks();
  EXPECT_EQ(counted.passed().bytes.peak, 1024);
}

// --- Logging.

TEST_F(AdaptorsTest, LogHasALineForEachEvent) {
  std::vector<std::string> lines;
  LoggingAdaptor logged(cpu_, [&](std::string_view line) { lines.emplace_back(line); });
  const char text[] = "text";
  logged.clone(text, sizeof(text)).clear();
  const DataPtr none = logged.allocate(0);
  EXPECT_THROW(logged.allocate(std::numeric_limits<std::size_t>::max()), InvalidArgument);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[0], MatchesRegex("allocate 5 bytes on cpu:0: 0x[0-9a-f]+"));
  EXPECT_THAT(lines[1], MatchesRegex("copy 5 bytes: 0x[0-9a-f]+ to 0x[0-9a-f]+"));
  EXPECT_THAT(lines[2], MatchesRegex("free 5 bytes on cpu:0: 0x[0-9a-f]+"));
  EXPECT_EQ(lines[3], "allocate 0 bytes on cpu:0: null");
  EXPECT_THAT(lines[4], HasSubstr("failed: "));
}

TEST_F(AdaptorsTest, LogNamesTheStream) {
  std::ostringstream out;
  LoggingAdaptor logged(device_, out);
  logged.allocate_on(10, backend_.create_stream()).clear();
  EXPECT_THAT(out.str(), HasSubstr("allocate 10 bytes on sim:0 stream 1: "));
  EXPECT_THAT(out.str(), HasSubstr("free 10 bytes on sim:0 stream 1: "));
}

TEST_F(AdaptorsTest, LogThatThrowsDoesNotFailTheAllocation) {
  LoggingAdaptor logged(cpu_, [](std::string_view) { throw 1; });
  DataPtr block = logged.allocate(10);
  EXPECT_TRUE(block);
  block.clear();
}

// --- Tracking.

TEST_F(AdaptorsTest, LeakReportSaysSizeCountTagAndPlace) {
  TrackingAdaptor tracked(cpu_, 4);
  EXPECT_EQ(tracked.leak_report(), "no blocks are alive\n");
  std::vector<DataPtr> leaked;
  {
    const TagGuard tag({"forward", "conv2d"});
    for (int i = 0; i < 3; ++i) leaked.push_back(tracked.allocate(kMiB));
  }
  leaked.push_back(tracked.allocate(100));
  tracked.allocate(7).clear();
  EXPECT_EQ(tracked.live_blocks(), 4u);
  EXPECT_EQ(tracked.live_bytes(), 3 * kMiB + 100);
  const std::vector<TrackedSite> sites = tracked.call_sites();
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].count, 3u);
  EXPECT_EQ(sites[0].size_bytes, 3 * kMiB);
  EXPECT_EQ(sites[0].made_at.depth(), 4);
  const std::string report = tracked.leak_report();
  EXPECT_THAT(report, HasSubstr("4 block(s) alive, 3.00 MiB, from 2 place(s)"));
  EXPECT_THAT(report, HasSubstr("3 MiB in 3 block(s), phase forward, by conv2d, made at\n    at "));
  EXPECT_THAT(report, HasSubstr("100 B in 1 block(s), made at\n    at "));
}

TEST_F(AdaptorsTest, TrackedBlocksComeInTheOrderOfTheirRequestsAndStacksAreOptional) {
  TrackingAdaptor tracked(device_, 0);
  const DataPtr a = tracked.allocate(1);
  tracked.allocate(2).clear();
  const DataPtr b = tracked.allocate(3);
  const std::vector<TrackedBlock> blocks = tracked.blocks();
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].data, a.get());
  EXPECT_EQ(blocks[0].number, 1u);
  EXPECT_EQ(blocks[1].data, b.get());
  EXPECT_EQ(blocks[1].number, 3u);
  EXPECT_THAT(tracked.leak_report(), HasSubstr("(no stack)"));
}

// --- Limit.

TEST_F(AdaptorsTest, LimitRefusesWithTheNumbersAndFreesGiveBack) {
  LimitAdaptor limited(device_, 1000);
  DataPtr a = limited.allocate(600);
  try {
    limited.allocate(401);
    FAIL() << "above the limit";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.details().requested_bytes, 401u);
    EXPECT_EQ(error.details().allocated_bytes, 600u);
    EXPECT_EQ(error.details().limit_bytes, 1000u);
    EXPECT_EQ(error.details().largest_free_bytes, 400u);
    EXPECT_EQ(error.details().allocator, "limit(host)");
    EXPECT_EQ(error.details().device, "sim:0");
  }
  const DataPtr b = limited.allocate(400);
  EXPECT_EQ(limited.used_bytes(), 1000u);
  EXPECT_FALSE(limited.allocate(0)) << "nothing is always left";
  a.clear();
  EXPECT_TRUE(limited.allocate(600));
  limited.set_limit(100);
  EXPECT_THROW(limited.allocate(1), OutOfMemory) << "400 bytes are in use";
}

TEST_F(AdaptorsTest, LimitCountsNothingWhenTheUpstreamFails) {
  FailureAdaptor failing(cpu_, FailurePlan{.every = 1});
  LimitAdaptor limited(failing, 1000);
  EXPECT_THROW(limited.allocate(900), OutOfMemory);
  EXPECT_EQ(limited.used_bytes(), 0u);
}

TEST_F(AdaptorsTest, LimitHoldsAmongThreads) {
  LimitAdaptor limited(device_, 10000);
  std::atomic<bool> exceeded{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      std::vector<DataPtr> blocks;
      for (int i = 0; i < 3000; ++i) {
        try {
          blocks.push_back(limited.allocate(1 + static_cast<std::size_t>(i) % 900));
        } catch (const OutOfMemory&) {
          blocks.clear();
        }
        if (limited.used_bytes() > 10000) exceeded = true;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(limited.used_bytes(), 0u);
}

// --- Failure.

TEST_F(AdaptorsTest, NthRequestFailsOnce) {
  FailureAdaptor failing(device_, FailurePlan{.nth = 3});
  const DataPtr none = failing.allocate(0);
  EXPECT_TRUE(failing.allocate(1));
  EXPECT_TRUE(failing.allocate(1));
  try {
    failing.allocate(77);
    FAIL() << "the third request was served";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.details().requested_bytes, 77u);
    EXPECT_THAT(error.what(), HasSubstr("the failure of request 3 was asked for"));
  }
  EXPECT_TRUE(failing.allocate(1));
  EXPECT_EQ(failing.failures(), 1u);
  EXPECT_EQ(failing.requests(), 4u);
}

TEST_F(AdaptorsTest, LargeRequestsFailAndRatesFollowTheSeed) {
  FailureAdaptor failing(cpu_, FailurePlan{.above_bytes = 1000});
  EXPECT_TRUE(failing.allocate(1000));
  EXPECT_THROW(failing.allocate(1001), OutOfMemory);
  const auto pattern = [&](std::uint64_t seed) {
    failing.set_plan({.rate = 0.3, .seed = seed});
    std::string out;
    for (int i = 0; i < 1000; ++i) {
      try {
        failing.allocate(8).clear();
        out += '.';
      } catch (const OutOfMemory&) {
        out += 'x';
      }
    }
    return out;
  };
  const std::string first = pattern(1);
  EXPECT_EQ(first, pattern(1));
  EXPECT_NE(first, pattern(2));
  EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), 'x')), 300, 60);
}

TEST_F(AdaptorsTest, FailuresAreReportedToObservers) {
  class Failures : public Observer {
   public:
    void on_memory_event(const MemoryEventInfo& info) override {
      if (info.event == MemoryEvent::kAllocationFailed) bytes = info.size_bytes;
    }
    std::uint64_t bytes = 0;
  } seen;
  FailureAdaptor failing(device_, FailurePlan{.nth = 1});
  const ObserverGuard guard(failing.observers(), seen);
  EXPECT_THROW(failing.allocate(123), OutOfMemory);
  EXPECT_EQ(seen.bytes, 123u);
}

// --- Aligned.

TEST_F(AdaptorsTest, EveryPowerOfTwoIsKept) {
  for (std::uint64_t alignment = 1; alignment <= 4 * kMiB; alignment *= 4) {
    AlignedAdaptor over_cpu(cpu_, alignment);
    AlignedAdaptor over_device(device_, alignment);
    for (Allocator* aligned :
         {static_cast<Allocator*>(&over_cpu), static_cast<Allocator*>(&over_device)})
      for (std::size_t size : {1, 100, 70000}) {
        const DataPtr block = aligned->allocate(size);
        EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(block.get()), alignment));
        std::memset(block.get(), 0xaa, size);
      }
    EXPECT_FALSE(over_device.allocate(0));
  }
  EXPECT_EQ(device_.stats().allocation[0].current, 0);
}

TEST_F(AdaptorsTest, OtherAlignmentsAndHugeSizesAreRefused) {
  for (std::uint64_t alignment : {std::uint64_t{0}, std::uint64_t{48}, std::uint64_t{1} << 41})
    EXPECT_THROW(AlignedAdaptor(cpu_, alignment), InvalidArgument) << alignment;
  AlignedAdaptor aligned(cpu_, 4096);
  EXPECT_THROW(aligned.allocate(std::numeric_limits<std::size_t>::max() - 100), InvalidArgument);
}

// --- Thread-safe.

// Knows no threads: notices when two are inside at once.
class SingleThreaded : public Allocator {
 public:
  DataPtr allocate(std::size_t size_bytes) override {
    const Visit visit(*this);
    void* data = ::operator new(size_bytes);
    ++live;
    auto* context = new Context{this, data};
    return DataPtr(data, context, &free_one, Device{});
  }
  void copy_data(void*, const void*, std::size_t) const override {}

  std::atomic<int> inside{0};
  std::atomic<int> clashes{0};
  int live = 0;

 private:
  struct Context {
    SingleThreaded* owner;
    void* data;
  };
  struct Visit {
    explicit Visit(SingleThreaded& where) : allocator(where) {
      if (allocator.inside.fetch_add(1) != 0) ++allocator.clashes;
      std::this_thread::yield();
    }
    ~Visit() { allocator.inside.fetch_sub(1); }
    SingleThreaded& allocator;
  };
  static void free_one(void* context) {
    const std::unique_ptr<Context> freed(static_cast<Context*>(context));
    const Visit visit(*freed->owner);
    ::operator delete(freed->data);
    --freed->owner->live;
  }
};

TEST_F(AdaptorsTest, OneThreadAtATimeIsInsideAThreadSafeAdaptor) {
  SingleThreaded single;
  ThreadSafeAdaptor safe(single);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      std::vector<DataPtr> blocks;
      for (int i = 0; i < 500; ++i) {
        blocks.push_back(safe.allocate(16));
        if (blocks.size() > 5) blocks.erase(blocks.begin());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(single.clashes, 0);
  EXPECT_EQ(single.live, 0);
}

// --- Fallback.

TEST_F(AdaptorsTest, FallbackServesWhatTheFirstCannotAndFreesGoHome) {
  HostAllocator reserve(backend_);
  LimitAdaptor small(device_, 1000);
  FallbackAdaptor both(small, reserve);
  DataPtr a = both.allocate(800);
  DataPtr b = both.allocate(800);
  EXPECT_EQ(both.fallbacks(), 1u);
  EXPECT_EQ(small.used_bytes(), 800u);
  EXPECT_EQ(reserve.stats().requested_bytes[0].current, 800);
  EXPECT_EQ(both.stats().allocation[0].current, 2);
  EXPECT_EQ(both.reserved_bytes(), device_.reserved_bytes() + reserve.reserved_bytes());
  EXPECT_NE(both.layout_offset(a), both.layout_offset(b));
  both.record_stream(b, Stream{both.device(), 0});
  a.clear();
  EXPECT_EQ(small.used_bytes(), 0u);
  EXPECT_EQ(reserve.stats().allocation[0].current, 1);
  b.clear();
  EXPECT_EQ(reserve.stats().allocation[0].current, 0);
  both.empty_cache();
  EXPECT_EQ(backend_.used_bytes(), 0u);
}

TEST_F(AdaptorsTest, WhenBothFailTheSecondSpeaks) {
  LimitAdaptor first(cpu_, 10);
  LimitAdaptor second(cpu_, 20);
  FallbackAdaptor both(first, second);
  try {
    both.allocate(30);
    FAIL() << "neither could serve it";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.details().limit_bytes, 20u);
  }
  EXPECT_THROW(both.allocate(std::numeric_limits<std::size_t>::max()), std::exception);
}

TEST_F(AdaptorsTest, ObserversSeeBothSidesOfAFallback) {
  class Counter : public Observer {
   public:
    void on_memory_event(const MemoryEventInfo& info) override {
      if (info.event == MemoryEvent::kFreed) ++freed;
    }
    int freed = 0;
  } counter;
  HostAllocator reserve(backend_);
  LimitAdaptor small(device_, 1000);
  {
    FallbackAdaptor both(small, reserve);
    const ObserverGuard guard(both.observers(), counter);
    both.allocate(100).clear();
    both.allocate(2000).clear();
    EXPECT_EQ(counter.freed, 2);
  }
  EXPECT_TRUE(reserve.observers().empty());
}

TEST_F(AdaptorsTest, FallbackToAnotherDeviceIsRefused) {
  SimOptions other = options();
  other.device_index = 1;
  SimBackend backend(other);
  HostAllocator elsewhere(backend);
  EXPECT_THROW(FallbackAdaptor(device_, elsewhere), InvalidArgument);
}

}  // namespace
}  // namespace tenon
