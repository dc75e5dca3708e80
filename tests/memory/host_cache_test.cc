// Blocks that a thread has freed and gets again: bins and LargeCache in memory/host/.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/memory/host/host_allocator.h"

namespace tenon {
namespace {

class HostCacheTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  // Allocated, freed, and allocated again.
  void* reused() {
    void* const data = host_.raw_allocate(GetParam());
    host_.raw_deallocate(data);
    EXPECT_EQ(host_.raw_allocate(GetParam()), data);
    return data;
  }
  std::int64_t blocks() const { return host_.stats().allocation[0].current; }

  HostBackend backend_;
  HostAllocator host_{backend_};
};

TEST_P(HostCacheTest, ABlockIsFreedOnceAlthoughItIsCached) {
  void* const data = reused();
  host_.raw_deallocate(data);
  EXPECT_THROW(host_.raw_deallocate(data), InvalidPointer);
  std::thread([&] { EXPECT_THROW(host_.raw_deallocate(data), InvalidPointer); }).join();
  EXPECT_EQ(blocks(), 0);
  EXPECT_EQ(host_.raw_allocate(GetParam()), data);
  host_.raw_deallocate(data);
  host_.check_invariants();
}

TEST_P(HostCacheTest, NullIsIgnored) {
  const DataPtr held = host_.allocate(GetParam());
  host_.raw_deallocate(nullptr);
  const DataPtr other = host_.allocate(GetParam());
  EXPECT_NE(held.get(), other.get());
  EXPECT_EQ(blocks(), 2);
}

TEST_P(HostCacheTest, AReusedBlockIsFreedByAnyThread) {
  void* const data = reused();
  std::thread([&] { host_.raw_deallocate(data); }).join();
  EXPECT_EQ(blocks(), 0);
  EXPECT_THROW(host_.raw_deallocate(data), InvalidPointer);
  // Another one is cached, and then the first is there again.
  void* const other = reused();
  host_.raw_deallocate(other);
  void* const fresh = host_.raw_allocate(GetParam() + 4096);
  std::thread([&] { host_.raw_deallocate(fresh); }).join();
  EXPECT_EQ(blocks(), 0);
  host_.check_invariants();
}

TEST_P(HostCacheTest, ABlockThatIsHeldIsNeverTakenForACachedOne) {
  void* const data = reused();
  std::vector<void*> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(reused());
    host_.raw_deallocate(others.back());
    others.back() = host_.raw_allocate(GetParam());
  }
  std::thread([&] {
    host_.raw_deallocate(data);
    for (void* other : others) host_.raw_deallocate(other);
  }).join();
  EXPECT_EQ(blocks(), 0);
  host_.check_invariants();
}

TEST_P(HostCacheTest, ADataPtrsBlockIsNotFreedByItsAddress) {
  void* data = nullptr;
  for (int i = 0; i < 2; ++i) {
    const DataPtr owned = host_.allocate(GetParam());
    data = owned.get();
    EXPECT_THROW(host_.raw_deallocate(data), InvalidPointer);
  }
  EXPECT_THROW(host_.raw_deallocate(data), InvalidPointer);
  EXPECT_EQ(blocks(), 0);
}

TEST_P(HostCacheTest, EveryPairIsCountedWhileOthersLook) {
  constexpr std::int64_t kPairs = 20000;
  const auto size = static_cast<std::int64_t>(GetParam());
  std::atomic<bool> done{false};
  std::thread looking([&] {
    while (!done) {
      const AllocatorStats stats = host_.stats();
      EXPECT_LE(stats.allocation[0].current, 1);
      EXPECT_GE(stats.allocation[0].current, 0);
      EXPECT_LE(stats.allocation[0].peak, 1);
      EXPECT_LE(stats.allocation[0].allocated, kPairs);
      std::this_thread::yield();
    }
  });
  for (std::int64_t i = 0; i < kPairs; ++i) host_.raw_deallocate(host_.raw_allocate(GetParam()));
  done = true;
  looking.join();
  const AllocatorStats stats = host_.stats();
  EXPECT_EQ(stats.allocation[0].allocated, kPairs);
  EXPECT_EQ(stats.allocation[0].current, 0);
  EXPECT_EQ(stats.requested_bytes[0].allocated, kPairs * size);
  EXPECT_EQ(stats.requested_bytes[0].peak, size);
}

INSTANTIATE_TEST_SUITE_P(Sizes, HostCacheTest,
                         ::testing::Values(64, 5000, 65536, 65537, 1 << 19, 3 << 20));

