#include "tenon/memory/compat/places.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/device/forwarding_backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/system/system_allocator.h"

namespace tenon {
namespace {

std::shared_ptr<SimBackend> sim_device(std::int16_t index,
                                       std::uint64_t capacity_bytes = 1ull << 30) {
  SimOptions options;
  options.capacity_bytes = capacity_bytes;
  options.device_index = index;
  return std::make_shared<SimBackend>(options);
}

TEST(PlacesTest, HostMemoryIsAllocatedCountedAndFreed) {
  const std::size_t before = memory::used(CpuPlace());
  void* p = memory::alloc(CpuPlace(), 4 * 1024);
  ASSERT_NE(p, nullptr);
  std::memset(p, 1, 4 * 1024);
  EXPECT_EQ(memory::used(CpuPlace()), before + 4 * 1024);
  memory::free(CpuPlace(), p);
  EXPECT_EQ(memory::used(CpuPlace()), before);
}

TEST(PlacesTest, EachGpuHasMemoryOfItsOwn) {
  const auto first = sim_device(0), third = sim_device(2);
  set_gpu_backend(GpuPlace(0), first);
  set_gpu_backend(GpuPlace(2), third);
  EXPECT_EQ(gpu_count(), 2);
  void* p = memory::alloc(GpuPlace(2), 4 * 1024);
  EXPECT_EQ(memory::used(GpuPlace(2)), 4096u);
  EXPECT_EQ(memory::used(GpuPlace(0)), 0u);
  EXPECT_GT(third->used_bytes(), 0u);
  EXPECT_EQ(first->used_bytes(), 0u);
  EXPECT_THROW(memory::free(GpuPlace(0), p), InvalidPointer);
  EXPECT_THROW(set_gpu_backend(GpuPlace(2), nullptr), InvalidArgument) << "a block is in use";
  memory::free(GpuPlace(2), p);
  EXPECT_THROW(memory::free(GpuPlace(2), p), InvalidPointer);
  set_gpu_backend(GpuPlace(0), nullptr);
  set_gpu_backend(GpuPlace(2), nullptr);
  EXPECT_EQ(third->used_bytes(), 0u);
}

TEST(PlacesTest, AGpuWithoutABackendSaysWhatToDo) {
  EXPECT_THROW(memory::alloc(GpuPlace(7), 1), InvalidArgument);
  EXPECT_THROW(memory::alloc(GpuPlace(-1), 1), InvalidArgument);
  EXPECT_THROW(memory::alloc(GpuPlace(64), 1), InvalidArgument);
}

TEST(PlacesTest, BlocksAreAlignedToAtLeast32Bytes) {
  std::vector<void*> blocks;
  for (const std::size_t size : {1, 31, 33, 100, 1000, 5000, 70000}) {
    blocks.push_back(memory::alloc(CpuPlace(), size));
    EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(blocks.back()), 32)) << size;
  }
  for (void* block : blocks) memory::free(CpuPlace(), block);
}

TEST(PlacesTest, ZeroBytesAndNullAreNothing) {
  EXPECT_EQ(memory::alloc(CpuPlace(), 0), nullptr);
  memory::free(CpuPlace(), nullptr);
}

// A device that takes its time to say what it is, so that first uses meet.
class SlowToTell final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  Device device() const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return driver().device();
  }
};

