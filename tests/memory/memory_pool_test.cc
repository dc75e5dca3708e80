#include "tenon/memory/compat/memory_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "memory/unified_devices.h"
#include "support/cuda_stand_in.h"
#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/scopes/with_scope.h"
#include "tenon/memory/system/system_allocator.h"

namespace tenon {
namespace {

constexpr std::size_t kPoolSize = 1 << 20;

SimOptions sim(std::uint64_t capacity_bytes, bool real_memory = true) {
  SimOptions options;
  options.capacity_bytes = capacity_bytes;
  options.real_memory = real_memory;
  options.unified = real_memory;
  return options;
}

// Over each kind of upstream: what hands out host memory, and each driver.
class MemoryPoolTest : public ::testing::TestWithParam<std::string> {
 protected:
  MemoryPoolTest() {
    if (GetParam() == "cpu") {
      upstream_ = {get_default_cpu_allocator(), [](Allocator*) {}};
    } else if (GetParam() == "host") {
      upstream_ = std::make_shared<HostAllocator>(host_backend());
    } else {
      if (GetParam() == "cuda")
        backend_ = machine_.emplace("seed=3").backend();
      else if (GetParam() == "sim")
        backend_ = std::make_unique<SimBackend>(sim(64 << 20));
      else
        backend_ = more_memories().at(GetParam())();
      upstream_ = std::make_shared<SystemAllocator>(*backend_);
    }
    made_.emplace(upstream_, kPoolSize);
  }
  ~MemoryPoolTest() override {
    made_->check_invariants();
    made_.reset();
    upstream_.reset();
  }

  // Sets every byte, or compares every byte, by way of the upstream's copies.
  void fill(void* data, std::size_t size_bytes, int value) {
    const std::string bytes(size_bytes, static_cast<char>(value));
    upstream_->copy_data(data, bytes.data(), size_bytes);
    if (backend_ != nullptr) backend_->synchronize();
  }
  void expect_filled(const void* data, std::size_t size_bytes, int value) {
    std::string bytes(size_bytes, '?');
    upstream_->copy_data(bytes.data(), data, size_bytes);
    if (backend_ != nullptr) backend_->synchronize();
    EXPECT_EQ(bytes, std::string(size_bytes, static_cast<char>(value)));
  }

  std::optional<testing::StandIn> machine_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Allocator> upstream_;
  std::optional<MemoryPool> made_;
  MemoryPool& pool_ = *made_;
};

std::vector<std::string> upstreams() {
  std::vector<std::string> names = {"cpu", "host", "sim", "cuda"};
  for (const auto& [name, make] : more_memories()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Over, MemoryPoolTest, ::testing::ValuesIn(upstreams()),
                         [](const auto& which) { return which.param; });

// --- What the pool's specification asks for, case by case.

TEST_P(MemoryPoolTest, Allocation) {
  void* a = pool_.allocate(1024);
  void* b = pool_.allocate(2048);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_NE(a, b);
  for (const void* block : {a, b})
    EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(block), upstream_->alignment()));
  fill(a, 1024, 1);
  fill(b, 2048, 2);
  expect_filled(a, 1024, 1);
  const MemoryPoolStats stats = pool_.statistics();
  EXPECT_GE(stats.total_allocated, 3072u);
  EXPECT_EQ(stats.num_allocations, 2u);
  EXPECT_EQ(stats.num_pool_allocations, 2u);
  pool_.deallocate(a);
  pool_.deallocate(b);
}

TEST_P(MemoryPoolTest, Deallocation) {
  void* a = pool_.allocate(1024);
  void* b = pool_.allocate(2048);
  pool_.deallocate(a);
  MemoryPoolStats stats = pool_.statistics();
  EXPECT_EQ(stats.num_deallocations, 1u);
  EXPECT_LT(stats.current_usage, stats.total_allocated);
  pool_.deallocate(b);
  stats = pool_.statistics();
  EXPECT_EQ(stats.num_deallocations, 2u);
  EXPECT_EQ(stats.current_usage, 0u);
  EXPECT_EQ(stats.total_freed, stats.total_allocated);
}

TEST_P(MemoryPoolTest, Fragmentation) {
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(pool_.allocate(1024));
  for (std::size_t i = 1; i < blocks.size(); i += 2) pool_.deallocate(blocks[i]);
  for (std::size_t i = 0; i < blocks.size(); i += 2) fill(blocks[i], 1024, static_cast<int>(i));
  void* large = pool_.allocate(4096);
  ASSERT_NE(large, nullptr);
  fill(large, 4096, 77);
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    expect_filled(blocks[i], 1024, static_cast<int>(i));
    pool_.deallocate(blocks[i]);
  }
  pool_.deallocate(large);
  EXPECT_EQ(pool_.largest_free_bytes(), kPoolSize) << "all holes merged";
}