// More than the counts of a thread hold between two updates.
TEST_P(HostCacheTest, TotalsAreExactThoughNobodyAsks) {
  const auto size = static_cast<std::int64_t>(GetParam());
  const std::int64_t pairs = std::min<std::int64_t>((std::int64_t{5} << 30) / size + 1, 300'000);
  for (std::int64_t i = 0; i < pairs; ++i) host_.raw_deallocate(host_.raw_allocate(GetParam()));
  const AllocatorStats stats = host_.stats();
  EXPECT_EQ(stats.allocation[0].allocated, pairs);
  EXPECT_EQ(stats.requested_bytes[0].allocated, pairs * size);
  EXPECT_EQ(stats.allocated_bytes[0].freed(), stats.allocated_bytes[0].allocated);
}

// Levels that fall and rise by more than a thread's counts may drift before an update.
TEST_P(HostCacheTest, PeaksAreExactThoughLevelsFallFar) {
  const auto size = static_cast<std::int64_t>(GetParam());
  const std::int64_t count = std::min<std::int64_t>((std::int64_t{1} << 30) / size, 100'000);
  std::vector<void*> blocks;
  const auto grow_to = [&](std::int64_t end) {
    while (static_cast<std::int64_t>(blocks.size()) < end)
      blocks.push_back(host_.raw_allocate(GetParam()));
  };
  const auto shrink = [&] {
    for (void* block : blocks) host_.raw_deallocate(block);
    blocks.clear();
  };
  const auto peak = [&] { return host_.stats().requested_bytes[0].peak; };
  grow_to(count);
  shrink();
  grow_to(count);
  shrink();
  EXPECT_EQ(peak(), count * size);
  grow_to(count + 1);
  shrink();
  EXPECT_EQ(peak(), (count + 1) * size);
  host_.reset_peak_stats();
  grow_to(count / 2);
  shrink();
  EXPECT_EQ(peak(), count / 2 * size);
  EXPECT_EQ(host_.stats().allocation[0].peak, count / 2);
}

TEST_P(HostCacheTest, OnlyWhereABlockBeginsIsItFreed) {
  char* const data = static_cast<char*>(host_.raw_allocate(GetParam()));
  for (const std::ptrdiff_t off : {1, 8, 63, 64, 4096, -64, -1})
    EXPECT_THROW(host_.raw_deallocate(data + off), InvalidPointer) << off;
  for (int bit = 47; bit < 64; ++bit) {
    const auto at = reinterpret_cast<std::uintptr_t>(data) ^ std::uintptr_t{1} << bit;
    EXPECT_THROW(host_.raw_deallocate(reinterpret_cast<void*>(at)), InvalidPointer) << bit;
  }
  host_.raw_deallocate(data);
  EXPECT_EQ(blocks(), 0);
}

TEST_P(HostCacheTest, WhatIsCachedIsNeitherInUseNorKeptByTrim) {
  {
    std::vector<DataPtr> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(host_.allocate(GetParam()));
  }
  EXPECT_EQ(host_.stats().allocated_bytes[0].current, 0);
  host_.check_invariants();
  host_.trim();
  EXPECT_EQ(host_.reserved_bytes(), 0u);
}

// Without the cache each would lie where the first large block was, the lowest place that fits.
TEST(HostLargeCache, SizesInTurnKeepTheirPlaces) {
  HostBackend backend;
  HostAllocator host(backend);
  const auto addresses = [&] {
    std::vector<const void*> all;
    for (const std::size_t size : {200 * kKiB, 400 * kKiB, 100 * kKiB})
      all.push_back(host.allocate(size).get());
    return all;
  };
  const std::vector<const void*> once = addresses();
  EXPECT_NE(once[0], once[1]);
  EXPECT_NE(once[1], once[2]);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(addresses(), once);
  host.check_invariants();
}

TEST(HostLargeCache, HoldsNoMoreThanItsBound) {
  HostBackend backend;
  HostAllocator host(backend);
  std::vector<DataPtr> blocks;
  for (std::size_t i = 0; i < 200; ++i) blocks.push_back(host.allocate((100 + i) * kKiB));
  const void* const first = blocks[0].get();
  for (DataPtr& block : blocks) {
    block.clear();
    host.check_invariants();  // counts the bytes
  }
  // Those that had to leave joined: of 39 MiB they serve what no hole of the cached ones would.
  EXPECT_EQ(host.allocate(34 << 20).get(), first);
}

// Two sizes of one set of the cache: each takes the other's place.
TEST(HostLargeCache, SizesOfOneSetAreNotTakenForEachOther) {
  HostBackend backend;
  HostAllocator host(backend);
  for (std::size_t i = 0; i < 2000; ++i) {
    const std::size_t size = (66 + i * 37 % 900) * kKiB;
    const DataPtr block = host.allocate(size);
    ASSERT_GE(host.usable_size(block), size);
    ASSERT_LT(host.usable_size(block), size + 64);
  }
  host.check_invariants();
}

// The thread that frees is not the one whose cache it would be: the block joins its neighbours.
TEST(HostLargeCache, AnotherThreadsFreePassesIt) {
  HostBackend backend;
  HostAllocator host(backend);
  std::vector<DataPtr> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(host.allocate(300 * kKiB));
  const auto whole = static_cast<std::uint64_t>(host.reserved_bytes());
  std::thread([&] { blocks.clear(); }).join();
  EXPECT_EQ(host.largest_free_bytes(), whole);
  host.check_invariants();
}

}  // namespace
}  // namespace tenon
