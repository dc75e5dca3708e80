#include "tenon/memory/compat/mem_pool.h"

#include <gtest/gtest.h>

#include "tenon/base/byte_size.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/gpu/caching_allocator.h"

namespace tenon {
namespace {

TEST(MemPoolTest, ServesItsThreadFromMemoryOfItsOwn) {
  SimBackend backend({.capacity_bytes = kGiB});
  CachingAllocator caching(backend);
  set_device_allocator(backend.device(), &caching);
  MemPool pool(backend);
  MemPool other(backend);
  EXPECT_NE(pool.id(), other.id());
  EXPECT_EQ(pool.use_count(), 1);
  DataPtr inside;
  {
    const UseMemPool use(pool);
    EXPECT_EQ(pool.use_count(), 2);
    EXPECT_EQ(current_allocator(backend.device()), &pool.allocator());
    inside = current_allocator(backend.device())->allocate(30 * kMiB);
    {
      const UseMemPool nested(other);
      EXPECT_EQ(current_allocator(backend.device()), &other.allocator());
    }
    EXPECT_EQ(current_allocator(backend.device()), &pool.allocator());
  }
  EXPECT_EQ(pool.use_count(), 1);
  EXPECT_EQ(current_allocator(backend.device()), &caching);
  EXPECT_EQ(caching.reserved_bytes(), 0u);
  ASSERT_EQ(pool.snapshot().size(), 1u);
  EXPECT_EQ(pool.snapshot()[0].blocks[0].requested_bytes, 30 * kMiB);
  inside.clear();
  EXPECT_EQ(backend.used_bytes(), 30 * kMiB) << "kept for the pool's next request";
  pool.release();
  EXPECT_EQ(backend.used_bytes(), 0u);
  unset_device_allocator(backend.device());
}

TEST(MemPoolTest, TakesAnAllocatorOfTheCallers) {
  SimBackend backend({.capacity_bytes = kGiB});
  CachingAllocator caching(backend);
  MemPool pool(caching);
  EXPECT_EQ(&pool.allocator(), &caching);
  EXPECT_EQ(pool.device(), backend.device());
}

}  // namespace
}  // namespace tenon
