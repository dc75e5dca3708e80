// What the viewer is told of a policy: figures as replay() finds them, and a map that is true.
#include <gtest/gtest.h>

#include <algorithm>

#include "lab/traces.h"
#include "tenon/lab/view/display_space.h"
#include "tenon/lab/view/policy_view.h"
#include "tenon/lab/view/recorded_view.h"
#include "tenon/trace/file_bytes.h"

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
void expect_true_map(const Trace& trace, const PolicyView& view) {
  std::map<std::uint64_t, std::uint64_t> live;  // offset -> end
  std::uint32_t i = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.op == TraceOp::kFreeRequested) continue;
    const std::uint64_t place = view.places[event.block];
    const std::uint64_t end = place + event.size_bytes;
    if (event.op == TraceOp::kFreeCompleted) {
      live.erase(place);
    } else if (event.size_bytes > 0) {
      ASSERT_NE(place, PolicyView::kNowhere) << "operation " << i;
      const auto [at, added] = live.emplace(place, end);
      ASSERT_TRUE(added) << "operation " << i;
      if (at != live.begin()) {
        ASSERT_LE(std::prev(at)->second, place) << "operation " << i;
      }
      if (std::next(at) != live.end()) {
        ASSERT_GE(std::next(at)->first, end) << "operation " << i;
      }
      std::uint64_t held = 0;
      for (const BackedSpan& span : view.spans)
        if (span.from_op <= i && i < span.to_op)
          held += std::max(std::min(end, span.offset + span.size_bytes),
                           std::max(place, span.offset)) - std::max(place, span.offset);
      ASSERT_EQ(held, event.size_bytes) << "operation " << i << " of " << view.policy;
      ASSERT_LE(end, view.display_bytes);
    }
    ++i;
  }
}

TEST_P(ViewedPolicy, DrawsEachBlockInMemoryOfItsOwn) {
  if (GetParam() == "null") return;  // holds nothing
  const Trace trace = random_trace(7, 1200, 2);
  expect_true_map(trace, view_policy(Workload(trace), setup_of(GetParam())));
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

// What a program's allocator did by itself.
class RecordedView : public ::testing::TestWithParam<const char*> {};

TEST_P(RecordedView, IsTrueForShippedSnapshots) {
  const std::string path =
      std::string(TENON_SOURCE_DIR "/data/snapshots/") + GetParam() + ".pickle";
  const FileBytes bytes(path);
  const Snapshot snapshot = parse_snapshot(bytes.view(), path);
  const Trace& trace = snapshot.traces[0];
  std::vector<std::uint32_t> op_of_event;
  std::uint32_t ops = 0;
  for (const TraceEvent& event : trace.events) {
    op_of_event.push_back(ops);
    ops += event.op == TraceOp::kFreeRequested ? 0 : 1;
  }
  op_of_event.push_back(ops);
  const auto view = recorded_view(trace, snapshot.segments, op_of_event);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->held.front().bytes, 0u);  // recorded from the program's start
  EXPECT_EQ(view->held.back().bytes, snapshot.figures.total_bytes);
  EXPECT_EQ(view->figures.ledger.memory_calls(),
            snapshot.figures.actions.at("segment_alloc"));
  expect_true_map(trace, *view);

  // Without the beginning, the segments at the end tell what was there.
  Trace late = trace;
  std::erase_if(late.marks, [&](const TraceMark& mark) {
    return mark.kind == MarkKind::kSegmentAlloc && mark.event < trace.events.size() / 2;
  });
  const auto rest = recorded_view(late, snapshot.segments, op_of_event);
  ASSERT_TRUE(rest);
  EXPECT_GT(rest->held.front().bytes, 0u);
  EXPECT_EQ(rest->held.back().bytes, snapshot.figures.total_bytes);
  expect_true_map(late, *rest);
}
INSTANTIATE_TEST_SUITE_P(Shipped, RecordedView,
                         ::testing::Values("gpt2", "gnn_sampled", "multistream_prefetch"));

TEST(RecordedViewTest, FollowsPagesThatGoInPart) {
  testing::TraceMaker maker;
  Trace trace = maker.alloc(1, 0, 100).alloc(2, 1, 100).free(1, 2).make();
  trace.addresses = {1000, 1200};
  const auto mark = [](MarkKind kind, std::uint32_t event, std::uint64_t address,
                       std::uint64_t size) {
    TraceMark made;
    made.kind = kind;
    made.event = event;
    made.address = address;
    made.size_bytes = size;
    return made;
  };
  trace.marks = {mark(MarkKind::kSegmentMap, 0, 1000, 400),
                 mark(MarkKind::kSegmentUnmap, 2, 1100, 100),
                 mark(MarkKind::kSegmentUnmap, 3, 5000, 100),        // was never there
                 mark(MarkKind::kSegmentMap, 3, 1, ~std::uint64_t{0})};  // cannot be
  const auto view = recorded_view(trace, {}, {0, 1, 2, 3});
  ASSERT_TRUE(view);
  EXPECT_EQ(view->figures.reserved_peak_bytes, 500u);  // 100 that went must have been there
  expect_true_map(trace, *view);
  std::uint64_t held = 0;
  for (const BackedSpan& span : view->spans)
    if (span.from_op <= 2 && 2 < span.to_op) held += span.size_bytes;
  EXPECT_EQ(held, 400u);
}

TEST(RecordedViewTest, NeedsAddressesAndMemory) {
  Trace trace = testing::TraceMaker().alloc(1, 0, 100).make();
  EXPECT_FALSE(recorded_view(trace, {}, {0, 1}));
  trace.addresses = {1000};
  EXPECT_FALSE(recorded_view(trace, {}, {0, 1}));
  EXPECT_FALSE(recorded_view(Trace(), {}, {0}));
}

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
