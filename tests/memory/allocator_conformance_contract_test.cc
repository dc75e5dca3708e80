// Conformance of what a program relies on beside blocks: bare pointers, alignment, scopes, and
// idle memory that comes back.
#include <optional>
#include <sstream>

#include "memory/allocator_conformance.h"
#include "memory/logging_allocator.h"
#include "tenon/base/align.h"
#include "tenon/memory/scopes/with_scope.h"

namespace tenon {
namespace {

TEST_P(AllocatorConformance, ALoggingAllocatorAroundItHasItsRawApi) {
  std::ostringstream log;
  LoggingAllocator logging(allocator_.get(), log);
  void* const first = logging.raw_allocate(1000);
  void* const second = logging.raw_allocate(200'000);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(first, second);
  fill_block(first, 1000, 1);
  fill_block(second, 200'000, 2);
  EXPECT_TRUE(block_is_intact(first, 1000, 1));
  EXPECT_EQ(allocator_->stats().allocation[0].current, 2);
  logging.raw_deallocate(first);
  logging.raw_deleter()(second);
  EXPECT_EQ(allocator_->stats().allocation[0].current, 0);
  EXPECT_THROW(logging.raw_deallocate(second), InvalidPointer) << "freed twice";
  EXPECT_EQ(logging.raw_allocate(0), nullptr);
  logging.raw_deallocate(nullptr);

  const DataPtr block = logging.allocate(64);
  fill_block(block.get(), 64, 3);
  EXPECT_TRUE(block_is_intact(logging.clone(block.get(), 64).get(), 64, 3));
  EXPECT_EQ(log.str(),
            "allocate 1000\nallocate 200000\nallocate 0\nallocate 64\nallocate 64\ncopy 64\n");
}

TEST_P(AllocatorConformance, ARawBlockIsFreedByTheDeleterAlone) {
  void* const block = allocator_->raw_allocate(5000);
  const DeleterFn deleter = allocator_->raw_deleter();
  ASSERT_NE(deleter, nullptr);
  DataPtr owner(block, nullptr, deleter, allocator_->device());
  owner.clear();
  EXPECT_EQ(allocator_->stats().allocation[0].current, 0);
  EXPECT_THROW(deleter(block), InvalidPointer);
  int foreign = 0;
  EXPECT_THROW(deleter(&foreign), InvalidPointer);
}

TEST_P(AllocatorConformance, EveryBlockIsAlignedAsItSays) {
  for (const std::uint64_t of_device : {64, 512, 4096}) {
    SimOptions options = device();
    options.alignment = of_device;
    start(options);
    const std::uint64_t alignment = allocator_->alignment();
    EXPECT_TRUE(is_power_of_two(alignment));
    EXPECT_GE(alignment, std::min(of_device, GetParam().alignment));
    std::vector<DataPtr> blocks;
    for (std::size_t size = 1; size < 3'000'000; size = size * 5 / 2 + 1) {
      blocks.push_back(allocator_->allocate(size));
      EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(blocks.back().get()), alignment))
          << size << " bytes, alignment " << alignment;
    }
  }
}

TEST_P(AllocatorConformance, ScopesKeepNoMemoryOfItAfterItsEnd) {
  for (int round = 0; round < 5; ++round) {
    with_scope(*allocator_, [&](ScopeArena& arena) {
      fill_block(arena.allocate(3'000'000).get(), 3'000'000, 1);
      return 0;
    });
    EXPECT_GT(allocator_->stats().allocated_bytes[0].current, 0) << "kept for the next scope";
    start(device());  // another one, in its place
  }
}

TEST_P(AllocatorConformance, WhatAScopePoolKeepsComesBackWhenMemoryIsShort) {
  constexpr std::uint64_t kCapacity = 64 << 20;
  start(device(kCapacity));
  const auto pool = ScopePool::make(*allocator_);
  with_scope(pool, [](ScopeArena& arena) { return arena.allocate(12 << 20) == nullptr; });
  EXPECT_GT(pool->stats().reserved_bytes, 0u);
  std::vector<DataPtr> blocks;
  try {
    for (;;) blocks.push_back(allocator_->allocate(1 << 20));
  } catch (const OutOfMemory& error) {
    EXPECT_TRUE(error.details().idle.empty()) << error.what();
  }
  EXPECT_EQ(pool->stats().reserved_bytes, 0u) << "asked before it says out of memory";
}

TEST_P(AllocatorConformance, OutOfMemoryNamesWhatIsHeldIdle) {
  start(device(64 << 20));
  const auto pool = ScopePool::make(*allocator_);
  // One byte that outlives its scope keeps the chunk; what is free in it cannot go back.
  const DataPtr escape = with_scope(pool, [](ScopeArena& arena) {
    const DataPtr large = arena.allocate(12 << 20);
    return arena.allocate(1);
  });
  std::vector<DataPtr> blocks;
  try {
    for (;;) blocks.push_back(allocator_->allocate(1 << 20));
  } catch (const OutOfMemory& error) {
    ASSERT_EQ(error.details().idle.size(), 1u);
    EXPECT_GT(error.details().idle[0].bytes, 11u << 20);
    EXPECT_NE(std::string(error.what()).find("idle in a scope pool over " + allocator_->name()),
              std::string::npos)
        << error.what();
  }
}

TEST_P(AllocatorConformance, LackOfMemoryMayBeAValue) {
  start(device(64 << 20));
  const std::optional<DataPtr> block = allocator_->try_allocate(1000);
  ASSERT_TRUE(block.has_value());
  EXPECT_NE(*block, nullptr);
  EXPECT_EQ(*allocator_->try_allocate(0), nullptr);
  EXPECT_FALSE(allocator_->try_allocate(1 << 30).has_value());
  EXPECT_THROW(allocator_->try_allocate(std::size_t{kMaxRequestBytes} + 1), InvalidArgument);
}

TEST_P(AllocatorConformance, AllThatIsUsableMayBeUsed) {
  std::vector<DataPtr> blocks;
  for (std::size_t size : {1, 100, 5000, 70'000, 3'000'000}) {
    blocks.push_back(allocator_->allocate(size));
    const std::size_t usable = allocator_->usable_size(blocks.back());
    EXPECT_GE(usable, size);
    fill_block(blocks.back().get(), usable, blocks.size());
  }
  for (std::size_t i = 0; i < blocks.size(); ++i)
    EXPECT_TRUE(block_is_intact(blocks[i].get(), allocator_->usable_size(blocks[i]), i + 1));
  EXPECT_EQ(allocator_->usable_size(DataPtr()), 0u);
}

}  // namespace
}  // namespace tenon
