// What the viewer is told of a policy: figures as replay() finds them, and a map that is true.
#include <gtest/gtest.h>

#include <algorithm>

#include "lab/traces.h"
#include "tenon/lab/view/display_space.h"
#include "tenon/lab/view/policy_view.h"

namespace tenon {
namespace {

using testing::random_trace;

ReplaySetup setup_of(const std::string& policy) {
  ReplaySetup setup;
  setup.policy = policy;
  return setup;
}

class ViewedPolicy : public ::testing::TestWithParam<std::string> {};

TEST_P(ViewedPolicy, HasTheFiguresOfAReplay) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Workload workload(random_trace(seed, 1500, 2));
    const PolicyView view = view_policy(workload, setup_of(GetParam()));
    const ReplayFigures figures = replay(workload, setup_of(GetParam()));
    EXPECT_EQ(view.figures.reserved_peak_bytes, figures.reserved_peak_bytes);
    EXPECT_EQ(view.figures.live_at_peak_bytes, figures.live_at_peak_bytes);
    EXPECT_EQ(view.figures.ledger.calls, figures.ledger.calls);
    EXPECT_EQ(view.figures.ledger.stall_ns, figures.ledger.stall_ns);
    EXPECT_EQ(view.ops_done, workload.ops().size());
    std::uint64_t most = 0;
    for (const HeldStep& step : view.held) most = std::max(most, step.bytes);
    EXPECT_EQ(most, figures.reserved_peak_bytes);
    EXPECT_TRUE(std::is_sorted(view.held.begin(), view.held.end(),
                               [](const HeldStep& a, const HeldStep& b) { return a.op < b.op; }));
  }
}

// At every operation: live blocks do not overlap, and each lies in memory that is held then.
TEST_P(ViewedPolicy, DrawsEachBlockInMemoryOfItsOwn) {
  if (GetParam() == "null") return;  // holds nothing
  const Workload workload(random_trace(7, 1200, 2));
  const PolicyView view = view_policy(workload, setup_of(GetParam()));
  std::map<std::uint64_t, std::uint64_t> live;  // offset -> end
  std::vector<std::uint64_t> place_of_slot(workload.slots(), PolicyView::kNowhere);
  std::size_t block = 0;
  for (std::uint32_t i = 0; i < workload.ops().size(); ++i) {
    const ReplayOp& op = workload.ops()[i];
    if (!op.alloc) {
      live.erase(place_of_slot[op.slot]);
      continue;
    }
    const std::uint64_t place = place_of_slot[op.slot] = view.places[block++];
    if (op.size_bytes == 0) {
      place_of_slot[op.slot] = PolicyView::kNowhere;
      continue;
    }
    ASSERT_NE(place, PolicyView::kNowhere) << "operation " << i;
    const auto [at, added] = live.emplace(place, place + op.size_bytes);
    ASSERT_TRUE(added) << "operation " << i;
    if (at != live.begin()) {
      ASSERT_LE(std::prev(at)->second, place) << "operation " << i;
    }
    if (std::next(at) != live.end()) {
      ASSERT_GE(std::next(at)->first, place + op.size_bytes) << "operation " << i;
    }
    std::uint64_t held = 0;
    for (const BackedSpan& span : view.spans)
      if (span.from_op <= i && i < span.to_op) {
        const std::uint64_t from = std::max(place, span.offset);
        const std::uint64_t to =
            std::min(place + op.size_bytes, span.offset + span.size_bytes);
        if (to > from) held += to - from;
      }
    ASSERT_EQ(held, op.size_bytes) << "operation " << i << " of " << GetParam();
    ASSERT_LE(place + op.size_bytes, view.display_bytes);
  }
}

TEST_P(ViewedPolicy, StopsWhereMemoryEnds) {
  const Workload workload(random_trace(5, 800));
  ReplaySetup setup = setup_of(GetParam());
  setup.capacity_bytes = workload.live_peak_bytes() / 2;
  const PolicyView view = view_policy(workload, setup);
  const ReplayFigures figures = replay(workload, setup);
  ASSERT_EQ(view.figures.out_of_memory.has_value(), figures.out_of_memory.has_value());
  if (!figures.out_of_memory) return;
  EXPECT_EQ(view.figures.out_of_memory->event, figures.out_of_memory->event);
  EXPECT_EQ(view.figures.out_of_memory->message, figures.out_of_memory->message);
  EXPECT_LT(view.ops_done, workload.ops().size());
}

std::vector<std::string> all_policies() {
  std::vector<std::string> names;
  for (const Policy& policy : policies()) names.push_back(policy.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Every, ViewedPolicy, ::testing::ValuesIn(all_policies()),
                         [](const auto& test) { return test.param; });

TEST(DisplaySpaceTest, KeepsRegionsApartAndReusesRoom) {
  // Two segments side by side stay two regions; the third takes the room of the first.
  const std::vector<BackingChange> changes = {
      {0, true, false, 900, 100}, {1, true, false, 800, 100},  {2, false, false, 900, 100},
      {3, true, false, 750, 50},  {4, false, false, 800, 100}, {5, false, false, 750, 50}};
  const DisplaySpace space(changes);
  EXPECT_EQ(space.offset_of(900), 0u);
  EXPECT_EQ(space.offset_of(950), 50u);
  EXPECT_EQ(space.offset_of(800), 100u);
  EXPECT_EQ(space.offset_of(760), 10u);
  EXPECT_EQ(space.offset_of(1000), DisplaySpace::kNowhere);
  EXPECT_EQ(space.offset_of(700), DisplaySpace::kNowhere);
  EXPECT_EQ(space.size_bytes(), 200u);
}

TEST(DisplaySpaceTest, JoinsPagesThatTouch) {
  const std::vector<BackingChange> changes = {
      {0, true, true, 0, 100}, {1, true, true, 300, 100}, {2, true, true, 100, 200}};
  const DisplaySpace space(changes);
  EXPECT_EQ(space.offset_of(0), 0u);
  EXPECT_EQ(space.offset_of(250), 250u);
  EXPECT_EQ(space.offset_of(399), 399u);
  EXPECT_EQ(space.size_bytes(), 400u);
}

}  // namespace
}  // namespace tenon