TEST_P(MemoryPoolTest, Reset) {
  pool_.allocate(1024);
  pool_.allocate(2048);
  pool_.reset();
  EXPECT_EQ(pool_.statistics().current_usage, 0u);
  void* again = pool_.allocate(1024);
  ASSERT_NE(again, nullptr);
  pool_.deallocate(again);
}

TEST_P(MemoryPoolTest, LargeAllocation) {
  void* large = pool_.allocate(2 * kPoolSize);
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(pool_.statistics().num_device_allocations, 2u);
  EXPECT_EQ(pool_.reserved_bytes(), kPoolSize + 4 * kPoolSize) << "grows by twice the request";
  pool_.deallocate(large);
}

TEST_P(MemoryPoolTest, ZeroSizeAllocation) {
  EXPECT_EQ(pool_.allocate(0), nullptr);
  EXPECT_EQ(pool_.statistics().num_allocations, 0u);
  pool_.deallocate(nullptr);
  EXPECT_EQ(pool_.statistics().num_deallocations, 0u);
}

TEST_P(MemoryPoolTest, InvalidDeallocation) {
  int foreign = 0;
  EXPECT_THROW(pool_.deallocate(&foreign), std::runtime_error);
  EXPECT_THROW(pool_.deallocate(&foreign), InvalidPointer);
  char* block = static_cast<char*>(pool_.allocate(1024));
  EXPECT_THROW(pool_.deallocate(block + pool_.alignment()), InvalidPointer) << "inside a block";
  pool_.deallocate(block);
  EXPECT_THROW(pool_.deallocate(block), InvalidPointer) << "freed twice";
  EXPECT_NE(pool_.allocate(1024), nullptr) << "still usable";
}

TEST_P(MemoryPoolTest, Statistics) {
  const MemoryPoolStats before = pool_.statistics();
  void* block = pool_.allocate(1024);
  const MemoryPoolStats after = pool_.statistics();
  EXPECT_GT(after.total_allocated, before.total_allocated);
  EXPECT_EQ(after.num_allocations, before.num_allocations + 1);
  pool_.deallocate(block);
  const MemoryPoolStats last = pool_.statistics();
  EXPECT_EQ(last.num_deallocations, 1u);
  EXPECT_EQ(last.current_usage, 0u);
  EXPECT_EQ(last.peak_usage, 1024u);
}

TEST_P(MemoryPoolTest, ReuseAfterDeallocation) {
  void* first = pool_.allocate(1024);
  pool_.deallocate(first);
  EXPECT_EQ(pool_.allocate(1024), first);
  EXPECT_EQ(pool_.statistics().num_device_allocations, 1u);
}

// --- What a pool must not do.

TEST(MemoryPoolRulesTest, ArgumentsAreChecked) {
  SimBackend backend(sim(64 << 20));
  const auto upstream = std::make_shared<SystemAllocator>(backend);
  EXPECT_THROW(MemoryPool(nullptr), InvalidArgument);
  EXPECT_THROW(MemoryPool(nullptr), std::invalid_argument);
  EXPECT_THROW(MemoryPool(upstream, 0), InvalidArgument);
  EXPECT_THROW(MemoryPool(upstream, 65 << 20), std::bad_alloc);
  EXPECT_EQ(backend.used_bytes(), 0u);
  MemoryPool pool(upstream, 4096);
  EXPECT_THROW(pool.allocate(std::numeric_limits<std::size_t>::max()), InvalidArgument);
}

