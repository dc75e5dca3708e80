#include "tenon/memory/compat/mlx.h"
#include "tenon/memory/compat/mps.h"
#include "tenon/memory/unified/unified_allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#include "memory/unified_devices.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

using unified::Storage;

// --- Heaps and pools.

TEST(UnifiedAllocator, OpensHeapsByTheSizeOfTheRequest) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  const auto growth = [&](std::uint64_t size) {
    const std::uint64_t before = allocator.reserved_bytes();
    static_cast<void>(allocator.allocate(size).release_context());
    return allocator.reserved_bytes() - before;
  };
  EXPECT_EQ(growth(1), 8 * kMiB);
  EXPECT_EQ(growth(kMiB), 0u) << "the small heap has room";
  EXPECT_EQ(growth(kMiB + 1), 32 * kMiB);
  EXPECT_EQ(growth(9 * kMiB), 0u) << "the large heap has room";
  EXPECT_EQ(growth(40 * kMiB), kGiB);
  EXPECT_EQ(growth(600 * kMiB + 1), 0u) << "the huge heap has room";
  EXPECT_EQ(growth(700 * kMiB + 1), 702 * kMiB) << "dedicated, rounded to 2 MiB";
  allocator.check_invariants();
}

TEST(UnifiedAllocator, FallsBackToADedicatedHeapWhenAFullOneDoesNotFit) {
  SimBackend backend(fake_device(100 * kMiB));
  UnifiedAllocator allocator(backend);
  const DataPtr block = allocator.allocate(40 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 40 * kMiB);
}

TEST(UnifiedAllocator, RecyclesABufferWithItsIdentity) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  DataPtr first = allocator.allocate(40 * kMiB);
  const void* address = first.get();
  const std::uint64_t id = mps(allocator).get_buffer_id(address);
  first.clear();
  const DataPtr again = allocator.allocate(30 * kMiB);
  EXPECT_EQ(again.get(), address);
  EXPECT_EQ(mps(allocator).get_buffer_id(again.get()), id);
  EXPECT_EQ(mps(allocator).get_unaligned_buffer_size(again.get()), 30 * kMiB);
  EXPECT_EQ(mps(allocator).get_buffer_size(again.get()), 40 * kMiB);
}

TEST(UnifiedAllocator, AcceptsAFreeBufferUpTo32MiBLargerAndCutsLargerOnes) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  DataPtr big = allocator.allocate(600 * kMiB);
  const std::uint64_t id = mps(allocator).get_buffer_id(big.get());
  big.clear();
  const DataPtr near = allocator.allocate(568 * kMiB);
  EXPECT_EQ(mps(allocator).get_buffer_id(near.get()), id);
  EXPECT_EQ(mps(allocator).get_buffer_size(near.get()), 600 * kMiB);

  DataPtr other = allocator.allocate(600 * kMiB);
  const void* address = other.get();
  other.clear();
  const DataPtr far = allocator.allocate(567 * kMiB);
  EXPECT_EQ(far.get(), address);
  EXPECT_EQ(mps(allocator).get_buffer_size(far.get()), 567 * kMiB) << "cut to size";
  EXPECT_EQ(allocator.reserved_bytes(), 1200 * kMiB) << "without a new heap";
  allocator.check_invariants();
}

TEST(UnifiedAllocator, DoesNotSpendABufferOnARequestOfLessThanHalfUnlessTold) {
  SimBackend backend(fake_device());
  const auto second_buffer_bytes = [&](const UnifiedOptions& options) {
    UnifiedAllocator allocator(backend, options);
    const DataPtr full = allocator.allocate(700 * kMiB);
    allocator.allocate(30 * kMiB).clear();
    const DataPtr small = allocator.allocate(11 * kMiB);
    return mps(allocator).get_buffer_size(small.get());
  };
  EXPECT_EQ(second_buffer_bytes({}), 11 * kMiB);
  UnifiedOptions as_mps;
  as_mps.max_oversize_factor = 1e6;
  EXPECT_EQ(second_buffer_bytes(as_mps), 30 * kMiB);
  as_mps.max_oversize_factor = 0.5;
  EXPECT_THROW(UnifiedAllocator(backend, as_mps), InvalidArgument);
}

