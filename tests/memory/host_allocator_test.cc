#include "tenon/memory/host/host_allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/host/size_classes.h"

namespace tenon {
namespace {

TEST(HostSizeClasses, EverySizeFitsItsClassAndNoSmallerOne) {
  for (std::uint64_t size = 1; size <= host::kLargestClass; ++size) {
    const int c = host::BlockClasses::of(size);
    ASSERT_GE(host::BlockClasses::bytes(c), size);
    ASSERT_TRUE(c == 0 || host::BlockClasses::bytes(c - 1) < size) << size;
  }
}

TEST(HostSizeClasses, ClassesRiseKeepAlignmentAndWasteLittle) {
  for (int c = 0; c < host::kClasses; ++c) {
    const std::uint64_t size = host::BlockClasses::bytes(c);
    EXPECT_TRUE(is_aligned(size, host::kSmallestClass));
    EXPECT_EQ(host::BlockClasses::of(size), c);
    EXPECT_GE(host::span_bytes(c) / size, 4u);
    if (c < 8) continue;
    EXPECT_LE(size - host::BlockClasses::bytes(c - 1), size / 8);
  }
}

class HostAllocatorTest : public ::testing::Test {
 protected:
  static SimOptions options() {
    SimOptions options;
    options.capacity_bytes = std::uint64_t{1} << 30;
    options.real_memory = true;
    return options;
  }
  std::uint64_t reserved() const { return host_->reserved_bytes(); }

