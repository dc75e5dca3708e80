#include "tenon/memory/host/cpu_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/host/host_allocator.h"

namespace tenon {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EventList : public Observer {
 public:
  void on_memory_event(const MemoryEventInfo& info) override {
    events.push_back(info.event);
    bytes.push_back(info.size_bytes);
  }
  std::vector<MemoryEvent> events;
  std::vector<std::uint64_t> bytes;
};

class CpuAllocatorTest : public ::testing::TestWithParam<CpuAllocator* (*)()> {
 protected:
  CpuAllocator& cpu_ = *GetParam()();
};

TEST_P(CpuAllocatorTest, EverySizeIsAlignedAndWritable) {
  for (std::size_t size : {1, 2, 63, 64, 65, 4095, 4096, 4097, 1 << 20, (64 << 20) + 1}) {
    const DataPtr block = cpu_.allocate(size);
    ASSERT_TRUE(block);
    EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(block.get()), kCpuAlignment));
    EXPECT_TRUE(cpu_.is_simple_data_ptr(block));
    std::memset(block.get(), 0x5a, size);
  }
}

TEST_P(CpuAllocatorTest, AllThatIsUsableMayBeUsed) {
  std::vector<DataPtr> blocks;
  std::vector<std::size_t> sizes{1, 63, 64, 100, 4097, 65536, 65537, 700001, 5 << 20};
  for (const std::size_t size : sizes) {
    blocks.push_back(cpu_.allocate(size));
    const std::size_t usable = cpu_.usable_size(blocks.back());
    EXPECT_GE(usable, size);
    EXPECT_LE(usable, size + size / 4 + 4 * kMobileGuardBytes) << "for " << size;
    std::memset(blocks.back().get(), static_cast<int>(blocks.size()), usable);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(blocks[i].get());
    const std::size_t usable = cpu_.usable_size(blocks[i]);
    EXPECT_TRUE(bytes[0] == i + 1 && bytes[usable / 2] == i + 1 && bytes[usable - 1] == i + 1)
        << "a neighbour of " << sizes[i] << " lies inside";
  }
  EXPECT_EQ(cpu_.usable_size(DataPtr()), 0u);
  EXPECT_EQ(cpu_.usable_size(host_allocator().allocate(64)), 0u) << "another's";
}

TEST_P(CpuAllocatorTest, ZeroBytesIsANullPointerOnTheCpu) {
  const auto before = cpu_.stats().named();
  const DataPtr block = cpu_.allocate(0);
  EXPECT_FALSE(block);
  EXPECT_EQ(block.device(), Device{});
  EXPECT_EQ(cpu_.stats().named(), before);
}

TEST_P(CpuAllocatorTest, SizesThatNoMachineHasAreRefused) {
  const std::size_t max = std::numeric_limits<std::size_t>::max();
  for (std::size_t size : {max, max - 63, max - 64, max - 4096, max / 2 + 1, std::size_t{1} << 48})
    EXPECT_THROW(cpu_.allocate(size), InvalidArgument) << size;
}

TEST_P(CpuAllocatorTest, RefusalByTheSystemIsOutOfMemoryWithTheNumbers) {
  EventList log;
  const ObserverGuard guard(cpu_.observers(), log);
  const std::int64_t ooms = cpu_.stats().num_ooms;
  try {
    cpu_.allocate(kMaxRequestBytes);
    FAIL() << "128 TiB were granted";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), HasSubstr("requested 128 TiB"));
    EXPECT_EQ(error.details().requested_bytes, kMaxRequestBytes);
    EXPECT_FALSE(error.details().advice.empty());
  }
  EXPECT_EQ(cpu_.stats().num_ooms, ooms + 1);
  // Idle memory may go back meanwhile, by the clock.
  EXPECT_THAT(log.events, Contains(MemoryEvent::kAllocationFailed).Times(1));
  EXPECT_TRUE(cpu_.allocate(64)) << "and it goes on";
}

TEST_P(CpuAllocatorTest, StatisticsFollowEveryBlock) {
  const AllocatorStats before = cpu_.stats();
  DataPtr block = cpu_.allocate(1000);
  const AllocatorStats during = cpu_.stats();
  EXPECT_EQ(during.allocation[0].current - before.allocation[0].current, 1);
  const std::int64_t guards =
      &cpu_ == get_default_mobile_cpu_allocator() ? 2 * kMobileGuardBytes : 0;
  EXPECT_EQ(during.requested_bytes[0].current - before.requested_bytes[0].current, 1000 + guards);
  EXPECT_GE(during.allocated_bytes[0].current - before.allocated_bytes[0].current, 1000);
  EXPECT_GE(during.reserved_bytes[0].current, during.allocated_bytes[0].current);
  block.clear();
  const AllocatorStats after = cpu_.stats();
  EXPECT_EQ(after.allocation[0].current, before.allocation[0].current);
  EXPECT_EQ(after.allocated_bytes[0].current, before.allocated_bytes[0].current);
  EXPECT_EQ(after.requested_bytes[0].current, before.requested_bytes[0].current);
}

