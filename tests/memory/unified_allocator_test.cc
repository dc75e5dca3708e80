#include "tenon/memory/compat/mlx.h"
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

TEST(UnifiedAllocator, FallsBackToADedicatedHeapWhenAFullOneDoesNotFit) {
  SimBackend backend(fake_device(100 * kMiB));
  UnifiedAllocator allocator(backend);
  const DataPtr block = allocator.allocate(40 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 40 * kMiB);
}

// --- Shared storage, metadata, scalars.

TEST(UnifiedAllocator, WithoutUnifiedMemoryThereAreNoHostPointers) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  EXPECT_FALSE(allocator.supports_shared_storage());
  const DataPtr block = allocator.allocate(256);
  EXPECT_EQ(allocator.describe(block.get()).storage, unified::Storage::kPrivate);
  EXPECT_EQ(allocator.describe(block.get()).host, nullptr);
  EXPECT_THROW(allocator.allocate_buffer(1, Stream{backend.device(), 0}, Storage::kShared),
               InvalidArgument);
  UnifiedOptions options;
  options.storage = Storage::kShared;
  EXPECT_THROW(UnifiedAllocator(backend, options), InvalidArgument);
}

TEST(UnifiedAllocator, ScalarsWorkWithoutMemoryToo) {
  SimBackend backend(fake_device());
  UnifiedAllocator allocator(backend);
  const int value = 7;
  const DataPtr scalar = allocator.alloc_scalar_buffer_with_value(&value, sizeof value);
  EXPECT_NE(scalar.get(), nullptr);
}

// --- How much memory.

TEST(UnifiedAllocator, TellsItsMemoryAsMpsAndAsMlxDo) {
  SimOptions device = fake_device();
  device.recommended_working_set_bytes = kGiB;
  SimBackend backend(device);
  UnifiedAllocator allocator(backend);
  DataPtr a = allocator.allocate(3 * kMiB);
  DataPtr b = allocator.allocate(5 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 32 * kMiB);
  EXPECT_EQ(mlx(allocator).get_active_memory(), 8 * kMiB);
  EXPECT_EQ(allocator.limits().watermarks().recommended_bytes(), kGiB);
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

// --- Watermarks.

SimOptions small_working_set() {
  SimOptions options = fake_device();
  options.recommended_working_set_bytes = kGiB;
  return options;
}

TEST(UnifiedAllocator, ReportsItsWatermarks) {
  SimBackend backend(small_working_set());
  UnifiedAllocator allocator(backend);
  EXPECT_DOUBLE_EQ(allocator.limits().watermarks().high_ratio(), 1.7);
  EXPECT_DOUBLE_EQ(allocator.limits().watermarks().low_ratio(), 1.4);
  allocator.limits().watermarks().set_high_ratio(1.0);
  allocator.limits().watermarks().set_low_ratio(0.5);
  EXPECT_EQ(allocator.limits().watermarks().high_limit_bytes(), kGiB);
  EXPECT_EQ(allocator.limits().watermarks().low_limit_bytes(), 512 * kMiB);
  const DataPtr block = allocator.allocate(600 * kMiB);
  const Watermarks& marks = allocator.limits().watermarks();
  EXPECT_EQ(marks.low_headroom_bytes(allocator.reserved_bytes()), -88 * std::int64_t{kMiB});
  EXPECT_EQ(marks.high_headroom_bytes(allocator.reserved_bytes()), 424 * std::int64_t{kMiB});
  EXPECT_THROW(allocator.limits().watermarks().set_high_ratio(3), InvalidArgument);
}

TEST(UnifiedAllocator, AboveTheLowWatermarkIdleHeapsGoBeforeItGrows) {
  SimBackend backend(small_working_set());
  UnifiedAllocator allocator(backend);
  mlx(allocator).set_memory_limit(Watermarks::kNoLimit);
  allocator.limits().watermarks().set_low_ratio(1.0);
  allocator.allocate(600 * kMiB).clear();
  const DataPtr second = allocator.allocate(700 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 700 * kMiB);
  const DataPtr third = allocator.allocate(100 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 800 * kMiB) << "short of memory no heap of 1 GiB is opened";
}

TEST(UnifiedAllocator, AtTheHighWatermarkItEvictsAndThenGivesUp) {
  SimBackend backend(small_working_set());
  UnifiedAllocator allocator(backend);
  allocator.limits().watermarks().set_low_ratio(0);
  mlx(allocator).set_memory_limit(Watermarks::kNoLimit);
  allocator.limits().watermarks().set_high_ratio(1.5);
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
  allocator.limits().watermarks().set_high_ratio(0);
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
  void on_buffer_event(void* data, MemoryEvent event) override {
    if (!armed) return;
    ++counts[event];
    last = data;
    if (throws) throw std::runtime_error("a broken callback");
    if (event == MemoryEvent::kAllocationFailed && rescue != nullptr) rescue->clear();
  }
  static inline bool armed = false;
  static inline bool throws = false;
  static inline void* last = nullptr;
  static inline DataPtr* rescue = nullptr;
  static inline std::map<MemoryEvent, int> counts;
};
TENON_REGISTER_UNIFIED_CALLBACK(counting_callback, CountingCallback);

class UnifiedCallbacks : public ::testing::Test {
 protected:
  void SetUp() override {
    CountingCallback::counts.clear();
    CountingCallback::armed = true;
    CountingCallback::throws = false;
    CountingCallback::rescue = nullptr;
  }
  void TearDown() override { CountingCallback::armed = false; }
  using Event = MemoryEvent;
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
  DataPtr named = allocator.allocate(100);  // freed by its address
  void* const address = named.get();
  static_cast<void>(named.release_context());
  allocator.deallocate(address);
  EXPECT_EQ(counts[Event::kFreed], 3);
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
  EXPECT_THROW(registry.add("counting_callback", std::make_unique<CountingCallback>()),
               InvalidArgument);
  registry.add("another", std::make_unique<CountingCallback>());
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