  SimBackend backend_{options()};
  std::optional<HostAllocator> host_{backend_};
};

TEST_F(HostAllocatorTest, FreedBlockIsHandedOutAgainAtOnce) {
  for (std::size_t size : {1, 100, 5000, 65536, 65537, 1 << 20}) {
    DataPtr first = host_->allocate(size);
    void* const data = first.get();
    first.clear();
    EXPECT_EQ(host_->allocate(size).get(), data) << size;
  }
  EXPECT_EQ(host_->stats().num_device_alloc, 1);
}

TEST_F(HostAllocatorTest, SmallBlocksOfAllSizesShareOneRegion) {
  std::vector<DataPtr> blocks;
  for (std::size_t size = 64; size <= 65536; size *= 2) blocks.push_back(host_->allocate(size));
  EXPECT_EQ(reserved(), host::region_bytes(options().capacity_bytes));
}

TEST_F(HostAllocatorTest, LargeRequestsGetRegionsOfTheirOwnSize) {
  const DataPtr block = host_->allocate(100 << 20);
  EXPECT_EQ(reserved(), 100u << 20);
}

TEST_F(HostAllocatorTest, EmptyCacheGivesBackAllThatIsUnused) {
  {
    std::vector<DataPtr> blocks;
    for (int i = 0; i < 3000; ++i) blocks.push_back(host_->allocate(64 + 48 * i));
    EXPECT_GT(reserved(), host::region_bytes(options().capacity_bytes));
  }
  host_->empty_cache();
  EXPECT_EQ(reserved(), 0u);
  EXPECT_EQ(host_->stats().segment[0].current, 0);
}

TEST_F(HostAllocatorTest, RegionInUseDoesNotDecay) {
  { const DataPtr large = host_->allocate(200 << 20); }
  for (std::uint64_t i = 0; i < 2 * host::RegionStore::kDecayOperations; ++i)
    host_->allocate((i % 2 + 2) << 20).clear();  // wholly free at each turn, but not for long
  EXPECT_EQ(reserved(), 200u << 20);
}

TEST_F(HostAllocatorTest, RegionThatNobodyTouchesDecays) {
  { const DataPtr large = host_->allocate(200 << 20); }
  const DataPtr filler = host_->allocate(190 << 20);  // in the region of 200 MiB
  DataPtr second = host_->allocate(150 << 20);        // in one of its own
  EXPECT_EQ(reserved(), 350u << 20);
  second.clear();
  for (std::uint64_t i = 0; i < host::RegionStore::kDecayOperations; ++i)
    host_->allocate((i % 2 + 2) << 20).clear();  // fits in the rest of the first region
  EXPECT_EQ(reserved(), 200u << 20);
  host_->check_invariants();
}

TEST_F(HostAllocatorTest, MemoryOfEndedThreadsIsUsedAgain) {
  for (int round = 0; round < 20; ++round)
    std::thread([this] {
      std::vector<DataPtr> blocks;
      for (int i = 0; i < 100; ++i) blocks.push_back(host_->allocate(100000));
    }).join();
  EXPECT_EQ(reserved(), host::region_bytes(options().capacity_bytes))
      << "each thread took over what the last one left";
  host_->check_invariants();
}

TEST_F(HostAllocatorTest, BlocksOutliveTheThreadThatMadeThem) {
  std::vector<DataPtr> blocks;
  std::thread([&] {
    for (int i = 0; i < 500; ++i) {
      blocks.push_back(host_->allocate(1000));
      std::memset(blocks.back().get(), i % 256, 1000);
    }
  }).join();
  for (int i = 0; i < 500; ++i)
    EXPECT_EQ(static_cast<unsigned char*>(blocks[static_cast<std::size_t>(i)].get())[999], i % 256);
  blocks.clear();
  EXPECT_EQ(host_->stats().allocation[0].current, 0);
  host_->empty_cache();
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(HostAllocatorTest, AThreadMayOutliveTheAllocator) {
  std::thread([this] {
    host_->allocate(100).clear();
    std::thread([this] { host_.reset(); }).join();
    EXPECT_EQ(backend_.used_bytes(), 0u);
    host_.emplace(backend_);
    EXPECT_TRUE(host_->allocate(100)) << "another allocator, perhaps at the same address";
  }).join();
  host_->check_invariants();
}

// A block that is dropped, and one that is made, by a destructor that runs after the thread has
// given its heaps away.
TEST_F(HostAllocatorTest, WorksInTheLastDestructorsOfAThread) {
  struct Late {
    HostAllocator* host = nullptr;
    DataPtr kept;
    ~Late() {
      kept.clear();
      for (std::size_t size : {100, 100, 5000, 1 << 20}) host->allocate(size).clear();
    }
  };
  std::thread([this] {
    static thread_local Late late;  // made before the thread's heaps, so destroyed after them
    late.host = &*host_;
    late.kept = host_->allocate(100);
  }).join();
  EXPECT_EQ(host_->stats().allocation[0].current, 0);
  host_->check_invariants();
  host_->empty_cache();
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(HostAllocatorTest, FreesOfOtherThreadsAreReused) {
  const std::uint64_t before = [&] {
    host_->allocate(3000).clear();
    return reserved();
  }();
  for (int round = 0; round < 50; ++round) {
    std::vector<DataPtr> blocks;
    for (int i = 0; i < 2000; ++i) blocks.push_back(host_->allocate(3000));
    std::thread([&] { blocks.clear(); }).join();
    EXPECT_EQ(host_->stats().allocation[0].current, 0);
  }
  EXPECT_EQ(reserved(), before);
}

TEST_F(HostAllocatorTest, PeaksAreExactOnOneThread) {
  std::vector<DataPtr> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(host_->allocate(10000 + i));
  blocks.push_back(host_->allocate(3 << 20));
  const AllocatorStats top = host_->stats();
  blocks.clear();
  host_->allocate(5).clear();
  const AllocatorStats end = host_->stats();
  EXPECT_EQ(end.allocated_bytes[0].peak, top.allocated_bytes[0].current);
  EXPECT_EQ(end.requested_bytes[0].peak, top.requested_bytes[0].current);
  EXPECT_EQ(end.allocation[0].peak, 101);
  EXPECT_EQ(end.allocation[0].allocated, 102);
}

// As every policy without pools.
TEST_F(HostAllocatorTest, CountsAllBlocksAsLargeOnes) {
  std::vector<DataPtr> blocks;
  for (const std::size_t size : {100u, 100'000u, 1u << 20}) blocks.push_back(host_->allocate(size));
  std::thread([freed = std::move(blocks.back())]() mutable { freed.clear(); }).join();
  const AllocatorStats stats = host_->stats();
  for (const PoolStats* of : {&stats.allocation, &stats.allocated_bytes, &stats.requested_bytes,
                              &stats.active, &stats.segment, &stats.reserved_bytes}) {
    EXPECT_GT((*of)[0].current, 0);
    EXPECT_EQ((*of)[2].current, (*of)[0].current);
    EXPECT_EQ((*of)[2].allocated, (*of)[0].allocated);
  }
}

TEST_F(HostAllocatorTest, PeaksAreExactAboveAHugeBlock) {
  DataPtr huge = host_->allocate(512 << 20);
  DataPtr small = host_->allocate(64 << 10);
  const auto held = static_cast<std::int64_t>(host_->usable_size(huge) + host_->usable_size(small));
  small.clear();
  huge.clear();
  EXPECT_EQ(host_->stats().allocated_bytes[0].peak, held);
  EXPECT_EQ(host_->stats().allocation[0].peak, 2);
}

TEST_F(HostAllocatorTest, LimitIsKeptAndNamed) {
  host_.emplace(backend_, 128 << 20);
  const DataPtr block = host_->allocate(100 << 20);
  try {
    host_->allocate(40 << 20);
    FAIL() << "above the limit";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.details().limit_bytes, 128u << 20);
  }
  EXPECT_TRUE(host_->allocate(20 << 20)) << "what is left is still there";
}

TEST_F(HostAllocatorTest, StreamsKeepTheirBlocksApart) {
  const Stream other = backend_.create_stream();
  DataPtr block = host_->allocate_on(1000, Stream{host_->device(), 0});
  void* const data = block.get();
  block.clear();
  EXPECT_NE(host_->allocate_on(1000, other).get(), data);
  EXPECT_EQ(host_->allocate_on(1000, Stream{host_->device(), 0}).get(), data);
}

TEST_F(HostAllocatorTest, RecordStreamKnowsOnlyTheBlocksOwn) {
  const Stream other = backend_.create_stream();
  for (std::size_t size : {1000, 1 << 20}) {
    const DataPtr block = host_->allocate_on(size, other);
    host_->record_stream(block, other);
    EXPECT_THROW(host_->record_stream(block, Stream{host_->device(), 0}), InvalidArgument);
  }
}

TEST_F(HostAllocatorTest, NeverTouchesTheMemoryItPlaces) {
  SimOptions fake = options();
  fake.real_memory = false;
  SimBackend backend(fake);
  HostAllocator host(backend);
  std::vector<DataPtr> blocks;
  for (std::size_t i = 1; i < 3000; ++i) {
    blocks.push_back(host.allocate(i * 113));
    if (i % 3 == 0) blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i / 5));
  }
  host.check_invariants();
}

}  // namespace
}  // namespace tenon