TEST(UnifiedAllocator, MergesCachedBuffersBeforeItGrows) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  std::vector<DataPtr> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocator.allocate(kMiB));
  blocks.clear();
  const DataPtr whole = allocator.allocate(512 * kKiB);
  for (int i = 0; i < 15; ++i) blocks.push_back(allocator.allocate(512 * kKiB));
  EXPECT_EQ(allocator.reserved_bytes(), 8 * kMiB * 2) << "eight buffers of 1 MiB are reused whole";
  blocks.clear();
  allocator.check_invariants();
}

TEST(UnifiedAllocator, ZeroBytesIsANullPointerThatKeepsItsDevice) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  const DataPtr nothing = allocator.allocate(0);
  EXPECT_EQ(nothing.get(), nullptr);
  EXPECT_EQ(nothing.device(), backend.device());
  EXPECT_EQ(allocator.reserved_bytes(), 0u);
  EXPECT_THROW(allocator.allocate(kMaxRequestBytes + 1), InvalidArgument);
}

TEST(UnifiedAllocator, AlignsTo16AndLargeBuffersTo256OrAsAsked) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  std::vector<DataPtr> blocks;
  for (std::size_t size : {1u, 17u, 100u, 4097u}) {
    blocks.push_back(allocator.allocate(size));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().get()) % 16, 0u);
  }
  EXPECT_EQ(mps(allocator).get_buffer_size(blocks[1].get()), 32u);
  for (const std::uint64_t extra : {1u, 3u, 255u}) {
    blocks.push_back(allocator.allocate(kMiB + extra));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().get()) % 256, 0u);
  }
  UnifiedOptions options;
  options.alignment = 256;
  UnifiedAllocator aligned(backend, options);
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(aligned.allocate(17));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().get()) % 256, 0u);
  }
  options.alignment = 8;
  EXPECT_THROW(UnifiedAllocator(backend, options), InvalidArgument);
  options.alignment = 48;
  EXPECT_THROW(UnifiedAllocator(backend, options), InvalidArgument);
  blocks.clear();
}

// --- Shared storage, metadata, scalars.

TEST(UnifiedAllocator, SharedBuffersAreTheHostsToo) {
  SimBackend backend(unified_device());
  UnifiedAllocator allocator(backend);
  ASSERT_TRUE(mps(allocator).is_shared_storage_supported());
  const DataPtr first = allocator.allocate(100);
  const DataPtr block = allocator.allocate(256);
  EXPECT_TRUE(mps(allocator).is_shared_buffer(block.get()));
  const SharedBufferPtr shared = mps(allocator).get_shared_buffer_ptr(block.get());
  ASSERT_NE(shared.host, nullptr);
  EXPECT_EQ(shared.retain_count, 1u);
  EXPECT_EQ(shared.offset_bytes, 112u) << "behind the first buffer";
  backend.fill(block.get(), 0x5a, 256, current_stream(backend.device()));
  EXPECT_EQ(static_cast<const unsigned char*>(shared.host)[255], 0x5a);

  const DataPtr own = allocator.allocate_buffer(256, current_stream(backend.device()),
                                                Storage::kPrivate);
  EXPECT_FALSE(mps(allocator).is_shared_buffer(own.get()));
  EXPECT_EQ(mps(allocator).get_shared_buffer_ptr(own.get()).host, nullptr);
}

TEST(UnifiedAllocator, WithoutUnifiedMemoryThereAreNoHostPointers) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  EXPECT_FALSE(mps(allocator).is_shared_storage_supported());
  const DataPtr block = allocator.allocate(256);
  EXPECT_FALSE(mps(allocator).is_shared_buffer(block.get()));
  EXPECT_EQ(mps(allocator).get_shared_buffer_ptr(block.get()).host, nullptr);
  EXPECT_THROW(allocator.allocate_buffer(1, Stream{backend.device(), 0}, Storage::kShared),
               InvalidArgument);
  UnifiedOptions options;
  options.storage = Storage::kShared;
  EXPECT_THROW(UnifiedAllocator(backend, options), InvalidArgument);
}

