#include "heap/heap_conformance.h"

#include "tenon/heap/best_fit_heap.h"
#include "tenon/heap/buddy_heap.h"
#include "tenon/heap/bump_heap.h"
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

struct Bump {
  using HeapType = BumpHeap;
  static std::unique_ptr<HeapType> make(const Scenario& scenario) {
    auto heap = std::make_unique<BumpHeap>();
    const std::uint64_t piece = scenario.room_bytes / 16;
    for (std::uint64_t i = 0; i < 16; ++i) heap->add_extent(i * piece, piece);
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

using AllHeaps = ::testing::Types<BestFit, Buddy, Bump, Planned>;
INSTANTIATE_TYPED_TEST_SUITE_P(AllHeaps, HeapConformance, AllHeaps);

}  // namespace
}  // namespace tenon::testing