TEST(PlacesTest, TheFirstUseMayComeFromManyThreadsAtOnce) {
  for (int round = 0; round < 10; ++round) {
    const auto device = sim_device(5);
    set_gpu_backend(GpuPlace(5), std::make_shared<SlowToTell>(*device));
    std::array<BuddyAllocator*, 8> seen = {};
    std::atomic<std::size_t> waiting{seen.size()};
    std::vector<std::thread> threads;
    for (BuddyAllocator*& allocator : seen)
      threads.emplace_back([&allocator, &waiting] {
        for (--waiting; waiting > 0;) std::this_thread::yield();  // all at once
        void* p = memory::alloc(GpuPlace(5), 100);
        allocator = &place_allocator(GpuPlace(5));
        memory::free(GpuPlace(5), p);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::set<BuddyAllocator*>(seen.begin(), seen.end()).size(), 1u);
    EXPECT_EQ(memory::used(GpuPlace(5)), 0u);
    set_gpu_backend(GpuPlace(5), nullptr);
  }
}

// --- The buddy allocator by itself.

TEST(BuddyAllocatorTest, WhatThePoolMayNotHoldComesFromTheSystemAllocator) {
  SimBackend backend;
  BuddyAllocator buddy(std::make_unique<SystemAllocator>(backend), 1 << 20, 2 << 20);
  DataPtr small = buddy.allocate(1000);
  EXPECT_EQ(backend.used_bytes(), 1u << 20) << "the initial pool";
  DataPtr large = buddy.allocate(3 << 20);
  EXPECT_EQ(backend.used_bytes(), (1u << 20) + (3u << 20)) << "unrounded, beside the pool";
  DataPtr second = buddy.allocate((1 << 20) - 5);
  EXPECT_EQ(backend.used_bytes(), (2u << 20) + (3u << 20)) << "the pool's maximum";
  EXPECT_EQ(buddy.stats().allocation[0].current, 3);
  EXPECT_EQ(buddy.stats().reserved_bytes[0].current, 5 << 20);
  large.clear();
  EXPECT_EQ(backend.used_bytes(), 2u << 20) << "the system allocator keeps nothing";
  small.clear();
  second.clear();
  buddy.check_invariants();
  buddy.empty_cache();
  EXPECT_EQ(backend.used_bytes(), 0u) << "wholly free chunks go back";
}

TEST(BuddyAllocatorTest, AnEmptyPoolLeavesEverythingToTheSystemAllocator) {
  SimBackend backend;
  BuddyAllocator buddy(std::make_unique<SystemAllocator>(backend), 1 << 20, 0);
  const DataPtr block = buddy.allocate(1024);
  EXPECT_EQ(backend.used_bytes(), 1024u);
}

TEST(BuddyAllocatorTest, ArgumentsAreChecked) {
  SimBackend backend;
  EXPECT_THROW(BuddyAllocator(nullptr, 1 << 20, 1 << 20), InvalidArgument);
  EXPECT_THROW(BuddyAllocator(std::make_unique<SystemAllocator>(backend), 0, 1 << 20),
               InvalidArgument);
}

TEST(BuddyAllocatorTest, AChunkThatDoesNotFitGivesWayToASmallerOneOrTheBlockAlone) {
  SimOptions options;
  options.capacity_bytes = 100 << 20;
  SimBackend backend(options);
  BuddyAllocator buddy(backend);            // chunks of 64 MiB
  const DataPtr a = buddy.allocate(40 << 20);  // takes the first chunk
  const DataPtr b = buddy.allocate(20 << 20);  // a chunk of 32 MiB
  EXPECT_EQ(backend.used_bytes(), 96u << 20);
  const DataPtr c = buddy.allocate(3 << 20);   // 4 MiB would fit: a chunk of 4 MiB
  EXPECT_EQ(backend.used_bytes(), 100u << 20);
  EXPECT_THROW(buddy.allocate(40 << 20), OutOfMemory);
  buddy.check_invariants();
}

TEST(PlacesTest, BytesGoBetweenPlaces) {
  SimOptions options;
  options.capacity_bytes = 64 << 20;
  options.real_memory = true;
  set_gpu_backend(GpuPlace(3), std::make_shared<SimBackend>(options));
  char* const host = static_cast<char*>(memory::alloc(CpuPlace(), 16));
  void* const there = memory::alloc(GpuPlace(3), 16);
  void* const also_there = memory::alloc(GpuPlace(3), 16);
  std::memcpy(host, "fifteen letters", 16);
  memory::copy(GpuPlace(3), there, CpuPlace(), host, 16);
  memory::copy(GpuPlace(3), also_there, GpuPlace(3), there, 16);
  std::memset(host, 0, 16);
  memory::copy(CpuPlace(), host, GpuPlace(3), also_there, 16);
  EXPECT_STREQ(host, "fifteen letters");
  EXPECT_THROW(memory::copy(GpuPlace(3), there, GpuPlace(4), there, 16), InvalidArgument);
  for (void* block : {there, also_there}) memory::free(GpuPlace(3), block);
  memory::free(CpuPlace(), host);
  set_gpu_backend(GpuPlace(3), nullptr);
}

// A device that copies when its stream is waited for, and not before.
class LateCopies final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) override {
    copies_.push_back([=, this] { driver().copy(dest, src, size_bytes, stream); });
  }
  void synchronize(Stream stream) override {
    for (const auto& copy : std::exchange(copies_, {})) copy();
    driver().synchronize(stream);
  }

 private:
  std::vector<std::function<void()>> copies_;
};

