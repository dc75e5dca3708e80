#include "tenon/heap/buddy_heap.h"

#include <gtest/gtest.h>

#include <vector>

#include "tenon/base/error.h"
#include "tenon/base/random.h"

namespace tenon {
namespace {

TEST(BuddyHeapTest, RequestsAreRoundedToPowersOfTwoFromTheMinimum) {
  BuddyHeap heap(256);
  heap.add_extent(0, 1 << 16);
  EXPECT_EQ(heap.place(1)->size(), 256u);
  EXPECT_EQ(heap.place(256)->size(), 256u);
  EXPECT_EQ(heap.place(257)->size(), 512u);
  EXPECT_EQ(heap.place(4096)->size(), 4096u);
  EXPECT_EQ(heap.rounded(5000), 8192u);
  EXPECT_EQ(heap.rounded(1, 1024), 1024u);
}

TEST(BuddyHeapTest, SplitsTheSmallestBlockThatFitsAndJoinsBuddiesAgain) {
  BuddyHeap heap(64);
  BuddyBlock* root = heap.add_extent(4096, 1024);
  BuddyBlock* a = heap.place(64);
  EXPECT_EQ(a->offset, 4096u);
  EXPECT_EQ(heap.largest_free(), 512u);
  BuddyBlock* b = heap.place(64);
  EXPECT_EQ(b->offset, 4096u + 64);
  BuddyBlock* c = heap.place(512);
  EXPECT_EQ(c->offset, 4096u + 512);
  EXPECT_EQ(heap.free_bytes(), 1024u - 64 - 64 - 512);
  heap.release(a);
  heap.release(c);
  EXPECT_EQ(heap.largest_free(), 512u);
  EXPECT_FALSE(BuddyHeap::is_wholly_free(root));
  heap.release(b);
  EXPECT_TRUE(BuddyHeap::is_wholly_free(root));
  EXPECT_EQ(heap.largest_free(), 1024u);
  heap.check_invariants();
}

TEST(BuddyHeapTest, BlocksOfDifferentParentsDoNotJoin) {
  BuddyHeap heap(64);
  heap.add_extent(0, 256);
  BuddyBlock* blocks[4];
  for (BuddyBlock*& block : blocks) block = heap.place(64);
  heap.release(blocks[1]);
  heap.release(blocks[2]);  // neighbours, not buddies
  EXPECT_EQ(heap.largest_free(), 64u);
  heap.release(blocks[0]);
  EXPECT_EQ(heap.largest_free(), 128u);
}

TEST(BuddyHeapTest, AWhollyFreeExtentCanBeRemovedAndAUsedOneCannot) {
  BuddyHeap heap(64);
  BuddyBlock* first = heap.add_extent(0, 1024);
  BuddyBlock* second = heap.add_extent(1024, 1024);
  BuddyBlock* block = heap.place(1000);
  BuddyBlock* in_use = block == first ? first : second;
  BuddyBlock* spare = block == first ? second : first;
  EXPECT_THROW(heap.remove_extent(in_use), InternalError);
  heap.remove_extent(spare);
  EXPECT_EQ(heap.free_bytes(), 0u);
  heap.check_invariants();
  heap.release(block);
  heap.remove_extent(in_use);
  EXPECT_EQ(heap.place(64), nullptr);
}

TEST(BuddyHeapTest, HalvesInheritTheExtentsOwner) {
  BuddyHeap heap(64);
  int mine = 0;
  heap.add_extent(0, 1024)->owner = &mine;
  EXPECT_EQ(heap.place(64)->owner, &mine);
  EXPECT_EQ(heap.place(512)->owner, &mine);
}

TEST(BuddyHeapTest, ExtentsThatAreNoPowerOfTwoAreRefused) {
  BuddyHeap heap(64);
  EXPECT_THROW(heap.add_extent(0, 1000), InternalError);
  EXPECT_THROW(heap.add_extent(0, 32), InternalError);
  EXPECT_THROW(BuddyHeap(48), InternalError);
}

TEST(BuddyHeapTest, FreeBytesAlwaysAddUp) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    BuddyHeap heap(32);
    std::uint64_t total = 0;
    for (int i = 0; i < 4; ++i) {
      heap.add_extent(total, 1ull << 14);
      total += 1ull << 14;
    }
    std::uint64_t used = 0;
    std::vector<BuddyBlock*> live;
    for (int step = 0; step < 3000; ++step) {
      if (live.empty() || random.chance(0.5)) {
        if (BuddyBlock* block = heap.place(1 + random.below(1ull << random.below(13)))) {
          used += block->size();
          live.push_back(block);
        }
      } else {
        const std::size_t pick = random.below(live.size());
        used -= live[pick]->size();
        heap.release(live[pick]);
        live[pick] = live.back();
        live.pop_back();
      }
      ASSERT_EQ(heap.free_bytes(), total - used);
      if (step % 10 == 0) heap.check_invariants();
    }
  }
}

}  // namespace
}  // namespace tenon
