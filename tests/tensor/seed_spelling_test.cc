// The documents' examples as they are written, against one header each.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>

#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/compat/gradflow.h"
#include "tenon/memory/compat/paddle.h"
#include "tenon/memory/compat/with_scope_names.h"
#include "tenon/tensor/compat/c10.h"
#include "tenon/tensor/factories.h"

// --- memory-model.md

namespace memory_model {

using std::size_t;

// Simple logging allocator that wraps another allocator
class LoggingAllocator : public c10::Allocator {
 private:
  c10::Allocator* base_allocator_;

 public:
  explicit LoggingAllocator(c10::Allocator* base) : base_allocator_(base) {}

  c10::DataPtr allocate(size_t n) override {
    std::cout << "Allocating " << n << " bytes" << std::endl;
    auto data_ptr = base_allocator_->allocate(n);
    std::cout << "Allocated at " << data_ptr.get() << std::endl;
    return data_ptr;
  }

  c10::DeleterFnPtr raw_deleter() const override { return base_allocator_->raw_deleter(); }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    std::cout << "Copying " << count << " bytes" << std::endl;
    base_allocator_->copy_data(dest, src, count);
  }
};

class DefaultCPUAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t n) override {
    using c10::DataPtr, c10::Device, c10::DeviceType;
    void* ptr = nullptr;
    if (n > 0) {
      ptr = c10::alloc_cpu(n);  // Aligned malloc
      if (!ptr) {
        throw std::bad_alloc();
      }
    }
    return DataPtr(ptr, ptr, &c10::free_cpu, Device(DeviceType::CPU));
  }

  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);  // Uses memcpy
  }
};

TEST(SeedSpellingTest, MemoryModelDefaultAllocator) {
  DefaultCPUAllocator allocator;
  const c10::DataPtr data = allocator.allocate(4);
  EXPECT_TRUE(allocator.is_simple_data_ptr(data));
  std::memcpy(data.get(), "abc", 4);
  const c10::DataPtr copy = allocator.clone(data.get(), 4);
  EXPECT_STREQ(static_cast<const char*>(copy.get()), "abc");
  allocator.raw_deallocate(allocator.raw_allocate(100));
  EXPECT_EQ(allocator.allocate(0).get(), nullptr);
}

TEST(SeedSpellingTest, MemoryModelExample1) {
  std::ostringstream log;
  std::streambuf* const before = std::cout.rdbuf(log.rdbuf());
  // A tensor first: it changes nothing.
  const tenon::Tensor tensor = tenon::ones({4});
  auto cpu_alloc = c10::GetCPUAllocator();
  LoggingAllocator logging_alloc(cpu_alloc);
  auto data_ptr = logging_alloc.allocate(1024);
  logging_alloc.raw_deallocate(logging_alloc.raw_allocate(1024));
  std::cout.rdbuf(before);
  EXPECT_EQ(log.str().substr(0, 34), "Allocating 1024 bytes\nAllocated at");
}

TEST(SeedSpellingTest, MemoryModelExample2) {
  auto allocator = c10::GetCPUAllocator();
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t{},
                                                       c10::SymInt(4096),  // 4 KB
                                                       allocator,
                                                       /*resizable=*/true);
  void* ptr = storage->mutable_data();
  std::memset(ptr, 0, 4096);
  auto storage2 = storage;  // refcount = 2
  EXPECT_EQ(storage.use_count(), 2u);
  storage.reset();  // refcount = 1
  EXPECT_EQ(storage2.use_count(), 1u);
  storage2.reset();  // refcount = 0 -> memory freed
}

TEST(SeedSpellingTest, MemoryModelStorageImplIsAType) {
  c10::intrusive_ptr<c10::StorageImpl> kept;
  {
    const tenon::Tensor tensor = tenon::ones({4});
    c10::Storage storage = tensor.storage();
    c10::StorageImpl* impl = storage.impl();
    EXPECT_EQ(impl->sym_nbytes(), c10::SymInt(16));
    kept = storage.impl_ptr();
  }
  EXPECT_EQ(kept.use_count(), 1u);
  const c10::weak_intrusive_ptr<c10::StorageImpl> weak(kept);
  kept.reset();
  EXPECT_TRUE(weak.expired());
  const float values[] = {1, 2};
  const c10::ArrayRef<float> list(values);
  EXPECT_EQ(list.size(), 2u);
}

TEST(SeedSpellingTest, MemoryModelDevices) {
  using c10::Device, c10::DeviceType;
  const c10::DataPtr memory(nullptr, Device(DeviceType::CUDA, 1));
  const Device device = memory.device();
  EXPECT_EQ(device.type(), DeviceType::CUDA);
  EXPECT_EQ(device.index(), 1);
  EXPECT_EQ(device.str(), "cuda:1");
  EXPECT_EQ(device, Device("cuda:1"));
  EXPECT_TRUE(memory.device() == device && device != Device(DeviceType::CPU));
  EXPECT_TRUE(device.is_cuda() && !device.is_cpu() && !device.is_mps() && !device.is_meta());
  EXPECT_THROW(Device("warp:1"), std::invalid_argument);
}

