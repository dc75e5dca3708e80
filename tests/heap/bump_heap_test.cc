#include "tenon/heap/bump_heap.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/base/random.h"

namespace tenon {
namespace {

TEST(BumpHeapTest, BlocksLieBehindEachOther) {
  BumpHeap heap;
  heap.add_extent(1000, 1000);
  EXPECT_EQ(heap.place(10).offset, 1000u);
  EXPECT_EQ(heap.place(10).offset, 1010u);
  EXPECT_EQ(heap.place(8, 64).offset, 1024u);
  EXPECT_EQ(heap.free_bytes(), 1000u - 32);
}

TEST(BumpHeapTest, AnExtentRewindsWhenItsLastResidentGoes) {
  BumpHeap heap;
  BumpExtent* extent = heap.add_extent(0, 100);
  const auto a = heap.place(40);
  const auto b = heap.place(40);
  EXPECT_FALSE(heap.place(40));
  heap.release(a);
  EXPECT_FALSE(heap.place(40)) << "b still lives above the hole";
  heap.release(b);
  EXPECT_TRUE(BumpHeap::is_wholly_free(extent));
  EXPECT_EQ(heap.place(100).offset, 0u);
}

TEST(BumpHeapTest, AFullExtentIsFoundAgainOnceEmpty) {
  BumpHeap heap;
  heap.add_extent(0, 128);
  const auto a = heap.place(128);
  heap.add_extent(1000, 128);
  const auto b = heap.place(128);
  EXPECT_FALSE(heap.place(1));
  heap.release(a);
  heap.check_invariants();
  EXPECT_EQ(heap.place(128).offset, 0u);
  heap.release(b);
  EXPECT_EQ(heap.free_bytes(), 128u);
}

TEST(BumpHeapTest, AnEmptyExtentOfAHigherClassServesWhereTheFirstOfTheClassIsTooSmall) {
  BumpHeap heap;
  heap.add_extent(0, 128);
  heap.add_extent(1000, 512);
  EXPECT_EQ(heap.place(200).offset, 1000u);
  EXPECT_EQ(heap.place(400).region, nullptr);
}

TEST(BumpHeapTest, RewindingAnEmptyScopeGivesItsBytesBack) {
  BumpHeap heap;
  heap.add_extent(0, 1000);
  const auto outer = heap.place(100);
  const auto mark = heap.mark();
  const auto temporary = heap.place(300);
  heap.release(temporary);
  heap.rewind(mark);
  EXPECT_EQ(heap.place(10).offset, 100u);
  heap.release(outer);
  heap.check_invariants();
}

TEST(BumpHeapTest, WhatEscapesFromAScopeKeepsItsBytesUntilReleased) {
  BumpHeap heap;
  heap.add_extent(0, 1000);
  const auto mark = heap.mark();
  const auto escaped = heap.place(100);
  heap.rewind(mark);
  const auto behind = heap.place(50);
  EXPECT_EQ(behind.offset, 100u);
  heap.release(behind);
  heap.release(escaped);
  heap.check_invariants();
  EXPECT_EQ(heap.place(1000).offset, 0u);
}

TEST(BumpHeapTest, TheLastEscapedBlockAtTheTopTakesThePointerBack) {
  BumpHeap heap;
  heap.add_extent(0, 1000);
  const auto base = heap.place(10);
  const auto mark = heap.mark();
  const auto escaped = heap.place(100);
  heap.rewind(mark);
  heap.release(escaped);
  EXPECT_EQ(heap.place(5).offset, 10u);
  heap.release(base);
}

TEST(BumpHeapTest, ScopesThatOpenedMoreExtentsComeBackToTheirOwn) {
  BumpHeap heap;
  heap.add_extent(0, 100);
  const auto base = heap.place(10);
  const auto mark = heap.mark();
  heap.add_extent(1000, 500);
  const auto far = heap.place(400);
  EXPECT_EQ(far.offset, 1000u);
  heap.release(far);
  heap.rewind(mark);
  EXPECT_EQ(heap.place(10).offset, 10u);
  EXPECT_EQ(heap.free_bytes(), 80u + 500u);
  heap.release(base);
  heap.check_invariants();
}

TEST(BumpHeapTest, MarksAreRewoundInnermostFirst) {
  BumpHeap heap;
  heap.add_extent(0, 100);
  heap.place(1);
  const auto outer = heap.mark();
  const auto inner = heap.mark();
  EXPECT_THROW(heap.rewind(outer), InternalError);
  heap.rewind(inner);
  heap.rewind(outer);
}

TEST(BumpHeapTest, AnExtentWithResidentsOrScopesCannotBeRemoved) {
  BumpHeap heap;
  BumpExtent* extent = heap.add_extent(0, 100);
  const auto block = heap.place(1);
  EXPECT_THROW(heap.remove_extent(extent), InternalError);
  const auto mark = heap.mark();
  heap.release(block);
  EXPECT_THROW(heap.remove_extent(extent), InternalError);
  heap.rewind(mark);
  heap.remove_extent(extent);
  EXPECT_EQ(heap.free_bytes(), 0u);
  EXPECT_FALSE(heap.place(1));
}

// Random scopes, escapes and late releases: whatever happens, blocks in use are apart.
TEST(BumpHeapTest, BlocksInUseStayApartUnderRandomScopesAndEscapes) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    BumpHeap heap;
    for (std::uint64_t i = 0; i < 5; ++i) heap.add_extent(i << 20, 600 + 100 * i);
    std::vector<BumpHeap::Handle> live;
    std::vector<BumpHeap::Mark> marks;
    std::map<std::uint64_t, std::uint64_t> occupied;
    for (int step = 0; step < 2500; ++step) {
      const std::uint64_t action = random.below(10);
      if (action < 4) {
        const auto block = heap.place(1 + random.below(60), 1ull << random.below(4));
        if (block) {
          const auto above = occupied.lower_bound(block.offset);
          if (above != occupied.end()) {
            ASSERT_LE(block.offset + block.size, above->first);
          }
          if (above != occupied.begin()) {
            ASSERT_LE(std::prev(above)->second, block.offset);
          }
          occupied[block.offset] = block.offset + block.size;
          live.push_back(block);
        }
      } else if (action < 8) {
        if (live.empty()) continue;
        // Mostly the youngest, so that pointers do come back.
        const std::size_t pick = random.chance(0.6) ? live.size() - 1 : random.below(live.size());
        occupied.erase(live[pick].offset);
        heap.release(live[pick]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
      } else if (action == 8) {
        if (marks.size() < 6) marks.push_back(heap.mark());
      } else if (!marks.empty()) {
        heap.rewind(marks.back());
        marks.pop_back();
      }
      heap.check_invariants();
    }
    for (; !marks.empty(); marks.pop_back()) heap.rewind(marks.back());
    for (const auto& block : live) heap.release(block);
    heap.check_invariants();
    EXPECT_EQ(heap.free_bytes(), 600u + 700 + 800 + 900 + 1000);
  }
}

}  // namespace
}  // namespace tenon