TEST(UnifiedAllocator, BuffersCarryAShapeUntilTheyAreFreed) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  DataPtr block = allocator.allocate(24);
  EXPECT_TRUE(mps(allocator).get_buffer_shape(block.get()).empty());
  const std::vector<std::int64_t> shape = {2, 3};
  allocator.set_buffer_shape(block.get(), shape);
  EXPECT_EQ(mps(allocator).get_buffer_shape(block.get()), shape);
  allocator.set_buffer_shape(block.get(), {});
  EXPECT_TRUE(mps(allocator).get_buffer_shape(block.get()).empty());
  allocator.set_buffer_shape(block.get(), shape);
  const void* address = block.get();
  block.clear();
  block = allocator.allocate(24);
  ASSERT_EQ(block.get(), address);
  EXPECT_TRUE(mps(allocator).get_buffer_shape(address).empty());
}

TEST(UnifiedAllocator, EveryBufferHasAnIdOfItsOwn) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  const DataPtr a = allocator.allocate(24);
  const DataPtr b = allocator.allocate(24);
  EXPECT_NE(mps(allocator).get_buffer_id(a.get()), mps(allocator).get_buffer_id(b.get()));
  EXPECT_EQ(mps(allocator).get_buffer_id(a.get()), mps(allocator).get_buffer_id(a.get()));
}

TEST(UnifiedAllocator, ScalarsCarryTheirValueAndArePooledApart) {
  SimBackend backend(unified_device());
  UnifiedAllocator allocator(backend);
  const double value = 2.5;
  DataPtr scalar = allocator.alloc_scalar_buffer_with_value(&value, sizeof value);
  double seen = 0;
  std::memcpy(&seen, mps(allocator).get_shared_buffer_ptr(scalar.get()).host, sizeof seen);
  EXPECT_EQ(seen, 2.5);
  EXPECT_EQ(mps(allocator).get_unaligned_buffer_size(scalar.get()), 8u);
  EXPECT_EQ(allocator.reserved_bytes(), 64 * kKiB);
  const void* address = scalar.get();
  scalar.clear();
  const DataPtr buffer = allocator.allocate(8);
  EXPECT_NE(buffer.get(), address) << "a buffer does not come from the scalars";
  const float other = 1;
  const DataPtr again = allocator.alloc_scalar_buffer_with_value(&other, sizeof other);
  EXPECT_EQ(again.get(), address);
  EXPECT_THROW(allocator.alloc_scalar_buffer_with_value(&value, 9), InvalidArgument);
  EXPECT_THROW(allocator.alloc_scalar_buffer_with_value(&value, 0), InvalidArgument);
  EXPECT_THROW(allocator.alloc_scalar_buffer_with_value(nullptr, 4), InvalidArgument);
}

TEST(UnifiedAllocator, ScalarsWorkWithoutMemoryToo) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  const int value = 7;
  const DataPtr scalar = allocator.alloc_scalar_buffer_with_value(&value, sizeof value);
  EXPECT_NE(scalar.get(), nullptr);
}

TEST(UnifiedAllocator, NamesMisuseAndStaysUsable) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  DataPtr block = allocator.allocate(100);
  void* address = block.get();
  int foreign = 0;
  EXPECT_THROW(allocator.deallocate(&foreign), InvalidPointer);
  EXPECT_THROW(mps(allocator).get_buffer_id(&foreign), InvalidPointer);
  EXPECT_THROW(mps(allocator).get_buffer_shape(static_cast<char*>(address) + 1), InvalidPointer);
  const void* both[] = {address, &foreign};
  EXPECT_THROW(allocator.record_events(both), InvalidPointer);
  EXPECT_EQ(mps(allocator).get_shared_buffer_ptr(address).retain_count, 1u)
      << "nothing was recorded";

  static_cast<void>(block.release_context());
  allocator.deallocate(address);
  try {
    allocator.deallocate(address);
    FAIL() << "a double free was not noticed";
  } catch (const InvalidPointer& error) {
    EXPECT_NE(std::string(error.what()).find("freed already"), std::string::npos) << error.what();
  }
  EXPECT_THROW(mps(allocator).get_unaligned_buffer_size(address), InvalidPointer);
  allocator.deallocate(nullptr);
  allocator.check_invariants();
  EXPECT_EQ(mlx(allocator).get_active_memory(), 0u);
  EXPECT_EQ(allocator.allocate(100).get(), address);
}

TEST(UnifiedAllocator, HandsOutAndTakesBackBarePointers) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  void* data = allocator.raw_allocate(100);
  EXPECT_EQ(mps(allocator).get_unaligned_buffer_size(data), 100u);
  allocator.raw_deallocate(data);
  EXPECT_THROW(allocator.raw_deallocate(data), InvalidPointer);
  EXPECT_EQ(allocator.raw_allocate(0), nullptr);
  allocator.raw_deallocate(nullptr);
}

