#include "heap/heap_conformance.h"

#include "tenon/heap/best_fit_heap.h"
#include "tenon/heap/buddy_heap.h"
#include "tenon/heap/plan_heap.h"

namespace tenon::testing {
namespace {

struct BestFit {
  using HeapType = BestFitHeap;
  static std::unique_ptr<HeapType> make(const Scenario& scenario) {
    auto heap = std::make_unique<BestFitHeap>();
    heap->add_extent(0, scenario.room_bytes);
    return heap;
  }
};

struct Buddy {
  using HeapType = BuddyHeap;
  static std::unique_ptr<HeapType> make(const Scenario& scenario) {
    auto heap = std::make_unique<BuddyHeap>(64);
    heap->add_extent(0, scenario.room_bytes);
    return heap;
  }
};

// Planned by what best fit would do with the same scenario.
struct Planned {
  using HeapType = PlanHeap;
  static std::unique_ptr<HeapType> make(const Scenario& scenario) {
    BestFitHeap model;
    model.add_extent(0, scenario.room_bytes);
    std::map<std::size_t, Block*> live;
    std::vector<PlanSlot> slots;
    for (const Scenario::Step& step : scenario.steps) {
      if (step.place) {
        Block* block = model.place(align_up(step.size, kUnit), std::max(step.alignment, kUnit));
        slots.push_back({block->offset, block->size});
        live[step.block] = block;
      } else {
        model.release(live.at(step.block));
      }
    }
    Plan plan(kUnit);
    plan.set_stream(0, std::move(slots));
    return std::make_unique<PlanHeap>(*plan.stream(0), kUnit);
  }
  static constexpr std::uint64_t kUnit = 64;
};

using AllHeaps = ::testing::Types<BestFit, Buddy, Planned>;
INSTANTIATE_TYPED_TEST_SUITE_P(AllHeaps, HeapConformance, AllHeaps);

}  // namespace
}  // namespace tenon::testing
