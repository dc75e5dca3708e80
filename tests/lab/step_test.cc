// What is learnt from one step: the meter, the profile, the arena's chunks.
#include <gtest/gtest.h>

#include "tenon/device/host/host_backend.h"
#include "tenon/lab/arena_fit.h"
#include "tenon/lab/step_meter.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/scopes/with_scope.h"
#include "tenon/memory/tag.h"

namespace tenon {
namespace {

using EventKind = StepEvent::Kind;

class MeterTest : public ::testing::Test {
 protected:
  HostBackend backend_;
  std::unique_ptr<DeviceAllocator> policy_ = make_policy("caching", backend_, {});
  StepMeter meter_{*policy_};
};

TEST_F(MeterTest, CountsBytesAsAskedFor) {
  DataPtr a = meter_.allocate(100);
  {
    const DataPtr b = meter_.allocate(1000);
    EXPECT_EQ(meter_.live_bytes(), 1100u);
  }
  const DataPtr nothing = meter_.allocate(0);
  EXPECT_EQ(meter_.live_bytes(), 100u);
  EXPECT_EQ(meter_.peak_bytes(), 1100u);
  EXPECT_EQ(meter_.allocations(), 2u);
  a = DataPtr();
  EXPECT_EQ(meter_.live_bytes(), 0u);
  EXPECT_EQ(policy_->stats().allocated_bytes[0].current, 0);
}

TEST_F(MeterTest, RecordsOnlyWhileItIsTold) {
  const DataPtr before = meter_.allocate(10);
  meter_.record(true);
  DataPtr inside;
  {
    const TagGuard tag({"forward", "model.1"});
    inside = meter_.allocate(20);
  }
  meter_.mark(EventKind::kForwardEnds);
  inside = DataPtr();
  meter_.record(false);
  const DataPtr after = meter_.allocate(30);
  const std::vector<StepEvent> events = meter_.take_events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, EventKind::kAlloc);
  EXPECT_EQ(events[0].size_bytes, 20u);
  EXPECT_STREQ(events[0].phase, "forward");
  EXPECT_STREQ(events[0].layer, "model.1");
  EXPECT_EQ(events[1].kind, EventKind::kForwardEnds);
  EXPECT_EQ(events[2].kind, EventKind::kFree);
  EXPECT_EQ(events[2].block, events[0].block);
  EXPECT_LE(events[0].time_us, events[2].time_us);
  EXPECT_TRUE(meter_.take_events().empty());
}

TEST_F(MeterTest, BlocksGoBackToWhereTheyCameFrom) {
  const auto pool = ScopePool::make(*policy_);
  const DataPtr from_policy = meter_.allocate(64);
  with_scope(pool, [&](ScopeArena& arena) {
    meter_.serve_from(arena);
    const DataPtr from_arena = meter_.allocate(64);
    EXPECT_EQ(arena.report().allocations, 1u);
    meter_.serve_from(*policy_);
    EXPECT_EQ(meter_.live_bytes(), 128u);
  });
  EXPECT_EQ(meter_.live_bytes(), 64u);
  EXPECT_EQ(pool->last_report().escapes, 0u);
}

TEST_F(MeterTest, TheLayoutHashIsThatOfTheSameRequests) {
  const auto hash = [](std::initializer_list<std::size_t> sizes) {
    HostBackend backend;
    const auto policy = make_policy("caching", backend, {});
    StepMeter meter(*policy);
    std::vector<DataPtr> held;
    for (const std::size_t size : sizes) held.push_back(meter.allocate(size));
    return meter.layout_hash();
  };
  EXPECT_EQ(hash({100, 5000, 64}), hash({100, 5000, 64}));
  EXPECT_NE(hash({100, 5000, 64}), hash({5000, 100, 64}));
}

// --- Profiles of events written by hand.

struct Script {
  void alloc(std::uint32_t block, std::uint64_t size, const char* phase, const char* layer) {
    events.push_back({EventKind::kAlloc, block, size, phase, layer, time++});
  }
  void free(std::uint32_t block, std::uint64_t size) {
    events.push_back({EventKind::kFree, block, size, nullptr, nullptr, time++});
  }
  void end(EventKind kind) { events.push_back({kind, 0, 0, nullptr, nullptr, time++}); }
  std::vector<StepEvent> events;
  std::int64_t time = 0;
};

Script step() {
  Script s;
  s.alloc(0, 1000, "parameters", nullptr);
  s.alloc(1, 2000, "optimiser", nullptr);
  s.alloc(2, 300, "forward", "a");  // an activation
  s.alloc(3, 50, "forward", "a");   // temporary
  s.free(3, 50);
  s.alloc(4, 400, "forward", "b");  // an activation
  s.end(EventKind::kForwardEnds);
  s.alloc(5, 70, "backward", "b");  // temporary
  s.free(4, 400);
  s.alloc(6, 1000, "backward", "a");  // a gradient; here is the peak
  s.free(5, 70);
  s.free(2, 300);
  s.end(EventKind::kBackwardEnds);
  s.free(6, 1000);
  return s;
}

TEST(StepProfile, SaysWhatThePeakWasFor) {
  const StepProfile profile = profile_step(step().events);
  EXPECT_EQ(profile.peak_bytes, 1000u + 2000 + 300 + 70 + 1000);
  const auto at_peak = [&](MemoryUse use) {
    return profile.at_peak[static_cast<std::size_t>(use)];
  };
  const auto largest = [&](MemoryUse use) {
    return profile.largest[static_cast<std::size_t>(use)];
  };
  EXPECT_EQ(at_peak(MemoryUse::kParameters), 1000u);
  EXPECT_EQ(at_peak(MemoryUse::kOptimiser), 2000u);
  EXPECT_EQ(at_peak(MemoryUse::kActivations), 300u);
  EXPECT_EQ(at_peak(MemoryUse::kTemporaries), 70u);
  EXPECT_EQ(at_peak(MemoryUse::kGradients), 1000u);
  EXPECT_EQ(largest(MemoryUse::kActivations), 700u);
  EXPECT_EQ(largest(MemoryUse::kTemporaries), 70u);
  EXPECT_EQ(profile.allocations, 7u);
  EXPECT_EQ(profile.frees, 5u);
}

TEST(StepProfile, SaysWhatEachLayerHolds) {
  const StepProfile profile = profile_step(step().events);
  ASSERT_EQ(profile.layers.size(), 3u);
  EXPECT_EQ(profile.layers[0].layer, "");
  EXPECT_EQ(profile.layers[1].layer, "a");
  EXPECT_EQ(profile.layers[1].at_peak, 1300u);
  EXPECT_EQ(profile.layers[2].layer, "b");
  EXPECT_EQ(profile.layers[2].at_peak, 70u);
  EXPECT_EQ(profile.layers[2].largest, 470u);
}

TEST(StepProfile, BecomesATraceOfTheSameBlocks) {
  const Trace trace = trace_of(step().events, "step");
  EXPECT_EQ(trace.name, "step");
  EXPECT_EQ(bump_bytes(step().events, 64), 1024u + 2048 + 320 + 64 + 448 + 128 + 1024);
  std::uint64_t allocations = 0;
  for (const TraceEvent& event : trace.events) allocations += event.op == TraceOp::kAlloc;
  EXPECT_EQ(allocations, 7u);
}

// --- The arena's chunks.

// `rounds` generations of blocks, each gone before the next but for one byte of the first.
std::vector<StepEvent> generations(int rounds) {
  Script s;
  s.alloc(0, 1, "forward", nullptr);
  std::uint32_t block = 1;
  for (int round = 0; round < rounds; ++round, block += 4) {
    for (std::uint32_t i = 0; i < 4; ++i) s.alloc(block + i, 65536, "forward", nullptr);
    for (std::uint32_t i = 0; i < 4; ++i) s.free(block + i, 65536);
  }
  s.free(0, 1);
  return s.events;
}

TEST(ArenaFit, UsesRoomAgain) {
  const std::vector<StepEvent> events = generations(16);
  const ArenaFit fit = fit_arena(events, 64);
  EXPECT_LT(fit.reserved_bytes, bump_bytes(events, 64) / 4);
  EXPECT_LE(fit.high_water_bytes, fit.reserved_bytes);
  EXPECT_GE(fit.high_water_bytes, 4u * 65536);
}

TEST(ArenaFit, TakesOneChunkWhereNothingIsUsedAgain) {
  Script s;
  for (std::uint32_t i = 0; i < 10; ++i) s.alloc(i, 8192, "forward", nullptr);
  const ArenaFit fit = fit_arena(s.events, 64);
  EXPECT_EQ(fit.reserved_bytes, 81920u);
  EXPECT_EQ(fit.chunk_bytes, 81920u);
  EXPECT_EQ(fit.high_water_bytes, 81920u);
  EXPECT_EQ(fit_arena({}, 64).reserved_bytes, 0u);
}

TEST(ArenaFit, IsWhatAScopeThenDoes) {
  const std::vector<StepEvent> events = generations(9);
  const ArenaFit fit = fit_arena(events, 64);
  HostBackend backend;
  const auto policy = make_policy("system", backend, {});
  ScopeOptions options;
  options.alignment = 64;
  options.first_chunk_bytes = options.max_chunk_bytes = fit.chunk_bytes;
  const auto pool = ScopePool::make(*policy, options);
  StepMeter meter(*policy);
  for (int step = 0; step < 3; ++step) {
    with_scope(pool, [&](ScopeArena& arena) {
      meter.serve_from(arena);
      std::vector<DataPtr> blocks(64);
      for (const StepEvent& event : events)
        blocks[event.block] =
            event.kind == EventKind::kAlloc ? meter.allocate(event.size_bytes) : DataPtr();
      meter.serve_from(*policy);
    });
    EXPECT_EQ(pool->last_report().high_water_bytes, fit.high_water_bytes);
    EXPECT_EQ(pool->stats().reserved_bytes, fit.reserved_bytes);
  }
}

}  // namespace
}  // namespace tenon