// --- How much memory.

TEST(UnifiedAllocator, TellsItsMemoryAsMpsAndAsMlxDo) {
  SimOptions device = fake_device();
  device.recommended_working_set_bytes = kGiB;
  SimBackend backend(device);
  UnifiedAllocator allocator(backend);
  DataPtr a = allocator.allocate(3 * kMiB);
  DataPtr b = allocator.allocate(5 * kMiB);
  EXPECT_EQ(mps(allocator).get_total_allocated_memory(), 32 * kMiB);
  EXPECT_EQ(mps(allocator).get_current_allocated_memory(), 8 * kMiB);
  EXPECT_EQ(mps(allocator).get_driver_allocated_memory(), 32 * kMiB);
  EXPECT_EQ(mps(allocator).get_recommended_max_memory(), kGiB);
  b.clear();
  EXPECT_EQ(mlx(allocator).get_active_memory(), 3 * kMiB);
  EXPECT_EQ(mlx(allocator).get_peak_memory(), 8 * kMiB);
  EXPECT_EQ(mlx(allocator).get_cache_memory(), 29 * kMiB);
  mlx(allocator).reset_peak_memory();
  EXPECT_EQ(mlx(allocator).get_peak_memory(), 3 * kMiB);
  mlx(allocator).clear_cache();
  EXPECT_EQ(mlx(allocator).get_cache_memory(), 29 * kMiB) << "the heap is in use";
  a.clear();
  mlx(allocator).clear_cache();
  EXPECT_EQ(mlx(allocator).get_cache_memory(), 0u);
  EXPECT_EQ(backend.used_bytes(), 0u);
}

TEST(UnifiedAllocator, CacheLimitGivesIdleHeapsBackAtOnceAndAtFrees) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  DataPtr a = allocator.allocate(600 * kMiB);
  DataPtr b = allocator.allocate(700 * kMiB);
  DataPtr c = allocator.allocate(800 * kMiB);
  a.clear();
  b.clear();
  EXPECT_EQ(allocator.set_cache_limit(700 * kMiB), Watermarks::kNoLimit);
  EXPECT_EQ(mlx(allocator).get_cache_memory(), 700 * kMiB) << "the one idle longest went";
  c.clear();
  EXPECT_EQ(mlx(allocator).get_cache_memory(), 0u) << "800 MiB alone are too much";
  EXPECT_EQ(allocator.set_cache_limit(0), 700 * kMiB);
}

TEST(UnifiedAllocator, WiredMemoryIsNotTrimmed) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  EXPECT_EQ(mlx(allocator).set_wired_limit(700 * kMiB), 0u);
  EXPECT_THROW(mlx(allocator).set_wired_limit(65 * kGiB), InvalidArgument);
  allocator.set_cache_limit(0);
  DataPtr a = allocator.allocate(700 * kMiB);
  DataPtr b = allocator.allocate(600 * kMiB);
  a.clear();
  b.clear();
  EXPECT_EQ(allocator.reserved_bytes(), 1300 * kMiB) << "either heap would leave less than wired";
  EXPECT_EQ(mlx(allocator).set_wired_limit(600 * kMiB), 700 * kMiB);
  allocator.set_cache_limit(0);
  EXPECT_EQ(allocator.reserved_bytes(), 600 * kMiB);
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved_bytes(), 0u) << "who asks for everything gets everything";
}

TEST(UnifiedAllocator, MemoryLimitCollectsIdleHeapsButDoesNotFail) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  EXPECT_EQ(mlx(allocator).set_memory_limit(kGiB), 64 * kGiB) << "by default what the device has";
  allocator.allocate(600 * kMiB).clear();
  const DataPtr other = allocator.allocate(700 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 700 * kMiB);
  const DataPtr beyond = allocator.allocate(800 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 1500 * kMiB);
}

// --- Watermarks.

SimOptions small_working_set() {
  SimOptions options = fake_device();
  options.recommended_working_set_bytes = kGiB;
  return options;
}

