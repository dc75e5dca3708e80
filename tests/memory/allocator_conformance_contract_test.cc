// Conformance of what a program relies on beside blocks: bare pointers, alignment, scopes, and
// idle memory that comes back.
#include <optional>
#include <sstream>

#include "memory/allocator_conformance.h"
#include "memory/logging_allocator.h"
#include "tenon/base/align.h"
#include "tenon/memory/policies.h"
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

// Blocks are freed in stream order, while their work is queued; the end of their allocator waits.
TEST_P(AllocatorConformance, ItsEndUnmapsNothingThatQueuedWorkUses) {
  SimOptions options = device();
  options.check_order = true;
  options.lag_ns = 1'000'000'000;
  start(options);
  const Stream streams[] = {backend_->create_stream(), backend_->create_stream()};
  std::uint64_t owner = 0;
  for (const std::size_t size : {std::size_t{1000}, std::size_t{4} << 20, std::size_t{30} << 20})
    for (const Stream stream : streams) {
      const DataPtr block = allocator_->allocate_on(size, stream);
      backend_->access(stream, block.get(), size, ++owner);
    }
  allocator_.reset();
  EXPECT_EQ(backend_->order_violations(), std::vector<std::string>());
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

TEST_P(AllocatorConformance, GrowsABlockInPlaceOrLeavesItAsItWas) {
  struct Held {
    DataPtr block;
    std::size_t size = 0;
    std::uint64_t number = 0;
  };
  Random random(11);
  std::vector<Held> held;
  for (std::uint64_t step = 1; step <= 300; ++step) {
    SCOPED_TRACE(step);
    const std::uint64_t what = random.below(3);
    if (what == 0 || held.empty()) {
      const std::size_t size = std::size_t{1} << (4 + random.below(18));
      held.push_back({allocator_->allocate(size), size, step});
      fill_block(held.back().block.get(), size, step);
    } else if (what == 1) {
      std::swap(held[random.below(held.size())], held.back());
      held.pop_back();
    } else {
      Held& one = held[random.below(held.size())];
      const std::size_t usable = allocator_->usable_size(one.block);
      const std::size_t wanted = one.size + random.below(2 * one.size);
      void* const before = one.block.get();
      const bool grown = allocator_->try_grow(one.block, wanted);
      EXPECT_TRUE(grown || wanted > usable);
      EXPECT_EQ(one.block.get(), before);
      EXPECT_TRUE(block_is_intact(before, one.size, one.number));
      EXPECT_GE(allocator_->usable_size(one.block), grown ? wanted : usable);
      if (grown) fill_block(before, one.size = wanted, one.number);
    }
    allocator_->check_invariants();
    for (const Held& one : held)
      ASSERT_TRUE(block_is_intact(one.block.get(), one.size, one.number));
  }
  EXPECT_FALSE(allocator_->try_grow(held[0].block, std::size_t{kMaxRequestBytes} + 1));
  DataPtr nothing;
  EXPECT_TRUE(allocator_->try_grow(nothing, 0));
  EXPECT_FALSE(allocator_->try_grow(nothing, 1));
  held.clear();
  EXPECT_EQ(allocator_->stats().allocated_bytes[0].current, 0);
  EXPECT_EQ(allocator_->stats().requested_bytes[0].current, 0);
}

// Where what lies behind the block is free, it is taken, counted and reported.
TEST(GrowInPlace, TakesTheFreeNeighbour) {
  class Watch final : public Observer {
   public:
    void on_memory_event(const MemoryEventInfo& info) override {
      if (info.event == MemoryEvent::kFreed || info.event == MemoryEvent::kRecycled)
        story += (info.event == MemoryEvent::kFreed ? " -" : " +") +
                 std::to_string(info.size_bytes >> 20);
    }
    std::string story;
  };
  for (const char* name : {"caching", "expandable", "stitched", "pool", "buddy"}) {
    SCOPED_TRACE(name);
    SimBackend device({.capacity_bytes = std::uint64_t{1} << 30});
    const auto policy = make_policy(name, device);
    policy->allocate(64 << 20).clear();  // one free stretch
    DataPtr low = policy->allocate(8 << 20), high = policy->allocate(8 << 20);
    if (low.get() > high.get()) std::swap(low, high);
    void* const address = low.get();
    EXPECT_FALSE(policy->try_grow(low, 16 << 20)) << "its neighbour is in use";
    high.clear();
    const std::int64_t reserved = policy->stats().reserved_bytes[0].current;
    Watch watch;
    const ObserverGuard guard(policy->observers(), watch);
    EXPECT_TRUE(policy->try_grow(low, 16 << 20));
    EXPECT_EQ(watch.story, " -8 +16");
    EXPECT_EQ(low.get(), address);
    EXPECT_EQ(policy->stats().requested_bytes[0].current, 16 << 20);
    EXPECT_EQ(policy->stats().allocated_bytes[0].current, 16 << 20);
    EXPECT_EQ(policy->stats().reserved_bytes[0].current, reserved);
    policy->check_invariants();
    EXPECT_EQ(policy->usable_size(low), 16u << 20);
    low.clear();
    policy->check_invariants();
    EXPECT_EQ(policy->allocate(64 << 20).get(), address) << "whole again";
  }
}

// A stream that was destroyed is no reason to refuse requests, nor to keep its memory.
TEST_P(AllocatorConformance, StreamsComeAndGo) {
  const Stream first = backend_->create_stream();
  allocator_->allocate_on(64 << 20, first).clear();
  backend_->synchronize();
  backend_->destroy_stream(first);
  EXPECT_TRUE(allocator_->allocate(64 << 20));
  EXPECT_TRUE(allocator_->allocate(200 << 20));
  allocator_->empty_cache();
  allocator_->check_invariants();
  std::uint64_t reserved = 0;
  for (int round = 0; round < 5000; ++round) {
    const Stream stream = backend_->create_stream();
    allocator_->allocate_on(1000, stream).clear();
    backend_->destroy_stream(stream);
    if (round == 0) reserved = allocator_->reserved_bytes();
  }
  EXPECT_EQ(allocator_->reserved_bytes(), reserved) << "a new stream has what an earlier one left";
}

// What a refused request made the allocator take goes back: others need it.
TEST_P(AllocatorConformance, ARefusedRequestTakesNothing) {
  start(device(512 << 20));
  const DataPtr block = allocator_->allocate(100 << 20);
  const std::uint64_t used = backend_->used_bytes();
  EXPECT_THROW(static_cast<void>(allocator_->allocate(500 << 20)), OutOfMemory);
  EXPECT_THROW(static_cast<void>(allocator_->allocate(1 << 30)), OutOfMemory);
  EXPECT_LE(backend_->used_bytes(), used);
  EXPECT_EQ(allocator_->reserved_bytes(), backend_->used_bytes());
}

}  // namespace
}  // namespace tenon