// As an allocator of someone else fails: by the standard exception.
class FailsByBadAlloc final : public Allocator {
 public:
  DataPtr allocate(std::size_t size_bytes) override {
    if (size_bytes > 3 * kPoolSize) throw std::bad_alloc();
    return get_default_cpu_allocator()->allocate(size_bytes);
  }
  std::size_t alignment() const override { return 64; }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    default_copy_data(dest, src, size_bytes);
  }
};

TEST(MemoryPoolRulesTest, AnUpstreamThatThrowsBadAllocIsAskedForTheRequestAlone) {
  MemoryPool pool(std::make_shared<FailsByBadAlloc>(), kPoolSize);
  EXPECT_NE(pool.allocate(2 * kPoolSize), nullptr);  // and not for twice as much
  EXPECT_EQ(pool.reserved_bytes(), 3 * kPoolSize);
  EXPECT_THROW(pool.allocate(4 * kPoolSize), std::bad_alloc);
}

TEST(MemoryPoolRulesTest, TheDefaultPoolSizeIs256MiB) {
  SimBackend backend(sim(1 << 30, false));
  MemoryPool pool(std::make_shared<SystemAllocator>(backend));
  EXPECT_EQ(backend.used_bytes(), 256u << 20);
}

TEST(MemoryPoolRulesTest, TellsAllEightStatistics) {
  SimBackend backend(sim(64 << 20));
  MemoryPool pool(std::make_shared<SystemAllocator>(backend), kPoolSize);
  void* const first = pool.allocate(1024);
  pool.allocate(4096);
  pool.deallocate(first);
  void* const large = pool.allocate(2 * kPoolSize);  // a chunk of its own
  const MemoryPoolStats stats = pool.statistics();
  EXPECT_EQ(stats.total_allocated, 1024 + 4096 + 2 * kPoolSize);
  EXPECT_EQ(stats.total_freed, 1024u);
  EXPECT_EQ(stats.current_usage, 4096 + 2 * kPoolSize);
  EXPECT_EQ(stats.peak_usage, 4096 + 2 * kPoolSize);
  EXPECT_EQ(stats.num_allocations, 3u);
  EXPECT_EQ(stats.num_deallocations, 1u);
  EXPECT_EQ(stats.num_pool_allocations, 3u);
  EXPECT_EQ(stats.num_device_allocations, 2u);
  pool.deallocate(large);
  pool.allocate(1024);
  EXPECT_EQ(pool.statistics().peak_usage, 4096 + 2 * kPoolSize) << "as it was";
}

TEST(MemoryPoolRulesTest, ChunksGoBackWhenThePoolEnds) {
  SimBackend backend(sim(64 << 20));
  const auto upstream = std::make_shared<SystemAllocator>(backend);  // outlives the pool
  {
    MemoryPool pool(upstream, kPoolSize);
    pool.allocate(4 * kPoolSize);
    EXPECT_GT(backend.used_bytes(), kPoolSize);
  }
  EXPECT_EQ(backend.used_bytes(), 0u);
}

TEST_P(MemoryPoolTest, ResetGivesEachChunkItsOwnSizeBack) {
  pool_.allocate(3 * kPoolSize);  // a chunk of six pool sizes beside the first one
  pool_.allocate(1000);
  const std::uint64_t reserved = pool_.reserved_bytes();
  pool_.reset();
  pool_.check_invariants();
  EXPECT_EQ(pool_.free_bytes(), reserved);
  EXPECT_EQ(pool_.largest_free_bytes(), 6 * kPoolSize);
  EXPECT_EQ(pool_.statistics().num_device_allocations, 2u);
  EXPECT_NE(pool_.allocate(6 * kPoolSize), nullptr);
  EXPECT_EQ(pool_.statistics().num_device_allocations, 2u);
}

TEST_P(MemoryPoolTest, PointersFromBeforeAResetAreNoLongerKnown) {
  void* stale = pool_.allocate(1024);
  pool_.reset();
  EXPECT_THROW(pool_.deallocate(stale), InvalidPointer);
}

