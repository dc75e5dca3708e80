// Small whole programs: how the parts of the memory layer are used together.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "memory/logging_allocator.h"
#include "tenon/base/error.h"
#include "tenon/base/intrusive_ptr.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/compat/memory_pool.h"
#include "tenon/memory/gpu/caching_allocator.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/scopes/with_scope.h"
#include "tenon/memory/system/system_allocator.h"
#include "tenon/memory/unified/unified_allocator.h"

namespace tenon {
namespace {

int freed_by_c = 0;

void free_by_c(void* data) {
  ++freed_by_c;
  std::free(data);
}

TEST(SeedExamples, ADataPtrOwnsMemoryOfTheCLibrary) {
  freed_by_c = 0;
  {
    void* memory = std::malloc(1024);
    DataPtr owner(memory, nullptr, &free_by_c, Device{});
    EXPECT_EQ(owner.get(), memory);
    EXPECT_EQ(owner.get_deleter(), &free_by_c);
    EXPECT_EQ(freed_by_c, 0);
  }
  EXPECT_EQ(freed_by_c, 1);
}

struct DriverBlock {
  Backend& backend;
  Segment segment;
};

void free_by_driver(void* context) {
  auto* block = static_cast<DriverBlock*>(context);
  block->backend.free_segment(block->segment);
  delete block;
}

TEST(SeedExamples, ADataPtrCarriesADriversMemory) {
  SimBackend device({.capacity_bytes = 64 << 20});
  const std::uint64_t before = device.memory().free_bytes;
  const Segment segment = device.allocate_segment(4 << 20).value();
  DataPtr owner(segment.base, new DriverBlock{device, segment}, &free_by_driver, device.device());
  EXPECT_EQ(owner.device(), device.device());
  EXPECT_EQ(device.memory().free_bytes, before - segment.size_bytes);
  owner.clear();
  EXPECT_EQ(device.memory().free_bytes, before);
}

TEST(SeedExamples, ALoggingAllocatorWrapsAnother) {
  std::ostringstream log;
  LoggingAllocator logging(get_cpu_allocator(), log);
  const DataPtr block = logging.allocate(1024);
  std::memset(block.get(), 7, 1024);
  const DataPtr copy = logging.clone(block.get(), 1024);
  EXPECT_EQ(std::memcmp(block.get(), copy.get(), 1024), 0);
  logging.raw_deallocate(logging.raw_allocate(64));
  EXPECT_EQ(log.str(), "allocate 1024\nallocate 1024\ncopy 1024\nallocate 64\n");
}

// A bare pointer says no device: what it cannot tell apart is refused, and nothing is mixed up.
TEST(SeedExamples, RawBlocksOfTwoDevicesWithTheSameAddressesAreRefusedWhereTheyAreAmbiguous) {
  SimBackend device({.capacity_bytes = 64 << 20}), other({.capacity_bytes = 64 << 20});
  CachingAllocator a(device), b(other);
  const auto live = [](const DeviceAllocator& allocator) {
    return allocator.stats().allocation[0].current;
  };
  std::ostringstream log;
  LoggingAllocator log_a(&a, log), log_b(&b, log);
  void* const block = log_a.raw_allocate(1000);
  ASSERT_EQ(b.allocate(1000).get(), block) << "the same address";
  EXPECT_THROW(log_b.raw_allocate(1000), InvalidArgument);
  EXPECT_EQ(live(b), 0) << "nothing is lost";
  ASSERT_EQ(b.raw_allocate(1000), block);
  EXPECT_THROW(log_a.raw_deallocate(block), InvalidPointer);
  EXPECT_EQ(live(a) + live(b), 2) << "whose it is, is not guessed";
  b.raw_deallocate(block);
  EXPECT_EQ(live(b), 0);
  log_a.raw_deallocate(block);
  EXPECT_EQ(live(a), 0);
}

// The least that a storage is: counted, and the owner of its bytes.
struct SharedBytes : IntrusiveTarget {
  explicit SharedBytes(DataPtr bytes_) : bytes(std::move(bytes_)) {}
  DataPtr bytes;
};

TEST(SeedExamples, SharedStorageFreesItsMemoryWithTheLastReference) {
  freed_by_c = 0;
  auto first = make_intrusive<SharedBytes>(
      DataPtr(std::malloc(4096), nullptr, &free_by_c, Device{}));
  std::memset(first->bytes.get(), 0, 4096);
  auto second = first;
  EXPECT_EQ(first.use_count(), 2u);
  first.reset();
  EXPECT_EQ(second.use_count(), 1u);
  EXPECT_EQ(freed_by_c, 0);
  second.reset();
  EXPECT_EQ(freed_by_c, 1);
}

TEST(SeedExamples, ASecondRequestIsServedFromTheCache) {
  SimBackend device({.capacity_bytes = 64 << 20});
  CachingAllocator caching(device, {}, 0);
  DataPtr block = caching.allocate(1024);
  void* const address = block.get();
  block.clear();
  EXPECT_GT(caching.reserved_bytes(), 0u);  // kept, not given back
  block = caching.allocate(1024);
  EXPECT_EQ(block.get(), address);
  EXPECT_EQ(caching.stats().num_device_alloc, 1u);
  block.clear();
  caching.empty_cache();
  EXPECT_EQ(caching.reserved_bytes(), 0u);
}

TEST(SeedExamples, AMemoryPoolServesTwoBlocksAndTellsItsPeak) {
  SimBackend device({.capacity_bytes = 64 << 20});
  MemoryPool pool(std::make_shared<SystemAllocator>(device), 16 << 20);
  void* const first = pool.allocate(1024);
  void* const second = pool.allocate(2048);
  pool.deallocate(first);
  pool.deallocate(second);
  const MemoryPoolStats stats = pool.statistics();
  EXPECT_EQ(stats.peak_usage, 3072u);
  EXPECT_EQ(stats.current_usage, 0u);
  EXPECT_EQ(stats.num_device_allocations, 1u);
}

TEST(SeedExamples, ALoopOfScopesReusesItsMemory) {
  SimBackend device({.capacity_bytes = 256 << 20});
  SystemAllocator system(device);
  std::uint64_t after_first_round = 0;
  for (int epoch = 0; epoch < 100; ++epoch) {
    with_scope(system, [&] {
      Allocator* const allocator = current_allocator(device.device());
      const DataPtr activation = allocator->allocate(100'000);
      const DataPtr gradient = allocator->allocate(100'000);
      EXPECT_NE(activation.get(), gradient.get());
    });
    if (epoch == 0) after_first_round = system.stats().num_device_alloc;
  }
  EXPECT_GT(after_first_round, 0u);
  EXPECT_EQ(system.stats().num_device_alloc, after_first_round);
}

TEST(SeedExamples, UnifiedMemoryIsLimitedEmptiedAndCounted) {
  SimBackend device({.capacity_bytes = 1 << 30, .real_memory = true, .unified = true});
  UnifiedAllocator unified(device);
  unified.limits().watermarks().set_low_ratio(0.7);
  unified.limits().watermarks().set_high_ratio(0.8);  // 80 % of what the device recommends
  const Watermarks& marks = unified.limits().watermarks();
  EXPECT_LT(marks.high_limit_bytes(), marks.recommended_bytes());

  DataPtr block = unified.allocate(4'000'000);
  EXPECT_GE(unified.stats().allocated_bytes[0].current, 4'000'000);
  block.clear();
  EXPECT_EQ(unified.stats().allocated_bytes[0].current, 0);

  const std::uint64_t held = unified.reserved_bytes();
  unified.free_inactive_buffers();  // makes buffers available again, but gives nothing back
  EXPECT_EQ(unified.reserved_bytes(), held);
  unified.empty_cache();
  EXPECT_EQ(unified.reserved_bytes(), 0u);
}

}  // namespace
}  // namespace tenon
