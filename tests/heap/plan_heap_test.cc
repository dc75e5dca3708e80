#include "tenon/heap/plan_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/heap/best_fit_heap.h"

namespace tenon {
namespace {

StreamPlan plan_of(std::vector<PlanSlot> slots, std::uint64_t unit = 64) {
  Plan plan(unit);
  plan.set_stream(0, std::move(slots));
  return *plan.stream(0);
}

TEST(PlanTest, KnowsTheMemoryOfEachStream) {
  Plan plan(512);
  plan.set_stream(0, {{0, 512}, {512, 1024}});
  plan.set_stream(3, {{1024, 512}});
  EXPECT_EQ(plan.stream(0)->size_bytes, 1536u);
  EXPECT_EQ(plan.stream(3)->size_bytes, 1536u);
  EXPECT_EQ(plan.total_bytes(), 3072u);
  EXPECT_EQ(plan.stream(1), nullptr);
}

TEST(PlanTest, RefusesSlotsThatMakeNoSense) {
  Plan plan(512);
  EXPECT_THROW(plan.set_stream(0, {{0, 0}}), InvalidArgument);
  EXPECT_THROW(plan.set_stream(0, {{0, 100}}), InvalidArgument);
  EXPECT_THROW(plan.set_stream(0, {{100, 512}}), InvalidArgument);
  EXPECT_THROW(plan.set_stream(0, {{~511ull, 512}}), InvalidArgument);
  EXPECT_THROW(Plan(100), InvalidArgument);
}

TEST(PlanHeapTest, ServesSlotsInOrderRoundAfterRound) {
  PlanHeap heap(plan_of({{0, 64}, {64, 128}, {0, 64}}), 64);
  for (int round = 0; round < 3; ++round) {
    PlanBlock* a = heap.place(60);
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->offset, 0u);
    PlanBlock* b = heap.place(128);
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(b->offset, 64u);
    heap.release(a);
    PlanBlock* c = heap.place(64);
    ASSERT_NE(c, nullptr);
    EXPECT_EQ(c->offset, 0u);
    heap.release(b);
    heap.release(c);
  }
}

TEST(PlanHeapTest, AnotherSizeIsADivergenceAndChangesNothing) {
  PlanHeap heap(plan_of({{0, 128}}), 64);
  EXPECT_EQ(heap.place(64), nullptr);
  EXPECT_EQ(heap.divergence(), Divergence::kWrongSize);
  EXPECT_EQ(heap.place(129), nullptr);
  EXPECT_NE(heap.place(65), nullptr) << "rounds to the planned size";
  EXPECT_EQ(heap.divergence(), Divergence::kNone);
}

TEST(PlanHeapTest, ABlockThatLivesLongerThanPlannedIsNeverAliased) {
  PlanHeap heap(plan_of({{0, 128}, {64, 64}, {0, 64}}), 64);
  PlanBlock* late = heap.place(128);
  EXPECT_EQ(heap.place(64), nullptr) << "its range is still in use";
  EXPECT_EQ(heap.divergence(), Divergence::kOccupied);
  heap.release(late);
  EXPECT_NE(heap.place(64), nullptr);
}

TEST(PlanHeapTest, ABlockOfAnEarlierRoundIsNeverAliased) {
  PlanHeap heap(plan_of({{0, 64}, {64, 64}}), 64);
  heap.place(64);
  heap.release(heap.place(64));
  EXPECT_EQ(heap.place(64), nullptr) << "slot 0 of the last round is still in use";
  EXPECT_EQ(heap.divergence(), Divergence::kOccupied);
}

TEST(PlanHeapTest, ASkippedSlotDoesNotHideWhatLiesBelowIt) {
  // 0 below 1 below 2, all at the same place.
  PlanHeap heap(plan_of({{0, 128}, {0, 128}, {0, 64}}), 64);
  PlanBlock* bottom = heap.place(128);
  heap.seek(2);
  EXPECT_EQ(heap.place(64), nullptr);
  EXPECT_EQ(heap.divergence(), Divergence::kOccupied);
  heap.release(bottom);
  EXPECT_NE(heap.place(64), nullptr);
}

TEST(PlanHeapTest, AnEmptyPlanServesNothing) {
  PlanHeap heap(StreamPlan{}, 64);
  EXPECT_EQ(heap.place(64), nullptr);
  EXPECT_EQ(heap.largest_free(), 0u);
  heap.check_invariants();
}

// Random plans, and programs that stray from them at random: skipped slots, blocks that live on
// into later rounds, whole rounds left out. check_invariants() finds any overlap. A request is
// refused only if its range really is in use.
TEST(PlanHeapTest, NeverAliasesAndNeverRefusesWithoutCause) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    std::vector<PlanSlot> slots;
    const std::size_t count = 1 + random.below(40);
    for (std::size_t i = 0; i < count; ++i)
      slots.push_back({64 * random.below(30), 64 * random.between(1, 12)});
    const StreamPlan plan = plan_of(slots);
    PlanHeap heap(plan, 64);
    std::vector<PlanBlock*> live;
    for (int step = 0; step < 3000; ++step) {
      if (random.chance(0.1)) {
        // Mostly a little forward; sometimes anywhere, which is around the end.
        heap.seek(random.chance(0.2) ? random.below(heap.slots() + 1)
                                     : std::min(heap.slots(), heap.cursor() + random.below(5)));
      } else if (random.chance(0.5)) {
        const PlanSlot& next = slots[heap.cursor() == heap.slots() ? 0 : heap.cursor()];
        const bool in_use = std::any_of(live.begin(), live.end(), [&](const PlanBlock* b) {
          return b->offset < next.offset + next.size && next.offset < b->offset + b->size;
        });
        PlanBlock* block = heap.place(next.size);
        ASSERT_EQ(block == nullptr, in_use) << "step " << step;
        if (block != nullptr) live.push_back(block);
      } else if (!live.empty()) {
        const std::size_t pick = random.below(live.size());
        heap.release(live[pick]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
      }
      heap.check_invariants();
    }
  }
}

}  // namespace
}  // namespace tenon