// Each chunk of a simulated device without memory lies right below the one before.
TEST(MemoryPoolRulesTest, ABlockNeverSpansTwoChunksThatHappenToTouch) {
  SimBackend backend(sim(64 << 20, false));
  MemoryPool pool(std::make_shared<SystemAllocator>(backend), kPoolSize);
  void* first = pool.allocate(kPoolSize);
  void* second = pool.allocate(kPoolSize / 2 + 512);
  ASSERT_EQ(pool.statistics().num_device_allocations, 2u);
  ASSERT_EQ(static_cast<char*>(first) - static_cast<char*>(second), kPoolSize + 1024);
  pool.deallocate(first);
  pool.deallocate(second);
  EXPECT_EQ(pool.largest_free_bytes(), kPoolSize + 1024) << "not both";
  pool.allocate(kPoolSize + 1536);
  EXPECT_EQ(pool.statistics().num_device_allocations, 3u);
}

TEST_P(MemoryPoolTest, ARestOfTheSmallestBlockIsKeptAndASmallerOneIsNot) {
  const std::size_t smallest = std::max(MemoryPool::kMinBlockBytes, pool_.alignment());
  pool_.allocate(kPoolSize - smallest);
  EXPECT_EQ(pool_.free_bytes(), smallest);
  pool_.reset();
  pool_.allocate(kPoolSize - 192);
  EXPECT_EQ(pool_.free_bytes(), 0u);
  EXPECT_EQ(pool_.statistics().current_usage, kPoolSize);
}

TEST_P(MemoryPoolTest, TakesTheSmallestFreeBlockThatFits) {
  std::vector<void*> blocks;
  for (const std::size_t size : {8192, 64, 4096, 64, 2048, 64})
    blocks.push_back(pool_.allocate(size));
  for (const int hole : {0, 2, 4}) pool_.deallocate(blocks[hole]);
  EXPECT_EQ(pool_.allocate(2048), blocks[4]);
  EXPECT_EQ(pool_.allocate(3000), blocks[2]);
  EXPECT_EQ(pool_.allocate(5000), blocks[0]);
}

TEST(MemoryPoolRulesTest, BlocksAreAlignedEvenWhereUpstreamIsNot) {
  class Crooked final : public Allocator {  // memory that begins 8 bytes off
   public:
    DataPtr allocate(std::size_t size) override {
      char* memory = static_cast<char*>(::operator new(size + 8, std::align_val_t(64)));
      return {memory + 8, memory, [](void* p) { ::operator delete(p, std::align_val_t(64)); },
              Device{}};
    }
    void copy_data(void* to, const void* from, std::size_t size) const override {
      default_copy_data(to, from, size);
    }
  };
  MemoryPool pool(std::make_shared<Crooked>(), 1 << 16);
  for (int i = 0; i < 20; ++i) {
    void* block = pool.allocate(1000);
    EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(block), 64));
    std::memset(block, 1, 1000);
  }
  pool.check_invariants();
}

TEST(MemoryPoolRulesTest, GrowsByTheRequestAloneWhereTwiceIsTooMuch) {
  SimBackend backend(sim(10 << 20));
  MemoryPool pool(std::make_shared<SystemAllocator>(backend), 1 << 20);
  EXPECT_NE(pool.allocate(8 << 20), nullptr);
  EXPECT_THROW(pool.allocate(2 << 20), OutOfMemory);
  EXPECT_NE(pool.allocate(1 << 20), nullptr) << "still usable";
  pool.check_invariants();
}

// 64 bytes on a device of 512 would be an address that its kernels cannot take.
TEST(MemoryPoolRulesTest, BlocksAreAlignedAsTheDeviceWants) {
  const auto of_host = std::make_shared<SystemAllocator>(host_backend());
  EXPECT_EQ(MemoryPool(of_host, kPoolSize).alignment(), 64u) << "not a page";
  for (const std::uint64_t alignment : {64, 512, 4096}) {
    SimOptions options = sim(64 << 20, false);
    options.alignment = alignment;
    SimBackend backend(options);
    MemoryPool pool(std::make_shared<SystemAllocator>(backend), kPoolSize);
    EXPECT_EQ(pool.alignment(), alignment);
    auto* first = static_cast<char*>(pool.allocate(1));
    auto* second = static_cast<char*>(pool.allocate(1));
    EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(first), alignment));
    EXPECT_EQ(second - first, static_cast<std::ptrdiff_t>(alignment));
  }
}

