#include "tenon/memory/scopes/with_scope.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/system/system_allocator.h"
#include "tenon/memory/unified/unified_allocator.h"

namespace tenon {
namespace {

// malloc that counts its calls and knows what is out. Thread-safe.
class CountingAllocator final : public Allocator {
 public:
  DataPtr allocate(std::size_t size_bytes) override {
    if (size_bytes == 0) return DataPtr(Device{});
    if (size_bytes > limit_bytes) throw OutOfMemory({});
    ++calls;
    ++live;
    last_bytes = size_bytes;
    return DataPtr(std::aligned_alloc(64, align_up(size_bytes, 64)), nullptr, &free_block,
                   Device{});
  }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    default_copy_data(dest, src, size_bytes);
  }
  std::atomic<int> calls = 0;
  std::atomic<std::size_t> last_bytes = 0;
  std::size_t limit_bytes = ~std::size_t{0};
  static inline std::atomic<int> live = 0;

 private:
  static void free_block(void* data) {
    --live;
    std::free(data);
  }
};

class Scopes : public ::testing::Test {
 protected:
  void SetUp() override { CountingAllocator::live = 0; }
  CountingAllocator upstream_;
};

TEST_F(Scopes, GiveTheirBodyAnArenaThatIsCurrentOnTheThread) {
  const auto pool = ScopePool::make(upstream_);
  EXPECT_EQ(guarded_allocator(Device{}), nullptr);
  const int answer = with_scope(pool, [&](ScopeArena& arena) {
    EXPECT_EQ(current_allocator(Device{}), &arena);
    const DataPtr a = arena.allocate(100);
    const DataPtr b = current_allocator(Device{})->allocate(100);
    EXPECT_EQ(static_cast<std::byte*>(b.get()) - static_cast<std::byte*>(a.get()), 128);
    std::memset(a.get(), 1, 100);
    return 42;
  });
  EXPECT_EQ(answer, 42);
  EXPECT_EQ(guarded_allocator(Device{}), nullptr);
  EXPECT_EQ(pool->last_report().allocations, 2u);
  EXPECT_EQ(pool->last_report().bytes, 200u);
  EXPECT_EQ(pool->last_report().escapes, 0u);
}

// The seed's training loop: from the second time round nothing new is allocated.
TEST_F(Scopes, ALoopOfScopesCallsItsUpstreamInTheFirstRoundOnly) {
  int calls_after_first = 0;
  for (int epoch = 0; epoch < 100; ++epoch) {
    with_scope(upstream_, [&] {
      std::vector<DataPtr> temporaries;
      for (int i = 0; i < 200; ++i)
        temporaries.push_back(current_allocator(Device{})->allocate(1000 + i * 517));
    });
    if (epoch == 0) calls_after_first = upstream_.calls;
  }
  EXPECT_GT(calls_after_first, 1);
  EXPECT_EQ(upstream_.calls, calls_after_first);
  const ScopePoolStats stats = scope_pool_of(upstream_)->stats();
  EXPECT_EQ(stats.scopes, 100u);
  EXPECT_EQ(stats.escapes, 0u);
  EXPECT_GT(stats.high_water_bytes, 10 * kMiB);
  EXPECT_LE(stats.high_water_bytes, stats.reserved_bytes);
}

TEST_F(Scopes, IdenticalNestedRoundsNeedNothingNewEither) {
  const auto pool = ScopePool::make(upstream_, {.first_chunk_bytes = 64 * kKiB});
  const auto round = [&] {
    Random random(11);
    with_scope(pool, [&](ScopeArena& outer) {
      std::vector<DataPtr> held;
      for (int i = 0; i < 60; ++i) {
        held.push_back(outer.allocate(1 + random.below(100'000)));
        if (random.below(3) == 0)
          held.erase(held.begin() + static_cast<int>(random.below(held.size())));
        with_scope(pool, [&](ScopeArena& inner) {
          std::vector<DataPtr> more;
          for (int j = 0; j < 10; ++j) more.push_back(inner.allocate(1 + random.below(50'000)));
        });
      }
    });
  };
  round();
  const int calls = upstream_.calls;
  for (int i = 0; i < 5; ++i) round();
  EXPECT_EQ(upstream_.calls, calls);
  pool->check_invariants();
}

TEST_F(Scopes, AThousandTemporariesInOneScopeReuseTheSameRoom) {
  const auto pool = ScopePool::make(upstream_);
  with_scope(pool, [&](ScopeArena& arena) {
    for (int i = 0; i < 100'000; ++i) arena.allocate(40'000).clear();
  });
  EXPECT_EQ(upstream_.calls, 1);
  EXPECT_LE(pool->stats().high_water_bytes, kMiB);
}

TEST_F(Scopes, WhatIsReturnedStaysValidAndIsCounted) {
  const auto pool = ScopePool::make(upstream_);
  DataPtr result = with_scope(pool, [](ScopeArena& arena) {
    const DataPtr temporary = arena.allocate(1000);
    DataPtr kept = arena.allocate(1000);
    std::memset(kept.get(), 0x7e, 1000);
    return kept;
  });
  EXPECT_EQ(pool->last_report().escapes, 1u);
  EXPECT_EQ(pool->last_report().escaped_bytes, 1000u);
  EXPECT_EQ(pool->stats().kept_bytes, 4096u);
  for (int i = 0; i < 20; ++i)
    with_scope(pool, [](ScopeArena& arena) {
      const DataPtr block = arena.allocate(500'000);
      std::memset(block.get(), 0, 500'000);
    });
  for (int i = 0; i < 1000; ++i)
    ASSERT_EQ(static_cast<const unsigned char*>(result.get())[i], 0x7e) << i;
  EXPECT_EQ(upstream_.calls, 1) << "the room around the escape was used again";
  result.clear();
  EXPECT_EQ(pool->stats().kept_bytes, 0u);
  pool->check_invariants();
}

TEST_F(Scopes, AnEscapeKeepsItsOwnPagesOnly) {
  const auto pool =
      ScopePool::make(upstream_, {.first_chunk_bytes = kMiB, .max_chunk_bytes = kMiB});
  std::vector<DataPtr> escapes;
  with_scope(pool, [&](ScopeArena& arena) {
    for (int i = 0; i < 10; ++i) {
      const DataPtr temporary = arena.allocate(90'000);
      escapes.push_back(arena.allocate(5000));
      std::memset(escapes.back().get(), i, 5000);
    }
  });
  EXPECT_EQ(pool->last_report().escapes, 10u);
  EXPECT_LE(pool->stats().kept_bytes, 10 * 3 * 4096u);
  const int calls = upstream_.calls;
  with_scope(pool, [&](ScopeArena& arena) {
    std::vector<DataPtr> between;
    for (int i = 0; i < 10; ++i) {
      between.push_back(arena.allocate(80'000));
      std::memset(between.back().get(), 0xff, 80'000);
    }
  });
  EXPECT_EQ(upstream_.calls, calls) << "ten times 80,000 bytes fit between the escapes";
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(static_cast<const char*>(escapes[i].get())[0], i);
    EXPECT_EQ(static_cast<const char*>(escapes[i].get())[4999], i);
  }
  std::swap(escapes[3], escapes[7]);
  while (!escapes.empty()) {
    escapes.pop_back();
    pool->check_invariants();
  }
  EXPECT_EQ(pool->stats().kept_bytes, 0u);
  pool->trim();
  EXPECT_EQ(pool->stats().chunks, 0u) << "a chunk is whole again when its last resident is gone";
  EXPECT_EQ(CountingAllocator::live, 0);
}

TEST_F(Scopes, NeighbouringEscapesShareAPageAndLastUntilBothAreGone) {
  const auto pool = ScopePool::make(upstream_);
  DataPtr a;
  DataPtr b;
  with_scope(pool, [&](ScopeArena& arena) {
    a = arena.allocate(100);
    b = arena.allocate(100);
  });
  EXPECT_EQ(pool->stats().kept_bytes, 4096u);
  a.clear();
  EXPECT_EQ(pool->stats().kept_bytes, 4096u);
  std::memset(b.get(), 1, 100);
  b.clear();
  EXPECT_EQ(pool->stats().kept_bytes, 0u);
}

TEST_F(Scopes, EscapesMayBeDroppedOnOtherThreadsAtTheVeryEndOfTheScope) {
  const auto pool = ScopePool::make(upstream_);
  for (int round = 0; round < 200; ++round) {
    std::vector<DataPtr> blocks;
    std::thread dropper;
    with_scope(pool, [&](ScopeArena& arena) {
      for (int i = 0; i < 50; ++i) blocks.push_back(arena.allocate(3000));
      dropper = std::thread([&blocks] {
        for (DataPtr& block : blocks) block.clear();
      });
    });
    dropper.join();
    ASSERT_EQ(pool->stats().kept_bytes, 0u);
  }
  pool->check_invariants();
}

TEST_F(Scopes, ThreadsMayShareAnArena) {
  const auto pool = ScopePool::make(upstream_);
  with_scope(pool, [&](ScopeArena& arena) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&arena, t] {
        const AllocatorGuard guard(Device{}, arena);
        std::vector<DataPtr> mine;
        for (int i = 0; i < 500; ++i) {
          mine.push_back(current_allocator(Device{})->allocate(2000));
          std::memset(mine.back().get(), t, 2000);
          if (i % 3 == 0) mine.erase(mine.begin());
        }
        for (const DataPtr& block : mine) {
          EXPECT_EQ(static_cast<const char*>(block.get())[0], t);
          EXPECT_EQ(static_cast<const char*>(block.get())[1999], t);
        }
      });
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(pool->last_report().escapes, 0u);
}

TEST_F(Scopes, ThreadsMayEachRunScopesOverOneAllocator) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const DataPtr kept = with_scope(*get_default_cpu_allocator(), [&](ScopeArena& arena) {
          const DataPtr temporary = arena.allocate(10'000);
          return arena.allocate(5000);
        });
        std::memset(kept.get(), 1, 5000);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(scope_pool_of(*get_default_cpu_allocator())->stats().kept_bytes, 0u);
}

TEST_F(Scopes, UnwindOnExceptions) {
  const auto pool = ScopePool::make(upstream_);
  DataPtr kept;
  EXPECT_THROW(with_scope(pool,
                          [&](ScopeArena& outer) {
                            const DataPtr a = outer.allocate(100);
                            with_scope(pool, [&](ScopeArena& inner) {
                              const DataPtr b = inner.allocate(100);
                              kept = inner.allocate(100);
                              throw std::runtime_error("from within");
                            });
                          }),
               std::runtime_error);
  EXPECT_EQ(guarded_allocator(Device{}), nullptr);
  EXPECT_EQ(pool->stats().scopes, 2u);
  EXPECT_EQ(pool->stats().escapes, 1u);
  std::memset(kept.get(), 1, 100);
  kept.clear();
  pool->check_invariants();
}

TEST_F(Scopes, NestWithTheOuterScopesMemoryUntouched) {
  with_scope(upstream_, [&](ScopeArena& outer) {
    const DataPtr before = outer.allocate(1000);
    std::memset(before.get(), 1, 1000);
    const DataPtr escaped = with_scope([&](ScopeArena& inner) {
      EXPECT_NE(&inner, &outer);
      EXPECT_EQ(inner.pool(), outer.pool()) << "the scope around lends its memory";
      EXPECT_EQ(current_allocator(Device{}), &inner);
      std::memset(inner.allocate(100'000).get(), 2, 100'000);
      DataPtr result = inner.allocate(1000);
      std::memset(result.get(), 3, 1000);
      return result;
    });
    EXPECT_EQ(current_allocator(Device{}), &outer);
    const DataPtr after = outer.allocate(100'000);
    std::memset(after.get(), 4, 100'000);
    EXPECT_EQ(static_cast<const char*>(before.get())[999], 1);
    EXPECT_EQ(static_cast<const char*>(escaped.get())[0], 3);
    EXPECT_EQ(static_cast<const char*>(escaped.get())[999], 3);
  });
  EXPECT_EQ(upstream_.calls, 1) << "one chunk served both";
}

TEST_F(Scopes, ZeroBytesAndTooManyBytes) {
  with_scope(upstream_, [](ScopeArena& arena) {
    EXPECT_EQ(arena.allocate(0).get(), nullptr);
    EXPECT_THROW(arena.allocate(kMaxRequestBytes + 1), InvalidArgument);
    EXPECT_TRUE(arena.allocate(1));
  });
}

TEST_F(Scopes, OutOfMemoryPassesThroughAndTheScopeGoesOn) {
  upstream_.limit_bytes = 300 * kKiB;
  with_scope(upstream_, [&](ScopeArena& arena) {
    const DataPtr a = arena.allocate(200 * kKiB);
    EXPECT_EQ(upstream_.last_bytes, 200 * kKiB) << "no sensible chunk fits: just what is needed";
    EXPECT_THROW(arena.allocate(400 * kKiB), OutOfMemory);
    EXPECT_TRUE(arena.allocate(100 * kKiB));
  });
}

TEST_F(Scopes, ADoubleFreeIsNamed) {
  const auto pool = ScopePool::make(upstream_);
  with_scope(pool, [&](ScopeArena& arena) {
    DataPtr block = arena.allocate(100);
    const DeleterFn deleter = block.get_deleter();
    void* context = block.release_context();
    deleter(context);
    EXPECT_THROW(deleter(context), InvalidPointer);
  });
  pool->check_invariants();
}

TEST_F(Scopes, OptionsAreChecked) {
  EXPECT_THROW(ScopePool::make(upstream_, {.alignment = 48}), InvalidArgument);
  EXPECT_THROW(ScopePool::make(upstream_, {.first_chunk_bytes = 0}), InvalidArgument);
  EXPECT_THROW(ScopePool::make(upstream_, {.max_chunk_bytes = 1}), InvalidArgument);
  const auto pool = ScopePool::make(upstream_, {.alignment = 1024});
  with_scope(pool, [](ScopeArena& arena) {
    for (int i = 0; i < 5; ++i) {
      const DataPtr block = arena.allocate(10);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.get()) % 1024, 0u);
    }
  });
}

TEST_F(Scopes, EscapesOutliveTheirPoolsHandleAndThenTheMemoryGoes) {
  DataPtr kept;
  {
    const auto pool = ScopePool::make(upstream_);
    kept = with_scope(pool, [](ScopeArena& arena) { return arena.allocate(100); });
  }
  std::memset(kept.get(), 1, 100);
  EXPECT_EQ(CountingAllocator::live, 1);
  kept.clear();
  EXPECT_EQ(CountingAllocator::live, 0);
}

TEST_F(Scopes, AnAllocatorMayGoBeforeItsScopesPool) {
  std::shared_ptr<ScopePool> pool;
  {
    CountingAllocator other;
    with_scope(other, [](ScopeArena& arena) { arena.allocate(100).clear(); });
    pool = scope_pool_of(other);
    EXPECT_EQ(pool, scope_pool_of(other));
    EXPECT_NE(pool, scope_pool_of(upstream_));
  }
  pool.reset();
  EXPECT_EQ(CountingAllocator::live, 0) << "memory that needs no allocator is freed";
  SimBackend backend;
  {
    SystemAllocator device(backend);
    with_scope(device, [](ScopeArena& arena) { arena.allocate(100).clear(); });
    pool = scope_pool_of(device);
  }
  EXPECT_EQ(backend.used_bytes(), 0u);
}

TEST_F(Scopes, TrimForgetsThePagesAroundAnEscape) {
  const auto pool = ScopePool::make(*get_default_cpu_allocator());
  const DataPtr kept = with_scope(pool, [](ScopeArena& arena) {
    std::memset(arena.allocate(500'000).get(), 1, 500'000);
    DataPtr block = arena.allocate(10'000);
    std::memset(block.get(), 2, 10'000);
    return block;
  });
  pool->trim();
  EXPECT_EQ(pool->stats().chunks, 1u);
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(static_cast<const char*>(kept.get())[i], 2);
}

TEST_F(Scopes, ALargerChunkTakesThePlaceOfFreeOnes) {
  const auto pool = ScopePool::make(*get_cpu_allocator());
  for (std::uint64_t size = 70 * kMiB; size <= 80 * kMiB; size += kMiB)
    with_scope(pool, [&](ScopeArena& arena) { EXPECT_TRUE(arena.allocate(size)); });
  EXPECT_EQ(pool->stats().chunks, 1u);
  EXPECT_LE(pool->stats().reserved_bytes, 82 * kMiB);
}

TEST_F(Scopes, CurrentAllocatorOfTheCpuIsTheDefaultUpstream) {
  with_scope([](ScopeArena& arena) {
    EXPECT_EQ(&arena.pool()->upstream(), get_cpu_allocator());
    EXPECT_TRUE(arena.allocate(10));
  });
}

// --- On a device with streams.

constexpr std::uint64_t kLagNs = 1'000'000;

TEST(ScopesOnStreams, EndInStreamOrderAndFeedTheNextScope) {
  SimOptions options;
  options.lag_ns = kLagNs;
  SimBackend backend(options);
  UnifiedAllocator upstream(backend);
  const auto pool = ScopePool::make(upstream);
  const void* first = nullptr;
  const void* second = nullptr;
  for (const void** address : {&first, &second})
    with_scope(pool, [&](ScopeArena& arena) {
      *address = arena.allocate(10'000).get();
      backend.queue_work(current_stream(backend.device()));
    });
  EXPECT_EQ(first, second) << "the next scope's work is queued behind";
  EXPECT_EQ(backend.now_ns() < kLagNs, true) << "nobody waited";
  EXPECT_EQ(backend.ledger().count(DriverCall::kEventRecord), 0u);
}

TEST(ScopesOnStreams, EachStreamHasRoomOfItsOwn) {
  SimBackend backend;
  UnifiedAllocator upstream(backend);
  const auto pool = ScopePool::make(upstream);
  const Stream other = backend.create_stream();
  void* address = nullptr;
  with_scope(pool, [&](ScopeArena& arena) { address = arena.allocate(1000).get(); });
  with_scope(pool, [&](ScopeArena& arena) {
    const StreamGuard guard(other);
    EXPECT_NE(arena.allocate(1000).get(), address);
  });
  EXPECT_EQ(pool->stats().chunks, 2u);
}

TEST(ScopesOnStreams, RoomThatAnotherStreamUsesChangesHandsAfterItsWork) {
  SimOptions options;
  options.lag_ns = kLagNs;
  SimBackend backend(options);
  UnifiedAllocator upstream(backend);
  const auto pool = ScopePool::make(upstream);
  const Stream other = backend.create_stream();
  with_scope(pool, [&](ScopeArena& arena) {
    const DataPtr block = arena.allocate(1000);
    arena.record_stream(block, other);
    arena.record_stream(block, Stream{backend.device(), 0});
    backend.queue_work(other);
    const DataPtr foreign = upstream.allocate(10);
    EXPECT_THROW(arena.record_stream(foreign, other), InvalidPointer);
  });
  EXPECT_EQ(backend.ledger().count(DriverCall::kStreamWait), 1u);
  const auto cpu = ScopePool::make(*get_default_cpu_allocator());
  with_scope(cpu, [&](ScopeArena& arena) {
    EXPECT_THROW(arena.record_stream(arena.allocate(1), other), InvalidArgument);
  });
}

TEST(ScopesOnStreams, RoomThatIsFreeAgainInTheScopeIsOrderedBehindItsUsers) {
  SimOptions options;
  options.lag_ns = kLagNs;
  SimBackend backend(options);
  UnifiedAllocator upstream(backend);
  const auto pool = ScopePool::make(upstream, {.first_chunk_bytes = 64 * kKiB});
  const Stream other = backend.create_stream();
  with_scope(pool, [&](ScopeArena& arena) {
    DataPtr used = arena.allocate(40 * kKiB);
    arena.record_stream(used, other);
    backend.queue_work(other);
    std::vector<DataPtr> more;
    more.push_back(arena.allocate(40 * kKiB));
    used.clear();
    EXPECT_EQ(backend.ledger().count(DriverCall::kStreamWait), 0u);
    while (more.size() < 20) more.push_back(arena.allocate(40 * kKiB));
    EXPECT_EQ(backend.ledger().count(DriverCall::kStreamWait), 1u);
  });
}

TEST(ScopesOnStreams, WithoutAnEventTheHostWaits) {
  SimOptions options;
  options.lag_ns = kLagNs;
  SimBackend backend(options);
  UnifiedAllocator upstream(backend);
  const auto pool = ScopePool::make(upstream);
  const Stream other = backend.create_stream();
  with_scope(pool, [&](ScopeArena& arena) {
    arena.record_stream(arena.allocate(1000), other);
    backend.queue_work(other);
    backend.fail_call(DriverCall::kEventRecord, 1);
  });
  EXPECT_GE(backend.now_ns(), kLagNs);
}

// --- Random histories: every block keeps its bytes, whichever scope it came from.

TEST_F(Scopes, KeepEveryHeldBlocksContentsOverRandomHistories) {
  struct Held {
    DataPtr data;
    std::size_t size = 0;
    unsigned char value = 0;
  };
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    const auto pool = ScopePool::make(upstream_, {.first_chunk_bytes = 64 * kKiB});
    Random random(seed);
    std::vector<Held> held;
    const auto drop_one = [&] {
      std::swap(held[random.below(held.size())], held.back());
      const auto* bytes = static_cast<const unsigned char*>(held.back().data.get());
      for (std::size_t i = 0; i < held.back().size; i += 97)
        ASSERT_EQ(bytes[i], held.back().value);
      held.pop_back();
    };
    const auto body = [&](auto& self, int depth) -> void {
      with_scope(pool, [&](ScopeArena& arena) {
        for (int i = 0; i < 30; ++i) {
          if (depth < 3 && random.below(15) == 0) self(self, depth + 1);
          if (!held.empty() && random.below(2) == 0) drop_one();
          const std::size_t size = 1 + random.below(random.below(8) == 0 ? 100'000 : 3000);
          Held block{arena.allocate(size), size, static_cast<unsigned char>(random.next())};
          std::memset(block.data.get(), block.value, size);
          if (random.below(3) != 0) held.push_back(std::move(block));
        }
      });
    };
    for (int round = 0; round < 20; ++round) {
      body(body, 0);
      pool->check_invariants();
      if (round % 7 == 0) pool->trim();
    }
    while (!held.empty()) drop_one();
    EXPECT_EQ(pool->stats().kept_bytes, 0u);
    pool->trim();
    EXPECT_EQ(pool->stats().reserved_bytes, 0u);
  }
  EXPECT_EQ(CountingAllocator::live, 0);
}

}  // namespace
}  // namespace tenon