int freed = 0;
void cpu_deleter(void* ptr) {
  ++freed;
  free(ptr);
}

TEST(SeedSpellingTest, MemoryModelDataPtr) {
  using c10::DataPtr, c10::Device, c10::DeviceType;
  {
    void* raw_mem = malloc(1024);
    DataPtr data_ptr(raw_mem, nullptr, &cpu_deleter, Device(DeviceType::CPU));
    EXPECT_EQ(data_ptr.get_deleter(), &cpu_deleter);
  }
  EXPECT_EQ(freed, 1);
}

c10::Allocator* allocator_func() { return c10::GetDefaultCPUAllocator(); }
REGISTER_ALLOCATOR(c10::DeviceType::XLA, allocator_func());

TEST(SeedSpellingTest, MemoryModelRegistry) {
  EXPECT_EQ(c10::GetAllocator(c10::DeviceType::XLA), c10::GetDefaultCPUAllocator());
  EXPECT_EQ(c10::GetAllocator(c10::DeviceType::CPU), c10::GetCPUAllocator());
  c10::SetCPUAllocator(c10::GetDefaultMobileCPUAllocator(), 1);
  EXPECT_EQ(c10::GetCPUAllocator(), c10::GetDefaultMobileCPUAllocator());
  tenon::unset_allocator(tenon::DeviceType::kCpu);
  EXPECT_EQ(c10::GetCPUAllocator(), c10::GetDefaultCPUAllocator());
}

}  // namespace memory_model

// --- memory-pool.md: the design's example and its tests' fixture.

namespace memory_pool {

using namespace gradflow;

class MemoryPoolSpelling : public ::testing::Test {
 protected:
  void SetUp() override {
    allocator_ = getDefaultCpuAllocator();
    pool_ = std::make_unique<MemoryPool>(allocator_, 1024 * 1024);  // 1 MB
  }

  std::shared_ptr<DeviceAllocator> allocator_;
  std::unique_ptr<MemoryPool> pool_;
};

TEST_F(MemoryPoolSpelling, Statistics) {
  auto stats_before = pool_->getStatistics();

  void* ptr = pool_->allocate(1024);
  auto stats_after = pool_->getStatistics();

  EXPECT_GT(stats_after.total_allocated, stats_before.total_allocated);
  EXPECT_EQ(stats_after.num_allocations, stats_before.num_allocations + 1);

  pool_->deallocate(ptr);
  auto stats_final = pool_->getStatistics();

  EXPECT_EQ(stats_final.num_deallocations, 1);
  EXPECT_EQ(stats_final.current_usage, 0);
  EXPECT_EQ(MemoryPool::kDefaultPoolSize, 256u * 1024 * 1024);
  EXPECT_EQ(MemoryPool::kMinBlockSize, 256u);
}

TEST_F(MemoryPoolSpelling, InvalidDeallocation) {
  int dummy = 0;
  EXPECT_THROW(pool_->deallocate(&dummy), std::runtime_error);
  EXPECT_THROW(MemoryPool(nullptr), std::invalid_argument);
}

// An upstream of one's own, as the document's pool uses it.
class Counted final : public DeviceAllocator {
 public:
  void* allocate(std::size_t size) override {
    if (size > (1 << 20)) return nullptr;
    ++live;
    return std::aligned_alloc(alignment(), size);
  }
  void deallocate(void* ptr) override {
    --live;
    std::free(ptr);
  }
  std::size_t alignment() const override { return 256; }
  int live = 0;
};

TEST_F(MemoryPoolSpelling, UpstreamOfOnesOwn) {
  const auto upstream = std::make_shared<Counted>();
  {
    MemoryPool pool(upstream, 1 << 16);
    static_cast<void>(pool.allocate(1));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool.allocate(1)) % 256, 0u);
    static_cast<void>(pool.allocate(1 << 18));
    EXPECT_EQ(upstream->live, 2);
    EXPECT_THROW(pool.allocate(2 << 20), std::bad_alloc);
  }
  EXPECT_EQ(upstream->live, 0);
  void* block = allocator_->allocate(100);
  std::memset(block, 1, 100);
  allocator_->deallocate(block);
}

}  // namespace memory_pool

// --- memory-model.md, section 5: unified memory