TEST(MemoryPoolRulesTest, AFailureUpstreamAtAnyCallLeavesThePoolWhole) {
  for (std::uint64_t nth = 1; nth <= 6; ++nth) {
    SCOPED_TRACE(::testing::Message() << "upstream call " << nth << " fails");
    SimBackend backend(sim(256 << 20, false));
    MemoryPool pool(std::make_shared<SystemAllocator>(backend), 1 << 20);
    backend.fail_call(DriverCall::kAllocate, nth);
    std::vector<void*> blocks;
    for (int i = 0; i < 10; ++i) {
      try {
        blocks.push_back(pool.allocate(3 << 20));
      } catch (const OutOfMemory&) {
      }
      pool.check_invariants();
    }
    EXPECT_EQ(blocks.size(), 10u) << "one refused chunk is made up for by a smaller one";
    for (void* block : blocks) pool.deallocate(block);
    pool.check_invariants();
  }
}

TEST(MemoryPoolRulesTest, TheSameCallsGiveTheSameBlocks) {
  const auto run = [] {
    SimBackend backend(sim(std::uint64_t{1} << 40, false));
    MemoryPool pool(std::make_shared<SystemAllocator>(backend), 1 << 20);
    Random random(7);
    std::vector<void*> live;
    std::vector<void*> all;
    for (int i = 0; i < 3000; ++i) {
      if (live.empty() || random.chance(0.55)) {
        live.push_back(pool.allocate(1 + random.below(1 << random.between(4, 19))));
        all.push_back(live.back());
      } else {
        const std::size_t pick = random.below(live.size());
        pool.deallocate(live[pick]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
      }
    }
    pool.check_invariants();
    return all;
  };
  EXPECT_EQ(run(), run());
}

TEST(MemoryPoolRulesTest, ManyThreadsMayShareIt) {
  SimBackend backend(sim(64 << 20));
  MemoryPool pool(std::make_shared<SystemAllocator>(backend), kPoolSize);
  constexpr int kThreads = 4;
  std::array<int, kThreads> damaged = {};
  std::atomic<int> waiting{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&pool, t, &damaged, &waiting] {
      for (--waiting; waiting > 0;) std::this_thread::yield();  // all at once
      Random random(static_cast<std::uint64_t>(t) + 1);
      std::vector<std::pair<unsigned char*, std::size_t>> live;
      for (int i = 0; i < 150000; ++i) {
        if (live.size() < 20 && random.chance(0.6)) {
          const std::size_t size = 1 + random.below(40000);
          auto* data = static_cast<unsigned char*>(pool.allocate(size));
          data[0] = data[size - 1] = static_cast<unsigned char>(t);
          live.push_back({data, size});
        } else if (!live.empty()) {
          const auto [data, size] = live.back();
          live.pop_back();
          if (data[0] != t || data[size - 1] != t) ++damaged[t];
          pool.deallocate(data);
        }
      }
      for (const auto& [data, size] : live) pool.deallocate(data);
    });
  for (std::thread& thread : threads) thread.join();
  for (const int count : damaged) EXPECT_EQ(count, 0);
  EXPECT_EQ(pool.statistics().current_usage, 0u);
}

// An upstream that says null instead of throwing, as plain malloc wrappers do.
class NullAllocator final : public Allocator {
 public:
  DataPtr allocate(std::size_t) override { return DataPtr(Device{}); }
  void copy_data(void*, const void*, std::size_t) const override {}
};

TEST(MemoryPoolRulesTest, AnUpstreamThatReturnsNullIsOutOfMemory) {
  const auto upstream = std::make_shared<NullAllocator>();
  EXPECT_THROW(MemoryPool pool(upstream), OutOfMemory);
  EXPECT_THROW(with_scope(*upstream, [](Allocator& arena) { return arena.allocate(100); }),
               OutOfMemory);
}

}  // namespace
}  // namespace tenon
