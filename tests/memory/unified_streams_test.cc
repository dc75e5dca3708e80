// The unified allocator on several streams, under failures, and over random histories.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#include "memory/unified_devices.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/memory/compat/mlx.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/unified/unified_allocator.h"

namespace tenon {
namespace {

using unified::Storage;

std::vector<const void*> pointers(std::initializer_list<const DataPtr*> blocks) {
  std::vector<const void*> out;
  for (const DataPtr* block : blocks) out.push_back(block->get());
  return out;
}

// --- Streams and events.

constexpr std::uint64_t kStreamLagNs = 1'000'000;

TEST(UnifiedAllocator, OneStreamRecordsNoEvents) {
  SimBackend backend(fake_device(64 * kGiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  for (int i = 0; i < 2000; ++i) allocator.allocate(1000 + i).clear();
  EXPECT_EQ(backend.ledger().count(DriverCall::kEventRecord), 0u);
  EXPECT_EQ(backend.ledger().count(DriverCall::kEventQuery), 0u);
}

TEST(UnifiedAllocator, AnotherStreamWaitsForWhatItTakesOver) {
  SimBackend backend(fake_device(64 * kGiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  const Stream first{backend.device(), 0};
  const Stream second = backend.create_stream();
  DataPtr block = allocator.allocate_on(600 * kMiB, first);
  const void* address = block.get();
  backend.queue_work(first);
  block.clear();
  block = allocator.allocate_on(600 * kMiB, second);
  EXPECT_EQ(block.get(), address) << "no memory is stranded";
  EXPECT_EQ(backend.ledger().count(DriverCall::kStreamWait), 1u);
  EXPECT_EQ(backend.ledger().count(DriverCall::kEventRecord), 1u);
  // And back: the second stream's work is not over, so the first one waits in turn.
  backend.queue_work(second);
  block.clear();
  allocator.check_invariants();
  block = allocator.allocate_on(600 * kMiB, second);
  EXPECT_EQ(block.get(), address) << "the stream that freed it has it at once";
  EXPECT_EQ(backend.ledger().count(DriverCall::kStreamWait), 1u);
}

TEST(UnifiedAllocator, FinishedWorkNeedsNoWait) {
  SimBackend backend(fake_device(64 * kGiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  const Stream first{backend.device(), 0};
  const Stream second = backend.create_stream();
  DataPtr block = allocator.allocate_on(600 * kMiB, first);
  backend.queue_work(first);
  allocator.record_stream(block, second);
  backend.queue_work(second);
  block.clear();
  EXPECT_EQ(allocator.free_inactive_buffers(), 0u) << "the second stream is not done";
  EXPECT_EQ(allocator.stats().active_bytes[0].current, 600 * static_cast<std::int64_t>(kMiB));
  EXPECT_EQ(mlx(allocator).get_active_memory(), 0u);
  backend.advance_to(backend.now_ns() + 2 * kStreamLagNs);
  EXPECT_EQ(allocator.free_inactive_buffers(), 600 * kMiB);
  EXPECT_EQ(allocator.stats().active_bytes[0].current, 0);
  EXPECT_EQ(allocator.reserved_bytes(), 600 * kMiB) << "it gives nothing to the driver";
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved_bytes(), 0u) << "which empty_cache does";
}

TEST(UnifiedAllocator, EmptyCacheWaitsForPendingBuffers) {
  SimBackend backend(fake_device(64 * kGiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  const Stream second = backend.create_stream();
  DataPtr block = allocator.allocate(600 * kMiB);
  allocator.record_stream(block, second);
  backend.queue_work(second);
  block.clear();
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved_bytes(), 0u);
  EXPECT_GE(backend.now_ns(), kStreamLagNs);
  allocator.check_invariants();
}

TEST(UnifiedAllocator, FreeInactiveBuffersTakesInWhatIsOverAndNeverWaits) {
  SimBackend backend(fake_device(64 * kGiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  const Stream second = backend.create_stream();
  DataPtr block = allocator.allocate(600 * kMiB);
  allocator.record_stream(block, second);
  backend.queue_work(second);
  block.clear();
  EXPECT_EQ(allocator.free_inactive_buffers(), 0u);
  EXPECT_LT(backend.now_ns(), kStreamLagNs);
  backend.synchronize();
  const std::uint64_t reserved = allocator.reserved_bytes();
  EXPECT_EQ(allocator.free_inactive_buffers(), 600 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), reserved) << "the heap stays";
}

TEST(UnifiedAllocator, ABufferInUseElsewhereIsNotHandedOut) {
  SimBackend backend(fake_device(64 * kGiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  const Stream second = backend.create_stream();
  DataPtr block = allocator.allocate(600 * kMiB);
  const void* address = block.get();
  allocator.record_stream(block, second);
  allocator.record_stream(block, Stream{backend.device(), 0});  // its own: no-op
  backend.queue_work(second);
  block.clear();
  DataPtr other = allocator.allocate(600 * kMiB);
  EXPECT_NE(other.get(), address);
  const DataPtr theirs = allocator.allocate_on(600 * kMiB, second);
  EXPECT_EQ(theirs.get(), address) << "the stream that still uses it may have it";
  allocator.check_invariants();
}

TEST(UnifiedAllocator, RecordStreamNamesMistakes) {
  SimBackend backend(fake_device());
  SimOptions options = fake_device();
  options.device_index = 1;
  SimBackend elsewhere(options);
  UnifiedAllocator allocator(backend);
  UnifiedAllocator other(elsewhere);
  const DataPtr block = allocator.allocate(100);
  EXPECT_THROW(allocator.record_stream(block, Stream{elsewhere.device(), 0}), InvalidArgument);
  EXPECT_THROW(other.record_stream(block, Stream{elsewhere.device(), 0}), InvalidPointer);
}

TEST(UnifiedAllocator, TheHostWaitsForRecordedEvents) {
  SimBackend backend(unified_device(kGiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  const DataPtr a = allocator.allocate(100);
  const DataPtr b = allocator.allocate(100);
  EXPECT_FALSE(allocator.record_events({}));
  EXPECT_FALSE(allocator.wait_for_events(pointers({&a}))) << "nothing was recorded";
  EXPECT_EQ(backend.now_ns() >= kStreamLagNs, false);
  backend.queue_work(current_stream(backend.device()));
  EXPECT_TRUE(allocator.record_events(pointers({&a, &b})));
  EXPECT_EQ(backend.ledger().count(DriverCall::kEventRecord), 1u) << "one event for both";
  EXPECT_EQ(allocator.describe(a.get()).uses, 1u);
  EXPECT_TRUE(allocator.wait_for_events(pointers({&a, &b})));
  EXPECT_GE(backend.now_ns(), kStreamLagNs);
  EXPECT_EQ(allocator.describe(a.get()).uses, 0u);
}

TEST(UnifiedAllocator, TheHostAlsoWaitsForTheFormerUserOfARecycledBuffer) {
  SimBackend backend(unified_device(kGiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  allocator.allocate(100).clear();
  DataPtr before = allocator.allocate(100);
  backend.queue_work(current_stream(backend.device()));
  before.clear();
  const DataPtr again = allocator.allocate(100);
  EXPECT_FALSE(allocator.wait_for_events(pointers({&again})));
  EXPECT_GE(backend.now_ns(), kStreamLagNs);
}

TEST(UnifiedAllocator, FreedWithEventsPendingOnAnotherStreamItWaits) {
  SimBackend backend(unified_device(kGiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  const Stream second = backend.create_stream();
  DataPtr block = allocator.allocate(600 * kMiB);
  backend.queue_work(second);
  {
    const StreamGuard guard(second);
    allocator.record_events(pointers({&block}));
  }
  const void* address = block.get();
  block.clear();
  EXPECT_EQ(allocator.snapshot()[0].blocks[0].state, BlockInfo::State::kPendingFree);
  backend.advance_to(2 * kStreamLagNs);
  block = allocator.allocate(600 * kMiB);
  EXPECT_EQ(block.get(), address) << "the event is over";
}

TEST(UnifiedAllocator, ThreadsTakeEachOthersMemoryOnlyWhenItIsShort) {
  SimBackend backend(fake_device(2 * kGiB, kStreamLagNs));
  const Stream side = backend.create_stream();
  UnifiedAllocator allocator(backend);
  allocator.allocate(700 * kMiB).clear();
  std::thread([&] {
    allocator.allocate_on(700 * kMiB, side).clear();
    EXPECT_EQ(allocator.reserved_bytes(), 1400 * kMiB);
    DataPtr own = allocator.allocate_on(700 * kMiB, side);
    EXPECT_EQ(allocator.reserved_bytes(), 1400 * kMiB);
    const DataPtr others = allocator.allocate_on(690 * kMiB, side);
    EXPECT_EQ(allocator.reserved_bytes(), 1400 * kMiB) << "a third heap would not fit";
    allocator.check_invariants();
  }).join();
  allocator.check_invariants();
}

// The common path of either stream needs its own lane alone; whoever looks at all of them, or at
// somebody else's buffer, sees a whole state.
TEST(UnifiedAllocator, QuestionsAndThreadsDoNotMeetHalfway) {
  SimBackend backend(fake_device(64 * kGiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  const Stream streams[] = {backend.create_stream(), backend.create_stream()};
  std::atomic<const void*> seen[2] = {};
  std::atomic<int> running{2};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      Random random(t + 1);
      std::vector<DataPtr> blocks;
      for (int i = 0; i < 3000; ++i) {
        blocks.push_back(allocator.allocate_on(1 + random.below(3 * kMiB), streams[t]));
        if (random.chance(0.05)) allocator.record_stream(blocks.back(), streams[1 - t]);
        if (random.chance(0.05)) seen[t] = blocks.back().get();
        if (blocks.size() < 30) continue;
        std::swap(blocks[random.below(blocks.size())], blocks.back());
        blocks.pop_back();
      }
      --running;
    });
  std::uint64_t answers = 0;
  while (running > 0) {
    for (const auto& data : seen) {
      if (data == nullptr) continue;
      try {
        answers += allocator.describe(data).id != 0;
      } catch (const InvalidPointer&) {
        ++answers;  // freed since
      }
    }
    allocator.check_invariants();
    const AllocatorStats stats = allocator.stats();
    EXPECT_LE(stats.allocated_bytes[0].current, stats.active_bytes[0].current);
    EXPECT_LE(stats.requested_bytes[0].current, stats.allocated_bytes[0].current);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mlx(allocator).get_active_memory(), 0u);
  allocator.empty_cache();
  EXPECT_EQ(backend.used_bytes(), 0u);
}

TEST(UnifiedAllocator, PeaksOverSeveralStreamsAreOfTheirSum) {
  SimBackend backend(fake_device(64 * kGiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  const Stream side = backend.create_stream();
  DataPtr a = allocator.allocate(40 * kMiB);
  DataPtr b = allocator.allocate_on(40 * kMiB, side);
  b.clear();
  a.clear();
  const DataPtr c = allocator.allocate_on(60 * kMiB, side);
  EXPECT_NEAR(static_cast<double>(mlx(allocator).get_peak_memory()), 80.0 * kMiB, 2.0 * kMiB);
}

TEST(UnifiedAllocator, ADestroyedStreamsMemoryIsNotLost) {
  SimBackend backend(fake_device(64 * kGiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  const Stream second = backend.create_stream();
  DataPtr block = allocator.allocate_on(600 * kMiB, second);
  const void* address = block.get();
  backend.queue_work(second);
  block.clear();
  backend.destroy_stream(second);
  block = allocator.allocate(600 * kMiB);
  EXPECT_EQ(block.get(), address);
  EXPECT_GE(backend.now_ns(), kStreamLagNs) << "no event could be recorded, so the host waited";
}

// --- Failures.

TEST(UnifiedAllocator, SurvivesAFailureAtEveryDriverCall) {
  for (const DriverCall call :
       {DriverCall::kAllocate, DriverCall::kFree, DriverCall::kEventRecord,
        DriverCall::kEventQuery, DriverCall::kStreamWait, DriverCall::kHostWait})
    for (std::uint64_t nth = 1; nth <= 12; ++nth) {
      SimBackend backend(fake_device(3 * kGiB, kStreamLagNs));
      UnifiedAllocator allocator(backend);
      const Stream streams[] = {{backend.device(), 0}, backend.create_stream()};
      backend.fail_call(call, nth);
      Random random(nth);
      std::vector<DataPtr> blocks;
      for (int i = 0; i < 300; ++i) {
        try {
          blocks.push_back(allocator.allocate_on((1 + random.below(700)) * kMiB,
                                                 streams[random.below(2)]));
          backend.queue_work(streams[0]);
          backend.queue_work(streams[1]);
          if (random.below(4) == 0)
            allocator.record_stream(blocks.back(), streams[random.below(2)]);
          if (random.below(20) == 0) allocator.empty_cache();
        } catch (const OutOfMemory&) {
          blocks.clear();
        } catch (const DeviceError&) {
        }
        if (!blocks.empty() && random.below(2) == 0) {
          std::swap(blocks[random.below(blocks.size())], blocks.back());
          blocks.pop_back();
        }
        allocator.check_invariants();
      }
      backend.clear_failures();
      blocks.clear();
      allocator.empty_cache();
      EXPECT_EQ(backend.used_bytes(), 0u) << driver_call_name(call) << " " << nth;
    }
}

// --- Random histories.

TEST(UnifiedAllocator, KeepsEveryBlocksContentsOverRandomSteps) {
  SimBackend backend(unified_device(512 * kMiB, kStreamLagNs));
  UnifiedAllocator allocator(backend);
  Random random(7);
  struct Held {
    DataPtr data;
    std::size_t size = 0;
    std::uint8_t value = 0;
  };
  std::vector<Held> held;
  const auto check = [](const Held& block) {
    const auto* bytes = static_cast<const std::uint8_t*>(block.data.get());
    ASSERT_EQ(bytes[0], block.value);
    ASSERT_EQ(bytes[block.size - 1], block.value);
    ASSERT_EQ(bytes[block.size / 2], block.value);
  };
  for (int step = 0; step < 10000; ++step) {
    if (held.size() < 40 && random.below(2) == 0) {
      const std::size_t size = 1 + random.below(random.below(10) == 0 ? 2 * kMiB : 20 * kKiB);
      held.push_back({allocator.allocate(size), size, static_cast<std::uint8_t>(step)});
      auto* bytes = static_cast<std::uint8_t*>(held.back().data.get());
      bytes[0] = bytes[size / 2] = bytes[size - 1] = held.back().value;
    } else if (!held.empty()) {
      std::swap(held[random.below(held.size())], held.back());
      check(held.back());
      held.pop_back();
    }
    if (step % 500 == 0) {
      const std::uint64_t reserved = allocator.reserved_bytes();
      allocator.empty_cache();
      EXPECT_LE(allocator.reserved_bytes(), reserved);
      allocator.check_invariants();
    }
  }
  for (const Held& block : held) check(block);
}

TEST(UnifiedAllocator, SameCallsGiveTheSameLayout) {
  const auto layout = [] {
    SimBackend backend(fake_device());
    UnifiedAllocator allocator(backend);
    Random random(3);
    std::vector<DataPtr> blocks;
    std::vector<std::uint64_t> offsets;
    for (int i = 0; i < 2000; ++i) {
      if (blocks.size() > 50 || (!blocks.empty() && random.below(2) == 0)) {
        std::swap(blocks[random.below(blocks.size())], blocks.back());
        blocks.pop_back();
      } else {
        blocks.push_back(allocator.allocate(1 + random.below(4 * kMiB)));
        offsets.push_back(allocator.layout_offset(blocks.back()));
      }
    }
    return offsets;
  };
  EXPECT_EQ(layout(), layout());
}

TEST(UnifiedAllocator, ServesThreadsThatFreeEachOthersBuffers) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  std::mutex mutex;
  std::vector<DataPtr> shared;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Random random(static_cast<std::uint64_t>(t));
      for (int i = 0; i < 2000; ++i) {
        DataPtr block = allocator.allocate(1 + random.below(3 * kMiB));
        const std::lock_guard lock(mutex);
        shared.push_back(std::move(block));
        if (shared.size() > 20) shared.erase(shared.begin());
      }
    });
  for (std::thread& thread : threads) thread.join();
  shared.clear();
  allocator.check_invariants();
  EXPECT_EQ(mlx(allocator).get_active_memory(), 0u);
}

}  // namespace
}  // namespace tenon
