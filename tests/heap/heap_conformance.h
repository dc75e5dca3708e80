// One suite for all heaps. To enrol a heap, give a struct with `HeapType` and
// `make(const Scenario&)` and instantiate HeapConformance with it (see heap_conformance_test.cc).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/random.h"
#include "tenon/heap/heap.h"

namespace tenon::testing {

// A program's calls: what it places and when it lets go.
struct Scenario {
  struct Step {
    bool place = true;
    std::size_t block = 0;  // its number, in the order of placing
    std::uint64_t size = 0;
    std::uint64_t alignment = 1;
  };
  std::uint64_t room_bytes = 0;  // what the heap is given: one extent from 0
  std::vector<Step> steps;

  // Sizes from a byte to 1/32 of the room, mostly small; at the end everything is released.
  static Scenario random(std::uint64_t seed, int steps, bool with_alignment) {
    Scenario scenario;
    scenario.room_bytes = std::uint64_t{1} << 22;
    Random random(seed);
    std::vector<std::size_t> live;
    std::size_t placed = 0;
    for (int i = 0; i < steps; ++i) {
      if (!live.empty() && (random.chance(0.45) || live.size() > 60)) {
        const std::size_t pick = random.below(live.size());
        scenario.steps.push_back({false, live[pick]});
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
      } else {
        const std::uint64_t size = 1 + random.below(std::uint64_t{1} << random.between(3, 17));
        const std::uint64_t alignment =
            with_alignment ? std::uint64_t{1} << random.below(13) : std::uint64_t{1};
        scenario.steps.push_back({true, placed, size, alignment});
        live.push_back(placed++);
      }
    }
    for (const std::size_t block : live) scenario.steps.push_back({false, block});
    return scenario;
  }
};

// Runs a scenario and checks, after each step, everything that holds for any heap. Returns the
// offsets in the order of placing.
template <typename Enrolment>
std::vector<std::uint64_t> run_and_check(typename Enrolment::HeapType& heap,
                                         const Scenario& scenario) {
  using H = typename Enrolment::HeapType;
  std::map<std::uint64_t, std::uint64_t> occupied;  // offset to end
  std::map<std::size_t, typename H::Handle> live;
  std::vector<std::uint64_t> offsets;
  for (const Scenario::Step& step : scenario.steps) {
    if (step.place) {
      const typename H::Handle handle = heap.place(step.size, step.alignment);
      if (!handle) continue;
      const std::uint64_t begin = H::offset_of(handle);
      const std::uint64_t end = begin + H::size_of(handle);
      offsets.push_back(begin);
      EXPECT_GE(H::size_of(handle), step.size);
      EXPECT_TRUE(is_aligned(begin, step.alignment)) << begin << " by " << step.alignment;
      EXPECT_LE(end, scenario.room_bytes);
      const auto above = occupied.lower_bound(begin);
      if (above != occupied.end()) {
        EXPECT_LE(end, above->first) << "two blocks overlap";
      }
      if (above != occupied.begin()) {
        EXPECT_LE(std::prev(above)->second, begin) << "two blocks overlap";
      }
      occupied[begin] = end;
      live[step.block] = handle;
    } else if (const auto found = live.find(step.block); found != live.end()) {
      occupied.erase(H::offset_of(found->second));
      heap.release(found->second);
      live.erase(found);
    }
    heap.check_invariants();
    if (::testing::Test::HasFailure()) break;
  }
  return offsets;
}

template <typename Enrolment>
class HeapConformance : public ::testing::Test {};
TYPED_TEST_SUITE_P(HeapConformance);

TYPED_TEST_P(HeapConformance, BlocksInUseAreApartAlignedAndInsideTheRoom) {
  static_assert(Heap<typename TypeParam::HeapType>);
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Scenario scenario = Scenario::random(seed, 600, seed % 2 == 0);
    const auto heap = TypeParam::make(scenario);
    EXPECT_GT(run_and_check<TypeParam>(*heap, scenario).size(), 100u);
    if (this->HasFailure()) return;
  }
}

TYPED_TEST_P(HeapConformance, ReleasingEverythingGivesEverythingBack) {
  for (std::uint64_t seed = 21; seed <= 24; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Scenario scenario = Scenario::random(seed, 500, false);
    const auto heap = TypeParam::make(scenario);
    const std::uint64_t before = heap->free_bytes();
    run_and_check<TypeParam>(*heap, scenario);
    EXPECT_EQ(heap->free_bytes(), before);
  }
}

TYPED_TEST_P(HeapConformance, TheSameCallsGiveTheSameOffsets) {
  const Scenario scenario = Scenario::random(31, 800, true);
  const auto first = TypeParam::make(scenario);
  const auto second = TypeParam::make(scenario);
  EXPECT_EQ(run_and_check<TypeParam>(*first, scenario),
            run_and_check<TypeParam>(*second, scenario));
}

TYPED_TEST_P(HeapConformance, ARequestThatCannotBeMetChangesNothing) {
  const Scenario scenario = Scenario::random(41, 300, false);
  const auto heap = TypeParam::make(scenario);
  const std::uint64_t before = heap->free_bytes();
  EXPECT_FALSE(heap->place(scenario.room_bytes + 1, 1));
  EXPECT_EQ(heap->free_bytes(), before);
  heap->check_invariants();
  EXPECT_GT(run_and_check<TypeParam>(*heap, scenario).size(), 50u);
}

TYPED_TEST_P(HeapConformance, TheLargestFreeSizeCanBePlaced) {
  const Scenario scenario = Scenario::random(51, 300, false);
  const auto heap = TypeParam::make(scenario);
  const std::uint64_t largest = heap->largest_free();
  ASSERT_GT(largest, 0u);
  const auto handle = heap->place(largest, 1);
  ASSERT_TRUE(static_cast<bool>(handle));
  EXPECT_GE(TypeParam::HeapType::size_of(handle), largest);
  heap->release(handle);
  heap->check_invariants();
}

REGISTER_TYPED_TEST_SUITE_P(HeapConformance, BlocksInUseAreApartAlignedAndInsideTheRoom,
                            ReleasingEverythingGivesEverythingBack,
                            TheSameCallsGiveTheSameOffsets, ARequestThatCannotBeMetChangesNothing,
                            TheLargestFreeSizeCanBePlaced);

}  // namespace tenon::testing