TEST(UnifiedAllocator, ReportsItsWatermarks) {
  SimBackend backend(small_working_set());
  UnifiedAllocator allocator(backend);
  EXPECT_DOUBLE_EQ(mps(allocator).get_high_watermark_ratio(), 1.7);
  EXPECT_DOUBLE_EQ(mps(allocator).get_low_watermark_ratio(), 1.4);
  mps(allocator).set_high_watermark_ratio(1.0);
  mps(allocator).set_low_watermark_ratio(0.5);
  EXPECT_EQ(mps(allocator).get_high_watermark_limit(), kGiB);
  EXPECT_EQ(mps(allocator).get_low_watermark_limit(), 512 * kMiB);
  const DataPtr block = allocator.allocate(600 * kMiB);
  EXPECT_EQ(mps(allocator).get_low_watermark_value(), -88 * static_cast<std::int64_t>(kMiB));
  EXPECT_EQ(mps(allocator).get_high_watermark_value(), 424 * static_cast<std::int64_t>(kMiB));
  EXPECT_THROW(mps(allocator).set_high_watermark_ratio(3), InvalidArgument);
}

TEST(UnifiedAllocator, AboveTheLowWatermarkIdleHeapsGoBeforeItGrows) {
  SimBackend backend(small_working_set());
  UnifiedAllocator allocator(backend);
  mlx(allocator).set_memory_limit(Watermarks::kNoLimit);
  mps(allocator).set_low_watermark_ratio(1.0);
  allocator.allocate(600 * kMiB).clear();
  const DataPtr second = allocator.allocate(700 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 700 * kMiB);
  const DataPtr third = allocator.allocate(100 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 800 * kMiB) << "short of memory no heap of 1 GiB is opened";
}

TEST(UnifiedAllocator, AtTheHighWatermarkItEvictsAndThenGivesUp) {
  SimBackend backend(small_working_set());
  UnifiedAllocator allocator(backend);
  mps(allocator).set_low_watermark_ratio(0);
  mlx(allocator).set_memory_limit(Watermarks::kNoLimit);
  mps(allocator).set_high_watermark_ratio(1.5);
  DataPtr first = allocator.allocate(800 * kMiB);
  first.clear();
  const DataPtr second = allocator.allocate(900 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 900 * kMiB) << "the idle heap was evicted";
  EXPECT_EQ(allocator.stats().num_alloc_retries, 1);
  try {
    allocator.allocate(700 * kMiB);
    FAIL() << "1600 MiB exceed the high watermark";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.details().limit_bytes, 1536 * kMiB);
    EXPECT_EQ(error.details().requested_bytes, 700 * kMiB);
    EXPECT_NE(std::string(error.what()).find("high watermark"), std::string::npos) << error.what();
  }
  EXPECT_EQ(allocator.stats().num_ooms, 1);
  mps(allocator).set_high_watermark_ratio(0);
  EXPECT_TRUE(allocator.allocate(700 * kMiB)) << "without the mark the device has room";
  allocator.check_invariants();
}

TEST(UnifiedAllocator, AsksPressureCallbacksBeforeItGivesUp) {
  SimBackend backend(fake_device(kGiB));
  UnifiedAllocator allocator(backend);
  DataPtr cached_elsewhere = allocator.allocate(700 * kMiB);
  std::uint64_t wanted = 0;
  allocator.pressure_callbacks().add([](std::uint64_t) -> std::uint64_t {
    throw std::runtime_error("a broken cache");
  });
  allocator.pressure_callbacks().add([&](std::uint64_t bytes) {
    wanted = bytes;
    cached_elsewhere.clear();
    return 700 * kMiB;
  });
  const DataPtr block = allocator.allocate(600 * kMiB);
  EXPECT_EQ(wanted, 600 * kMiB);
  EXPECT_EQ(allocator.pressure_callbacks().errors(), 1u);
  EXPECT_THROW(allocator.allocate(600 * kMiB), OutOfMemory);
  EXPECT_EQ(mlx(allocator).get_active_memory(), 600 * kMiB);
  allocator.check_invariants();
}

TEST(UnifiedAllocator, ThePolicyLimitIsHard) {
  SimBackend backend(fake_device());
  PolicyOptions options;
  options.limit_bytes = 100 * kMiB;
  const auto allocator = make_policy("unified", backend, options);
  EXPECT_EQ(allocator->name(), "unified");
  const DataPtr block = allocator->allocate(60 * kMiB);
  EXPECT_THROW(allocator->allocate(60 * kMiB), OutOfMemory);
  EXPECT_TRUE(allocator->allocate(39 * kMiB));
  EXPECT_LE(allocator->reserved_bytes(), 100 * kMiB);
}