TEST_P(CpuAllocatorTest, ObserversSeeBothEndsOfABlock) {
  cpu_.allocate(300).clear();  // from here on a block of this size is there
  EventList log;
  const ObserverGuard guard(cpu_.observers(), log);
  cpu_.allocate(300).clear();
  EXPECT_THAT(log.events, ElementsAre(MemoryEvent::kRecycled, MemoryEvent::kFreed));
  const std::uint64_t guards =
      &cpu_ == get_default_mobile_cpu_allocator() ? 2 * kMobileGuardBytes : 0;
  EXPECT_THAT(log.bytes, ElementsAre(300 + guards, 300 + guards));
}

TEST_P(CpuAllocatorTest, RawMemoryIsFreedByItsPointerAlone) {
  const std::int64_t before = cpu_.stats().allocation[0].current;
  void* raw = cpu_.raw_allocate(100);
  std::memset(raw, 1, 100);
  EXPECT_EQ(cpu_.stats().allocation[0].current, before + 1);
  cpu_.raw_deallocate(raw);
  EXPECT_EQ(cpu_.stats().allocation[0].current, before);
}

TEST_P(CpuAllocatorTest, PointerIntoABlockIsNamedAndTheBlockStaysGood) {
  DataPtr block = cpu_.allocate(4096);
  std::memset(block.get(), 0, 4096);
  for (std::size_t offset : {8, 64, 1024})
    EXPECT_THROW(cpu_.raw_deallocate(static_cast<char*>(block.get()) + offset), InvalidPointer);
  block.clear();
}

TEST_P(CpuAllocatorTest, SecondFreeIsNamed) {
  void* raw = cpu_.raw_allocate(200);
  cpu_.raw_deallocate(raw);
  EXPECT_THROW(cpu_.raw_deallocate(raw), InvalidPointer);
}

TEST_P(CpuAllocatorTest, BlocksMayBeDroppedOnOtherThreads) {
  const std::int64_t before = cpu_.stats().allocation[0].current;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    std::vector<DataPtr> blocks;
    for (std::size_t i = 1; i <= 200; ++i) {
      blocks.push_back(cpu_.allocate(i * 17));
      std::memset(blocks.back().get(), t, i * 17);
    }
    threads.emplace_back([moved = std::move(blocks), this] {
      for (std::size_t i = 0; i < 200; ++i) cpu_.allocate(100);
    });
  }
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  EXPECT_EQ(cpu_.stats().allocation[0].current, before);
}

INSTANTIATE_TEST_SUITE_P(Both, CpuAllocatorTest,
                         ::testing::Values(&get_default_cpu_allocator,
                                           &get_default_mobile_cpu_allocator),
                         [](const auto& which) {
                           return which.index == 0 ? "Default" : "Mobile";
                         });

TEST_P(CpuAllocatorTest, ItsRawDeleterIgnoresNull) {
  EXPECT_NO_THROW(cpu_.raw_deleter()(nullptr));
}

TEST(MobileCpuAllocator, GuardsAroundABlockAreReadableAndZero) {
  for (std::size_t size : {1, 64, 100, 5000}) {
    const DataPtr block = get_default_mobile_cpu_allocator()->allocate(size);
    const auto* data = static_cast<const unsigned char*>(block.get());
    const auto sum = [](const unsigned char* from) {
      return std::accumulate(from, from + kMobileGuardBytes, 0u);
    };
    EXPECT_EQ(sum(data - kMobileGuardBytes), 0u);
    EXPECT_EQ(sum(data + size), 0u);
  }
}

// A wrapper that forwards raw_deleter, as the specification's logging allocator does, gets the raw
// API with it.
TEST(CpuMemory, TheAllocatorInUseHasARawApiThroughAWrapper) {
  class Wrapper : public Allocator {
   public:
    DataPtr allocate(std::size_t size_bytes) override {
      return get_cpu_allocator()->allocate(size_bytes);
    }
    DeleterFn raw_deleter() const override { return get_cpu_allocator()->raw_deleter(); }
    void copy_data(void*, const void*, std::size_t) const override {}
  } wrapper;
  void* raw = wrapper.raw_allocate(1000);
  std::memset(raw, 1, 1000);
  wrapper.raw_deallocate(raw);
  EXPECT_THROW(wrapper.raw_deallocate(raw), InvalidPointer);
}

// host_allocator() finds the block inside the wrapper's by its address, too.
TEST(CpuMemory, ABlockOfAWrapperGoesBackThroughIt) {
  ASSERT_NE(host_allocator().raw_deleter(), nullptr);
  for (const std::size_t size : {std::size_t{1000}, std::size_t{1} << 20}) {
    StatisticsAdaptor<Allocator> counted(*get_default_cpu_allocator());
    void* raw = counted.raw_allocate(size);
    counted.raw_deleter()(raw);
    EXPECT_EQ(counted.passed().blocks.current, 0);
    EXPECT_EQ(counted.passed().blocks.freed(), 1);
  }
}

TEST(CpuMemory, AllocCpuAndFreeCpuArePairs) {
  void* raw = alloc_cpu(77);
  ASSERT_NE(raw, nullptr);
  std::memset(raw, 7, 77);
  free_cpu(raw);
  EXPECT_EQ(alloc_cpu(0), nullptr);
  free_cpu(nullptr);
  EXPECT_THROW(alloc_cpu(std::numeric_limits<std::size_t>::max()), InvalidArgument);
}

}  // namespace
}  // namespace tenon
