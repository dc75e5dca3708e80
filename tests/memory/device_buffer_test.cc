#include "tenon/memory/device_buffer.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "support/cuda_stand_in.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/compat/rmm.h"
#include "tenon/memory/gpu/caching_allocator.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/standard_memory.h"

namespace tenon {
namespace {

// Streams are late and memory is real, so bytes that are read too early are found.
class DeviceBuffers : public ::testing::Test {
 protected:
  std::string read(const DeviceBuffer& buffer) {
    std::string bytes(buffer.size(), '?');
    backend_->copy(bytes.data(), buffer.data(), buffer.size(), buffer.stream());
    backend_->synchronize(buffer.stream());
    return bytes;
  }
  testing::StandIn machine_{"lazy=1,seed=11"};
  const std::unique_ptr<CudaBackend> backend_ = machine_.backend();
  CachingAllocator allocator_{*backend_};
  const Stream stream_{backend_->device(), 0};
};

TEST_F(DeviceBuffers, GrowAndKeepTheirBytesInStreamOrder) {
  const std::string text = "some bytes";
  DeviceBuffer buffer(text.data(), text.size(), stream_, allocator_);
  EXPECT_EQ(buffer.ssize(), 10);
  buffer.reserve(1 << 20, stream_);
  EXPECT_EQ(buffer.capacity(), std::size_t{1} << 20);
  const void* const address = buffer.data();
  buffer.resize(1000, stream_);
  EXPECT_EQ(buffer.data(), address) << "within the capacity";
  EXPECT_EQ(read(buffer).substr(0, 10), text);
  buffer.resize(4, stream_);
  buffer.shrink_to_fit(stream_);
  EXPECT_EQ(buffer.capacity(), 4u);
  EXPECT_EQ(read(buffer), "some");
  const DeviceBuffer copy(buffer, stream_);
  EXPECT_NE(copy.data(), buffer.data());
  EXPECT_EQ(read(copy), "some");
  DeviceBuffer moved = std::move(buffer);
  EXPECT_TRUE(buffer.is_empty());
  EXPECT_EQ(read(moved), "some");
}

// The first stream may not have the memory again while the other one still writes to it.
TEST(DeviceBufferStreams, GoInTheOrderOfTheirLastStream) {
  for (int seed = 1; seed <= 20; ++seed) {
    const testing::StandIn machine("lazy=1,seed=" + std::to_string(seed));
    const auto backend = machine.backend();
    CachingAllocator allocator(*backend);
    const Stream stream{backend->device(), 0}, other = backend->create_stream();
    {
      DeviceBuffer buffer(4096, other, allocator);
      seed % 2 == 0 ? buffer.set_stream(stream) : buffer.reserve(10, stream);
      backend->fill(buffer.data(), 9, 4096, stream);
    }
    const DeviceBuffer next(4096, other, allocator);
    backend->fill(const_cast<void*>(next.data()), 5, 4096, other);
    std::string bytes(4096, '?');
    backend->synchronize();
    backend->copy(bytes.data(), next.data(), 4096, other);
    backend->synchronize();
    EXPECT_EQ(bytes, std::string(4096, 5)) << "seed " << seed;
    backend->destroy_stream(other);
  }
}

TEST_F(DeviceBuffers, FailuresLeaveThemAsTheyWere) {
  DeviceBuffer buffer("abc", 3, stream_, allocator_);
  EXPECT_THROW(buffer.resize(std::size_t{1} << 45, stream_), OutOfMemory);
  EXPECT_EQ(buffer.size(), 3u);
  EXPECT_EQ(read(buffer), "abc");
}

TEST_F(DeviceBuffers, VectorsOfElements) {
  DeviceUvector<int> numbers(100, stream_, allocator_);
  for (const std::size_t i : {0, 50, 99}) numbers.set_element(i, static_cast<int>(i) * 3, stream_);
  numbers.resize(200, stream_);
  EXPECT_EQ(numbers.size(), 200u);
  EXPECT_EQ(numbers.element(50, stream_), 150);
  EXPECT_EQ(numbers.front_element(stream_), 0);
  numbers.set_element(1, 7, Stream{});  // the device's default stream
  EXPECT_EQ(numbers.element(1, Stream{}), 7);
  numbers.resize(100, stream_);
  EXPECT_EQ(numbers.back_element(stream_), 297);
  EXPECT_EQ(numbers.element_ptr(1) - numbers.data(), 1);
  EXPECT_THROW(numbers.resize(~std::size_t{0} / 2, stream_), InvalidArgument);
  const DeviceBuffer bytes = numbers.release();
  EXPECT_EQ(bytes.size(), 400u);
  EXPECT_TRUE(numbers.is_empty());
  const device_uvector<float> other(8, stream_, allocator_);
  EXPECT_EQ(other.size(), 8u);
}

// --- The standard library's containers.

TEST(StandardMemory, ContainersLiveInAnAllocator) {
  SimBackend device({.capacity_bytes = 64 << 20, .real_memory = true, .unified = true});
  CachingAllocator caching(device);
  {
    std::vector<int, StandardAllocator<int>> numbers{StandardAllocator<int>(caching)};
    numbers.resize(100'000);
    std::iota(numbers.begin(), numbers.end(), 0);
    EXPECT_EQ(caching.stats().allocation[0].current, 1);
    const auto copy = numbers;
    EXPECT_EQ(copy.get_allocator(), numbers.get_allocator());
    EXPECT_FALSE(copy.get_allocator() == StandardAllocator<int>());
    EXPECT_EQ(copy[99'999], 99'999);
  }
  EXPECT_EQ(caching.stats().allocation[0].current, 0);
}

#ifdef TENON_HAS_MEMORY_RESOURCE
TEST(StandardMemory, AResourceIsAnAllocator) {
  std::pmr::monotonic_buffer_resource arena;
  ResourceAllocator allocator(arena);
  const DataPtr block = allocator.allocate(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.get()) % allocator.alignment(), 0u);
  void* const raw = allocator.raw_allocate(10);
  allocator.raw_deallocate(raw);
  EXPECT_THROW(allocator.raw_deallocate(raw), InvalidPointer);
  EXPECT_EQ(allocator.allocate(0), nullptr);
  ResourceAllocator none(*std::pmr::null_memory_resource());
  EXPECT_THROW(none.allocate(1), OutOfMemory);
  // And back: a container over an allocator over a resource.
  AllocatorResource resource(allocator);
  std::pmr::vector<double> numbers(100, 1.5, &resource);
  EXPECT_EQ(numbers[99], 1.5);
}
#endif

TEST(RmmNames, MakeAPoolWithinALimitAndCountIt) {
  SimBackend device({.capacity_bytes = 1 << 30});
  rmm::mr::pool_memory_resource pool(device);
  rmm::mr::limiting_resource_adaptor limited(pool, 1 << 20);
  rmm::mr::statistics_resource_adaptor counted(limited);
  rmm::mr::device_memory_resource& resource = counted;
  {
    const rmm::cuda_stream_view stream{device.device(), 0};
    const rmm::device_buffer buffer(1000, stream, resource);
    const rmm::device_uvector<float> vector(100, stream, resource);
    EXPECT_EQ(counted.passed().bytes.current, 1400);
    EXPECT_THROW(rmm::device_buffer(1 << 20, stream, resource), rmm::out_of_memory);
  }
  EXPECT_EQ(counted.passed().bytes.current, 0);
}

}  // namespace
}  // namespace tenon
