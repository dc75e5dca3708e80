// Scopes while memory for their own bookkeeping runs out, also at their end.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "failing_memory/refused_memory.h"
#include "tenon/base/byte_size.h"
#include "tenon/memory/scopes/with_scope.h"

namespace tenon {
namespace {

using namespace failing;

TEST(FailingScopeTest, AScopePoolIsWholeWhereATrimIsRefusedMemory) {
  if (!kCanRefuse) GTEST_SKIP() << "the sanitizer's allocator refuses nothing";
  for (std::uint64_t n = 1; n <= 4; ++n) {
    Subject subject("caching");
    const auto pool = ScopePool::make(*subject.allocator, {.max_chunk_bytes = kMiB});
    with_scope(pool, [](ScopeArena& arena) {
      std::vector<DataPtr> blocks;
      for (int i = 0; i < 12; ++i) blocks.push_back(arena.allocate(kMiB));
    });
    refuse(n, n);
    try {
      const Counted counted;
      pool->trim();
    } catch (const std::bad_alloc&) {
    }
    refuse_nothing();
    pool->check_invariants();
    with_scope(pool, [](ScopeArena& arena) { EXPECT_NE(arena.allocate(kMiB), nullptr); });
  }
}

// A scope on two streams, of 1,200 blocks with every third still held at its end. The n-th request
// and up to `most` more are refused, in the scope or at its end. Returns the requests.
std::uint64_t run_scope(std::uint64_t n, std::uint64_t most, bool in_scope, std::uint64_t* failed) {
  Subject subject("caching");
  const auto pool = ScopePool::make(*subject.allocator, {.first_chunk_bytes = 4 * kMiB});
  std::vector<DataPtr> held;
  auto scope = std::make_unique<Scope>(pool);
  const auto take = [&](int i) {
    const StreamGuard on(subject.streams[i % 2]);
    const Counted counted(in_scope);
    DataPtr block = scope->arena().allocate(kKiB * (1 + i % 5));
    scope->arena().record_stream(block, subject.streams[(i + 1) % 2]);
    const Counted uncounted(false);
    if (i % 3 == 0) held.push_back(std::move(block));
  };
  refuse(n, n + most);
  for (int i = 0; i < 1200; ++i) {
    try {
      take(i);
    } catch (const std::bad_alloc&) {
      ++*failed;
    }
  }
  {
    const Counted counted(!in_scope);
    scope.reset();
  }
  const std::uint64_t requests = g_requests;
  refuse_nothing();
  pool->check_invariants();
  EXPECT_EQ(pool->last_report().escapes, held.size());
  refuse(1, UINT64_MAX);
  {
    const Counted counted;
    held.clear();
  }
  refuse_nothing();
  pool->check_invariants();
  EXPECT_EQ(pool->stats().kept_bytes, 0u);
  pool->trim();
  EXPECT_EQ(pool->stats().reserved_bytes, 0u) << "a part of a chunk is lost";
  return requests;
}

TEST(FailingScopeTest, AScopeEndsWithoutMemory) {
  if (!kCanRefuse) GTEST_SKIP() << "the sanitizer's allocator refuses nothing";
  std::uint64_t failed = 0;
  const std::uint64_t requests = run_scope(0, 0, false, &failed);
  ASSERT_GT(requests, 0u) << "a case without requests shows nothing";
  for (std::uint64_t n = 1; n <= requests; ++n) run_scope(n, 0, false, &failed);
  for (std::uint64_t n = 1; n <= requests; ++n) run_scope(n, UINT64_MAX / 2, false, &failed);
  EXPECT_EQ(failed, 0u);
}

TEST(FailingScopeTest, AScopeIsWholeWhereAnAllocationIsRefused) {
  if (!kCanRefuse) GTEST_SKIP() << "the sanitizer's allocator refuses nothing";
  std::uint64_t failed = 0;
  const std::uint64_t requests = run_scope(0, 0, true, &failed);
  for (std::uint64_t n = 1; n <= requests; ++n) run_scope(n, 0, true, &failed);
  EXPECT_GT(failed, requests / 2) << "the refusals do not reach the arena";
}

}  // namespace
}  // namespace tenon