// --- Callbacks and observers.

class CountingCallback : public UnifiedAllocatorCallback {
 public:
  void on_buffer_event(void* data, EventType event) override {
    if (!armed) return;
    ++counts[event];
    last = data;
    if (throws) throw std::runtime_error("a broken callback");
    if (event == EventType::kAllocationFailed && rescue != nullptr) rescue->clear();
  }
  static inline bool armed = false;
  static inline bool throws = false;
  static inline void* last = nullptr;
  static inline DataPtr* rescue = nullptr;
  static inline std::map<EventType, int> counts;
};
TENON_REGISTER_UNIFIED_CALLBACK(counting_callback, CountingCallback);

class UnifiedCallbacks : public testing::Test {
 protected:
  void SetUp() override {
    CountingCallback::counts.clear();
    CountingCallback::armed = true;
    CountingCallback::throws = false;
    CountingCallback::rescue = nullptr;
  }
  void TearDown() override { CountingCallback::armed = false; }
  using Event = UnifiedAllocatorCallback::EventType;
};

TEST_F(UnifiedCallbacks, HearOfEveryChangeOfABuffer) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  auto& counts = CountingCallback::counts;
  DataPtr block = allocator.allocate(600 * kMiB);
  EXPECT_EQ(counts[Event::kAllocated], 1);
  EXPECT_EQ(CountingCallback::last, block.get());
  block.clear();
  EXPECT_EQ(counts[Event::kFreed], 1);
  block = allocator.allocate(600 * kMiB);
  EXPECT_EQ(counts[Event::kRecycled], 1);
  block.clear();
  allocator.empty_cache();
  EXPECT_EQ(counts[Event::kReleased], 1);
  EXPECT_THROW(allocator.allocate(65 * kGiB), OutOfMemory);
  EXPECT_EQ(counts[Event::kAllocationFailed], 1);
}

TEST_F(UnifiedCallbacks, ThatThrowAreSwallowedAndCounted) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  const std::uint64_t before = UnifiedCallbackRegistry::instance().errors();
  CountingCallback::throws = true;
  allocator.allocate(100).clear();
  EXPECT_EQ(UnifiedCallbackRegistry::instance().errors(), before + 2);
}

TEST_F(UnifiedCallbacks, MayLetMemoryGoWhenAnAllocationFails) {
  SimBackend backend(fake_device(kGiB));
  UnifiedAllocator allocator(backend);
  DataPtr held = allocator.allocate(700 * kMiB);
  CountingCallback::rescue = &held;
  EXPECT_TRUE(allocator.allocate(600 * kMiB));
  EXPECT_EQ(held.get(), nullptr);
}

TEST_F(UnifiedCallbacks, AreListedByNameAndNotTwice) {
  UnifiedCallbackRegistry& registry = UnifiedCallbackRegistry::instance();
  EXPECT_EQ(registry.names(), std::vector<std::string>{"counting_callback"});
  const auto make = [] { return std::make_unique<CountingCallback>(); };
  EXPECT_THROW(registry.add("counting_callback", make), InvalidArgument);
  registry.add("another", make);
  EXPECT_EQ(registry.names().size(), 2u);
  registry.remove("another");
  EXPECT_EQ(registry.names().size(), 1u);
}

class EventLog : public Observer {
 public:
  void on_memory_event(const MemoryEventInfo& info) override { events.push_back(info.event); }
  std::vector<MemoryEvent> events;
};

TEST(UnifiedAllocator, ReportsTheSameEventsToObservers) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  EventLog log;
  const ObserverGuard guard(allocator.observers(), log);
  allocator.allocate(600 * kMiB).clear();
  allocator.allocate(600 * kMiB).clear();
  allocator.empty_cache();
  EXPECT_THROW(allocator.allocate(65 * kGiB), OutOfMemory);
  using enum MemoryEvent;
  EXPECT_EQ(log.events, (std::vector<MemoryEvent>{kMapped, kAllocated, kFreed, kRecycled, kFreed,
                                                  kReleased, kAllocationFailed}));
}

}  // namespace
}  // namespace tenon