TEST(PlacesTest, CopiesToAndFromTheHostAreOverWhenTheyReturn) {
  SimOptions options;
  options.capacity_bytes = 64 << 20;
  options.real_memory = true;
  SimBackend device(options);
  set_gpu_backend(GpuPlace(5), std::make_shared<LateCopies>(device));
  char host[16] = "fifteen letters";
  void* const there = memory::alloc(GpuPlace(5), 16);
  memory::copy(GpuPlace(5), there, CpuPlace(), host, 16);
  std::memset(host, 0, 16);
  memory::copy(CpuPlace(), host, GpuPlace(5), there, 16);
  EXPECT_STREQ(host, "fifteen letters");
  memory::free(GpuPlace(5), there);
  set_gpu_backend(GpuPlace(5), nullptr);
}

TEST(PlacesTest, CopiesOfPinnedMemoryKeepTheStreamsOrder) {
  SimOptions options;
  options.capacity_bytes = 64 << 20;
  options.real_memory = true;
  SimBackend device(options);
  const auto late = std::make_shared<LateCopies>(device);
  set_gpu_backend(GpuPlace(6), late);
  char* const pinned = static_cast<char*>(memory::alloc(PinnedPlace(6), 16));
  char* const back = static_cast<char*>(memory::alloc(PinnedPlace(6), 16));
  void* const there = memory::alloc(GpuPlace(6), 16);
  std::memset(back, 0, 16);
  std::memcpy(pinned, "fifteen letters", 16);
  memory::copy(GpuPlace(6), there, PinnedPlace(6), pinned, 16);
  memory::copy(PinnedPlace(6), back, GpuPlace(6), there, 16);
  EXPECT_STREQ(back, "") << "queued, not waited for";
  late->synchronize(current_stream(late->device()));
  EXPECT_STREQ(back, "fifteen letters");
  EXPECT_THROW(memory::copy(GpuPlace(6), there, PinnedPlace(5), pinned, 16), InvalidArgument);
  EXPECT_THROW(memory::copy(PinnedPlace(5), pinned, GpuPlace(6), there, 16), InvalidArgument);
  for (void* block : {pinned, back}) memory::free(PinnedPlace(6), block);
  memory::free(GpuPlace(6), there);
  set_gpu_backend(GpuPlace(6), nullptr);
}

TEST(PlacesTest, PinnedMemoryIsThePlacesOwn) {
  const auto backend = sim_device(0);
  set_gpu_backend(GpuPlace(4), backend);
  void* const block = memory::alloc(PinnedPlace(4), 4096);
  EXPECT_EQ(memory::used(PinnedPlace(4)), 4096u);
  EXPECT_EQ(memory::used(GpuPlace(4)), 0u);
  EXPECT_THROW(set_gpu_backend(GpuPlace(4), nullptr), InvalidArgument) << "a block is in use";
  memory::free(PinnedPlace(4), block);
  set_gpu_backend(GpuPlace(4), nullptr);
  EXPECT_EQ(backend->used_bytes(), 0u);
}

}  // namespace
}  // namespace tenon
