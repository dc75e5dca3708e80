#include "tenon/memory/placement/arena_allocator.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/placement/size_class_pool.h"
#include "tenon/memory/system/system_allocator.h"

namespace tenon {
namespace {

SimOptions device(std::uint64_t capacity = kGiB, bool real = false) {
  SimOptions options;
  options.capacity_bytes = capacity;
  options.real_memory = real;
  return options;
}

TEST(SizeClasses, RoundUpByLessThanAnEighthAndAreMonotone) {
  int last = 0;
  for (std::uint64_t size = 1; size < 100'000; ++size) {
    const int size_class = arena::BufferClasses::of(size);
    const std::uint64_t bytes = arena::BufferClasses::bytes(size_class);
    ASSERT_GE(bytes, size);
    ASSERT_LT(bytes - size, std::max<std::uint64_t>(256, size / 8 + 1));
    ASSERT_TRUE(size_class == last || size_class == last + 1) << size;
    ASSERT_EQ(arena::BufferClasses::of(bytes), size_class);
    last = size_class;
  }
  const std::uint64_t largest = std::uint64_t{1} << 47;
  EXPECT_EQ(arena::BufferClasses::bytes(arena::BufferClasses::of(largest)), largest);
}

// --- SizeClassPool: the pool that scopes grew out of.

TEST(SizeClassPool, ReusesABufferOfTheSameSizeAndReleasesByName) {
  SimBackend backend(device());
  SystemAllocator upstream(backend);
  SizeClassPool pool(upstream);
  DataPtr buffer = pool.acquire(1000);
  const void* address = buffer.get();
  pool.release(std::move(buffer));
  buffer = pool.acquire(900);
  EXPECT_EQ(buffer.get(), address);
  const SizeClassPoolStats stats = pool.stats();
  EXPECT_EQ(stats.created, 1u);
  EXPECT_EQ(stats.reused, 1u);
  EXPECT_EQ(stats.in_use, 1u);
  EXPECT_EQ(stats.in_use_bytes, 1024u);
  EXPECT_EQ(stats.free, 0u);
}

TEST(SizeClassPool, AThousandTemporariesInTurnNeedOneBuffer) {
  SimBackend backend(device());
  SystemAllocator upstream(backend);
  SizeClassPool pool(upstream);
  for (int i = 0; i < 1000; ++i) pool.acquire(4096).clear();
  EXPECT_EQ(pool.stats().created, 1u);
}

TEST(SizeClassPool, KeepsNoMoreOfASizeThanItsCap) {
  SimBackend backend(device());
  SystemAllocator upstream(backend);
  SizeClassPool pool(upstream);
  EXPECT_EQ(pool.max_per_size(), 100u);
  std::vector<DataPtr> buffers;
  for (int i = 0; i < 150; ++i) buffers.push_back(pool.acquire(4096));
  buffers.push_back(pool.acquire(64));
  buffers.clear();
  EXPECT_EQ(pool.stats().free, 101u) << "a hundred of one size, and the one of another";
  EXPECT_EQ(pool.stats().dropped, 50u);
  EXPECT_EQ(pool.stats().peak_in_use_bytes, 150 * 4096u + 256);
  EXPECT_EQ(upstream.stats().allocation[0].current, 101);
  pool.trim();
  EXPECT_EQ(upstream.stats().allocation[0].current, 0);
}

TEST(SizeClassPool, NamesMisuse) {
  SimBackend backend(device());
  SystemAllocator upstream(backend);
  SizeClassPool pool(upstream);
  SizeClassPool other(upstream);
  EXPECT_THROW(pool.release(other.acquire(10)), InvalidPointer);
  EXPECT_THROW(pool.release(upstream.allocate(10)), InvalidPointer);
  EXPECT_THROW(SizeClassPool(upstream, 0), InvalidArgument);
  EXPECT_THROW(pool.acquire(kMaxRequestBytes + 1), InvalidArgument);
  pool.release(pool.acquire(0));
  DataPtr buffer = pool.acquire(10);
  const DeleterFn deleter = buffer.get_deleter();
  void* context = buffer.release_context();
  deleter(context);
  EXPECT_THROW(deleter(context), InvalidPointer);
  EXPECT_EQ(pool.stats().in_use, 0u);
}

TEST(SizeClassPool, OffersItsFreeBuffersUpWhenTheUpstreamIsOutOfMemory) {
  SimBackend backend(device(10 * kMiB));
  SystemAllocator upstream(backend);
  SizeClassPool pool(upstream);
  pool.acquire(6 * kMiB).clear();
  EXPECT_TRUE(pool.acquire(8 * kMiB));
  EXPECT_THROW(pool.acquire(12 * kMiB), OutOfMemory);
}

TEST(SizeClassPool, KeepsBuffersApartByStream) {
  SimBackend backend(device());
  SystemAllocator upstream(backend);
  SizeClassPool pool(upstream);
  DataPtr first = pool.acquire(4096);
  const void* address = first.get();
  first.clear();
  const StreamGuard guard(backend.create_stream());
  EXPECT_NE(pool.acquire(4096).get(), address);
}

TEST(SizeClassPool, ServesThreads) {
  SimBackend backend(device());
  SystemAllocator upstream(backend);
  SizeClassPool pool(upstream);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 1; i < 3000; ++i) pool.acquire(static_cast<std::size_t>(i % 7) * 512 + 1);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.stats().in_use, 0u);
  EXPECT_LE(pool.stats().created, 4u * 7u);
}

