#include "tenon/memory/standard_memory.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tenon/base/align.h"
#include "tenon/memory/host/cpu_allocator.h"

#ifdef TENON_HAS_MEMORY_RESOURCE

namespace tenon {
namespace {

std::int64_t blocks_in_use() {
  return get_default_cpu_allocator()->stats().allocation[0].current;
}

TEST(AllocatorResourceTest, AlignsAsAsked) {
  const std::int64_t before = blocks_in_use();
  AllocatorResource resource(*get_default_cpu_allocator());
  for (std::size_t alignment = 1; alignment <= 1 << 20; alignment *= 2)
    for (std::size_t size : {1, 100, 5000}) {
      void* const data = resource.allocate(size, alignment);
      EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(data), alignment)) << alignment;
      std::memset(data, 7, size);
      resource.deallocate(data, size, alignment);
    }
  const volatile std::size_t too_much = std::size_t{1} << 63;  // which a compiler must not know
  EXPECT_THROW(static_cast<void>(resource.allocate(8, too_much)), std::bad_alloc);
  EXPECT_EQ(blocks_in_use(), before);
}

// They ask for chunks that are aligned as the size of their blocks.
TEST(AllocatorResourceTest, IsTheUpstreamOfPoolResources) {
  const std::int64_t before = blocks_in_use();
  AllocatorResource resource(*get_default_cpu_allocator());
  std::pmr::unsynchronized_pool_resource alone(&resource);
  std::pmr::synchronized_pool_resource shared(&resource);
  for (std::pmr::memory_resource* pool : {static_cast<std::pmr::memory_resource*>(&alone),
                                          static_cast<std::pmr::memory_resource*>(&shared)})
    for (std::size_t size : {8, 64, 100, 256, 1000, 5000}) {
      void* const data = pool->allocate(size, 8);
      std::memset(data, 7, size);
      pool->deallocate(data, size, 8);
    }
  alone.release();
  shared.release();
  EXPECT_EQ(blocks_in_use(), before);
}

}  // namespace
}  // namespace tenon

#endif
