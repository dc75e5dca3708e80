#include "tenon/memory/adaptors/guard_adaptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/adaptors/limit_adaptor.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/host/host_allocator.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using Kind = GuardReport::Kind;

class GuardAdaptorTest : public ::testing::Test {
 protected:
  GuardOptions options() {
    GuardOptions options;
    options.zone_bytes = 64;
    options.on_damage = [this](const GuardReport& report) { reports_.push_back(report); };
    return options;
  }
  static unsigned char* bytes(const DataPtr& data) {
    return static_cast<unsigned char*>(data.get());
  }

  std::vector<GuardReport> reports_;
  GuardAdaptor<Allocator> guard_{*get_default_cpu_allocator(), options()};
};

TEST_F(GuardAdaptorTest, WritesInsideABlockAreNoDamage) {
  for (std::size_t size : {1, 63, 64, 1000}) {
    const DataPtr block = guard_.allocate(size);
    EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(block.get()), 64));
    std::memset(block.get(), 0, size);
  }
  EXPECT_TRUE(guard_.check().empty());
  guard_.empty_quarantine();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(GuardAdaptorTest, OverflowIsFoundAtTheByteWhenTheBlockIsFreed) {
  DataPtr block = guard_.allocate(100);
  bytes(block)[100] = 0;
  bytes(block)[103] = 0;
  const void* const data = block.get();
  block.clear();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].kind, Kind::kOverflow);
  EXPECT_EQ(reports_[0].data, data);
  EXPECT_EQ(reports_[0].size_bytes, 100u);
  EXPECT_EQ(reports_[0].first_offset, 100);
  EXPECT_EQ(reports_[0].last_offset, 103);
  EXPECT_FALSE(reports_[0].made_at.empty());
  EXPECT_THAT(reports_[0].to_string(),
              HasSubstr("write past the end of a block of 100 bytes at 0x"));
  EXPECT_THAT(reports_[0].to_string(), HasSubstr("bytes 100 to 103"));
  EXPECT_THAT(reports_[0].to_string(), HasSubstr("made at\n    at "));
  guard_.empty_quarantine();
  EXPECT_EQ(guard_.reports(), 1u) << "damage is reported once";
}

TEST_F(GuardAdaptorTest, UnderflowIsFoundByACheck) {
  const DataPtr block = guard_.allocate(100);
  bytes(block)[-1] = 0;
  const std::vector<GuardReport> found = guard_.check();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, Kind::kUnderflow);
  EXPECT_EQ(found[0].first_offset, -1);
  EXPECT_TRUE(found[0].freed_at.empty());
  EXPECT_TRUE(guard_.check().empty()) << "damage is reported once";
}

TEST_F(GuardAdaptorTest, WriteAfterFreeIsFoundWithBothStacks) {
  DataPtr block = guard_.allocate(1000);
  unsigned char* const stale = bytes(block);
  block.clear();
  EXPECT_EQ(guard_.quarantined_bytes(), 1000u);
  stale[500] = 1;
  const std::vector<GuardReport> found = guard_.check();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, Kind::kUseAfterFree);
  EXPECT_EQ(found[0].first_offset, 500);
  EXPECT_EQ(found[0].last_offset, 500);
  EXPECT_FALSE(found[0].made_at.empty());
  EXPECT_FALSE(found[0].freed_at.empty());
  EXPECT_THAT(found[0].to_string(), HasSubstr("freed at\n    at "));
}

TEST_F(GuardAdaptorTest, WriteAfterFreeIsFoundAtTheLatestWhenTheBlockLeavesQuarantine) {
  GuardOptions small = options();
  small.quarantine_bytes = 1500;
  GuardAdaptor<Allocator> guard(*get_default_cpu_allocator(), small);
  DataPtr block = guard.allocate(1000);
  unsigned char* const stale = bytes(block);
  block.clear();
  stale[0] = 1;
  EXPECT_TRUE(reports_.empty());
  guard.allocate(1000).clear();  // pushes the first one out
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].kind, Kind::kUseAfterFree);
  EXPECT_EQ(guard.quarantined_bytes(), 1000u);
}

TEST_F(GuardAdaptorTest, SecondFreeThroughACopiedContextIsFound) {
  DataPtr block = guard_.allocate(10);
  const DeleterFn deleter = block.get_deleter();
  void* const context = block.get_context();
  block.clear();
  deleter(context);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].kind, Kind::kDoubleFree);
  EXPECT_THAT(reports_[0].to_string(), HasSubstr("second free of a block of 10 bytes"));
  EXPECT_TRUE(guard_.allocate(10)) << "and it goes on";
}

TEST_F(GuardAdaptorTest, SecondFreeThroughTheRawApiThrows) {
  void* raw = guard_.raw_allocate(10);
  guard_.raw_deallocate(raw);
  EXPECT_THROW(guard_.raw_deallocate(raw), InvalidPointer);
}

TEST_F(GuardAdaptorTest, QuarantineGivesWayWhenMemoryIsShort) {
  LimitAdaptor limited(*get_default_cpu_allocator(), 10000);
  GuardAdaptor<Allocator> guard(limited, options());
  guard.allocate(9000).clear();
  EXPECT_EQ(guard.quarantined_bytes(), 9000u);
  EXPECT_TRUE(guard.allocate(9000));
  EXPECT_THROW(guard.allocate(20000), OutOfMemory);
}

TEST_F(GuardAdaptorTest, WorksOverADeviceThatTheHostReaches) {
  SimOptions unified;
  unified.real_memory = true;
  unified.unified = true;
  SimBackend backend(unified);
  HostAllocator device(backend);
  {
    GuardAdaptor guard(device, options());
    DataPtr block = guard.allocate(5000);
    bytes(block)[5000] = 1;
    std::thread([held = std::move(block)]() mutable { held.clear(); }).join();
    EXPECT_EQ(reports_.size(), 1u);
    EXPECT_EQ(device.stats().allocation[0].current, 1) << "in quarantine";
    guard.empty_cache();
    EXPECT_EQ(device.stats().allocation[0].current, 0);
    EXPECT_EQ(backend.used_bytes(), 0u);
    guard.allocate(100).clear();
  }
  EXPECT_EQ(device.stats().allocation[0].current, 0) << "the guard let go of its quarantine";
}

TEST_F(GuardAdaptorTest, RefusesADeviceThatTheHostCannotReach) {
  SimBackend backend;
  HostAllocator device(backend);
  EXPECT_THROW(GuardAdaptor(device, options()), InvalidArgument);
}

TEST_F(GuardAdaptorTest, ThreadsMayShareAGuard) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      std::vector<DataPtr> blocks;
      for (std::size_t i = 1; i < 300; ++i) {
        blocks.push_back(guard_.allocate(i));
        std::memset(blocks.back().get(), 1, i);
        if (i % 3 == 0) blocks.erase(blocks.begin());
        if (i % 100 == 0) guard_.check();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(reports_.empty());
}

}  // namespace
}  // namespace tenon