// --- The policy.

TEST(ArenaAllocator, ReusesTheBufferFreedLastAndCallsTheDriverNoMore) {
  SimBackend backend(device());
  ArenaAllocator allocator(backend);
  DataPtr a = allocator.allocate(5000);
  DataPtr b = allocator.allocate(5000);
  const void* last = b.get();
  a.clear();
  b.clear();
  const std::uint64_t calls = backend.ledger().memory_calls();
  EXPECT_EQ(allocator.allocate(5120).get(), last);
  EXPECT_EQ(backend.ledger().memory_calls(), calls);
  allocator.empty_cache();
  EXPECT_EQ(backend.used_bytes(), 0u);
}

TEST(ArenaAllocator, GivesFreeBuffersBackBeforeItGivesUp) {
  SimBackend backend(device(10 * kMiB));
  ArenaAllocator allocator(backend);
  allocator.allocate(6 * kMiB).clear();
  const DataPtr block = allocator.allocate(8 * kMiB);
  EXPECT_EQ(allocator.stats().num_alloc_retries, 1);
  EXPECT_THROW(allocator.allocate(6 * kMiB), OutOfMemory);
  EXPECT_EQ(allocator.stats().num_ooms, 1);
  allocator.check_invariants();
}

TEST(ArenaAllocator, KeepsToItsLimit) {
  SimBackend backend(device());
  ArenaOptions options;
  options.limit_bytes = 10 * kMiB;
  ArenaAllocator allocator(backend, options);
  const DataPtr block = allocator.allocate(8 * kMiB);
  EXPECT_THROW(allocator.allocate(4 * kMiB), OutOfMemory);
  EXPECT_TRUE(allocator.allocate(2 * kMiB));
}

TEST(ArenaAllocator, ABufferUsedOnAnotherStreamMakesItsOwnWait) {
  SimOptions options = device();
  options.lag_ns = 1000;
  SimBackend backend(options);
  ArenaAllocator allocator(backend);
  const Stream other = backend.create_stream();
  DataPtr block = allocator.allocate(4096);
  allocator.record_stream(block, other);
  allocator.record_stream(block, Stream{backend.device(), 0});
  block.clear();
  EXPECT_EQ(backend.ledger().count(DriverCall::kStreamWait), 1u);
  allocator.allocate(4096).clear();
  EXPECT_EQ(backend.ledger().count(DriverCall::kStreamWait), 1u) << "once for each free";
  SystemAllocator foreign(backend);
  EXPECT_THROW(allocator.record_stream(foreign.allocate(1), other), InvalidPointer);
}

TEST(ArenaAllocator, WithoutAnEventTheBufferGoesBackToTheDriver) {
  SimBackend backend(device());
  ArenaAllocator allocator(backend);
  DataPtr block = allocator.allocate(4096);
  allocator.record_stream(block, backend.create_stream());
  backend.fail_call(DriverCall::kEventRecord, 1);
  block.clear();
  EXPECT_EQ(backend.used_bytes(), 0u);
  allocator.check_invariants();
}

}  // namespace
}  // namespace tenon
