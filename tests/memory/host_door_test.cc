// Blocks that wait in a thread's door: Note [the revolving door] in memory/host/local_heap.h.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/memory/host/host_allocator.h"

namespace tenon {
namespace {

class HostDoorTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  // Through the door once and out again.
  void* passed() {
    void* const data = host_.raw_allocate(GetParam());
    host_.raw_deallocate(data);
    EXPECT_EQ(host_.raw_allocate(GetParam()), data);
    return data;
  }
  std::int64_t blocks() const { return host_.stats().allocation[0].current; }

  HostBackend backend_;
  HostAllocator host_{backend_};
};

TEST_P(HostDoorTest, ABlockIsFreedOnceAlthoughItWaits) {
  void* const data = passed();
  host_.raw_deallocate(data);
  EXPECT_THROW(host_.raw_deallocate(data), InvalidPointer);
  std::thread([&] { EXPECT_THROW(host_.raw_deallocate(data), InvalidPointer); }).join();
  EXPECT_EQ(blocks(), 0);
  EXPECT_EQ(host_.raw_allocate(GetParam()), data);
  host_.raw_deallocate(data);
  host_.check_invariants();
}

// Also while the block that left last is held by its DataPtr, which has no bare pointer to compare.
TEST_P(HostDoorTest, NullIsIgnored) {
  const DataPtr held = host_.allocate(GetParam());
  host_.raw_deallocate(nullptr);
  const DataPtr other = host_.allocate(GetParam());
  EXPECT_NE(held.get(), other.get());
  EXPECT_EQ(blocks(), 2);
}

TEST_P(HostDoorTest, ABlockThatPassedIsFreedByAnyThread) {
  void* const data = passed();
  std::thread([&] { host_.raw_deallocate(data); }).join();
  EXPECT_EQ(blocks(), 0);
  EXPECT_THROW(host_.raw_deallocate(data), InvalidPointer);
  // Another one waits in its place, and then the first is there again.
  void* const other = passed();
  host_.raw_deallocate(other);
  void* const fresh = host_.raw_allocate(GetParam() + 4096);
  std::thread([&] { host_.raw_deallocate(fresh); }).join();
  EXPECT_EQ(blocks(), 0);
  host_.check_invariants();
}

TEST_P(HostDoorTest, ABlockThatIsHeldIsNeverTakenForOneThatWaits) {
  void* const data = passed();
  std::vector<void*> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(passed());
    host_.raw_deallocate(others.back());
    others.back() = host_.raw_allocate(GetParam());
  }
  std::thread([&] {
    host_.raw_deallocate(data);
    for (void* other : others) host_.raw_deallocate(other);
  }).join();
  EXPECT_EQ(blocks(), 0);
  host_.check_invariants();
}

TEST_P(HostDoorTest, ADataPtrsBlockIsNotFreedByItsAddress) {
  void* data = nullptr;
  for (int i = 0; i < 2; ++i) {
    const DataPtr owned = host_.allocate(GetParam());
    data = owned.get();
    EXPECT_THROW(host_.raw_deallocate(data), InvalidPointer);
  }
  EXPECT_THROW(host_.raw_deallocate(data), InvalidPointer);
  EXPECT_EQ(blocks(), 0);
}

TEST_P(HostDoorTest, EveryPassIsCountedWhileOthersLook) {
  constexpr std::int64_t kPairs = 20000;
  const auto size = static_cast<std::int64_t>(GetParam());
  std::atomic<bool> done{false};
  std::thread looking([&] {
    while (!done) {
      const AllocatorStats stats = host_.stats();
      EXPECT_LE(stats.allocation[0].current, 1);
      EXPECT_GE(stats.allocation[0].current, 0);
      EXPECT_LE(stats.allocation[0].peak, 1);
      EXPECT_LE(stats.allocation[0].allocated, kPairs);
      std::this_thread::yield();
    }
  });
  for (std::int64_t i = 0; i < kPairs; ++i) host_.raw_deallocate(host_.raw_allocate(GetParam()));
  done = true;
  looking.join();
  const AllocatorStats stats = host_.stats();
  EXPECT_EQ(stats.allocation[0].allocated, kPairs);
  EXPECT_EQ(stats.allocation[0].current, 0);
  EXPECT_EQ(stats.requested_bytes[0].allocated, kPairs * size);
  EXPECT_EQ(stats.requested_bytes[0].peak, size);
}

INSTANTIATE_TEST_SUITE_P(Sizes, HostDoorTest,
                         ::testing::Values(64, 5000, 65536, 65537, 3 << 20));

}  // namespace
}  // namespace tenon