namespace unified_memory {

struct Heard final : at::mps::IMpsAllocatorCallback {
  void executeMPSAllocatorCallback(void*, EventType event) override {
    freed += event == EventType::FREED ? 1 : 0;
  }
  static inline int freed = 0;
};
REGISTER_MPS_ALLOCATOR_CALLBACK(seed_spelling, Heard);

TEST(SeedSpellingTest, MemoryModelUnifiedMemory) {
  tenon::SimOptions options;
  options.capacity_bytes = 1 << 30;
  options.recommended_working_set_bytes = 1 << 29;
  options.unified = options.real_memory = true;
  tenon::SimBackend device(options);
  tenon::UnifiedAllocator unified(device);
  const at::mps::IMPSAllocator allocator(unified);
  {
    const c10::DataPtr buffer = allocator.allocate(1000);
    const void* const ptr = buffer.get();
    EXPECT_EQ(allocator.getUnalignedBufferSize(ptr), 1000);
    allocator.setBufferShape(ptr, c10::IntArrayRef({10, 25}));
    const c10::IntArrayRef shape = allocator.getBufferShape(ptr);
    EXPECT_EQ(shape, c10::IntArrayRef({10, 25}));
    EXPECT_NE(allocator.getBufferId(ptr), 0u);
    EXPECT_TRUE(allocator.isSharedStorageSupported() && allocator.isSharedBuffer(ptr));
    EXPECT_EQ(allocator.getSharedBufferPtr(ptr), std::pair(ptr, 1u));
    const void* const buffers[] = {ptr};
    EXPECT_TRUE(allocator.recordEvents(buffers));
    EXPECT_TRUE(allocator.waitForEvents(buffers));
    float value = 2.5f;
    const c10::DataPtr scalar = allocator.allocScalarBufferWithValue(&value, sizeof value);
    EXPECT_EQ(*static_cast<const float*>(scalar.get()), 2.5f);
    EXPECT_GE(allocator.getTotalAllocatedMemory(), allocator.getCurrentAllocatedMemory());
    EXPECT_GT(allocator.getCurrentAllocatedMemory(), 1000u);
    EXPECT_EQ(allocator.getDriverAllocatedMemory(), allocator.getTotalAllocatedMemory());
  }
  EXPECT_EQ(Heard::freed, 2);
  allocator.freeInactiveBuffers();
  allocator.emptyCache();
  EXPECT_EQ(allocator.getTotalAllocatedMemory() + allocator.getDriverAllocatedMemory(), 0u);
  EXPECT_EQ(allocator.getRecommendedMaxMemory(), std::size_t{1} << 29);
  allocator.setHighWatermarkRatio(1.0);
  allocator.setLowWatermarkRatio(0.5);
  EXPECT_EQ(allocator.getHighWatermarkLimit(), std::size_t{1} << 29);
  EXPECT_EQ(allocator.getLowWatermarkLimit(), std::size_t{1} << 28);
  EXPECT_EQ(allocator.getLowWatermarkValue(), 1 << 28);
}

}  // namespace unified_memory

// --- place-buddy.md

namespace place_buddy {

using namespace tenon::paddle;

TEST(SeedSpellingTest, PlacesExample) {
  void* p = memory::Alloc(platform::CPUPlace(), 4 * 1024);
  memory::Free(platform::CPUPlace(), p);

  tenon::SimOptions device;
  device.capacity_bytes = 64 << 20;
  tenon::set_gpu_backend(platform::GPUPlace(9), std::make_shared<tenon::SimBackend>(device));
  auto pl = platform::GPUPlace(9);
  p = memory::Alloc(pl, 4 * 1024);
  EXPECT_EQ(memory::Used(pl), 4096u);
  memory::Free(pl, p);
  p = GetGPUBuddyAllocator(9)->Alloc(100);
  EXPECT_EQ(GetGPUBuddyAllocator(9)->Used(), memory::Used(pl));
  EXPECT_GE(memory::Used(pl), 100u);
  GetGPUBuddyAllocator(9)->Free(p);
  EXPECT_EQ(GetGPUBuddyAllocator(9)->allocator().stats().allocation[0].current, 0);
  EXPECT_THROW(GetGPUBuddyAllocator(64), std::invalid_argument);
  p = GetCPUBuddyAllocator()->Alloc(100);
  EXPECT_EQ(GetCPUBuddyAllocator()->Used(), memory::Used(platform::CPUPlace()));
  memory::Free(platform::CPUPlace(), p);
  EXPECT_GE(platform::NumGPUs(), 1);
  tenon::set_gpu_backend(platform::GPUPlace(9), nullptr);
}

}  // namespace place_buddy

// --- scope-pooling.md

namespace scope_pooling {

TEST(SeedSpellingTest, ScopeExample) {
  int rounds = 0;
  for (int epoch = 0; epoch < 100; epoch++) {
    tenon::withScope([&] {
      const tenon::Tensor loss = tenon::ones({100});
      ++rounds;
    });
  }
  EXPECT_EQ(rounds, 100);
  EXPECT_EQ(tenon::withScope([] { return tenon::ones({3}); }).numel(), 3) << "what is returned";
}

}  // namespace scope_pooling
