#include "tenon/trace/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/csv.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

struct Op {
  TraceOp op;
  std::uint64_t size;
  std::uint32_t block;
  friend bool operator==(const Op&, const Op&) = default;
};
std::vector<Op> ops(const Trace& trace) {
  std::vector<Op> out;
  for (const TraceEvent& event : trace.events)
    out.push_back({event.op, event.size_bytes, event.block});
  return out;
}

TEST(Recorder, RecordsWhatAnAllocatorDoes) {
  SimBackend device;
  const Stream side = device.create_stream();
  const auto allocator = make_policy("system", device);
  Recorder recorder("live");
  {
    const ObserverGuard guard(allocator->observers(), recorder);
    DataPtr a = allocator->allocate(1000);
    DataPtr b = allocator->allocate_on(2000, side);
    a.clear();
    DataPtr c = allocator->allocate(3000);
  }
  const Trace trace = recorder.take();
  EXPECT_EQ(trace.name, "live");
  EXPECT_THAT(
      ops(trace),
      ElementsAre(Op{TraceOp::kAlloc, 1000, 0}, Op{TraceOp::kAlloc, 2000, 1},
                  Op{TraceOp::kFreeCompleted, 1000, 0}, Op{TraceOp::kAlloc, 3000, 2},
                  Op{TraceOp::kFreeCompleted, 3000, 2}, Op{TraceOp::kFreeCompleted, 2000, 1}));
  EXPECT_THAT(trace.streams, ElementsAre(0u, side.id));
  EXPECT_EQ(parse_csv(format_csv(trace), "live.csv").events, trace.events);
  EXPECT_THAT(recorder.take().events, IsEmpty());
}

TEST(Recorder, PutsBlocksFromBeforeTheRecordingAtItsStart) {
  Recorder recorder("x");
  recorder.on_memory_event({MemoryEvent::kRecycled, at(100), 1, {}, {}});
  recorder.on_memory_event({MemoryEvent::kFreed, at(200), 7, {}, {}});
  EXPECT_THAT(ops(recorder.take()),
              ElementsAre(Op{TraceOp::kAlloc, 7, 0}, Op{TraceOp::kAlloc, 1, 1},
                          Op{TraceOp::kFreeCompleted, 7, 0}));
}

TEST(Recorder, MendsAFreeThatIsReportedAfterTheBlocksNextUse) {
  Recorder recorder("x");
  recorder.on_memory_event({MemoryEvent::kAllocated, at(100), 1, {}, {}});
  recorder.on_memory_event({MemoryEvent::kRecycled, at(100), 2, {}, {}});
  recorder.on_memory_event({MemoryEvent::kFreed, at(100), 1, {}, {}});
  recorder.on_memory_event({MemoryEvent::kFreed, at(100), 2, {}, {}});
  EXPECT_THAT(ops(recorder.take()),
              ElementsAre(Op{TraceOp::kAlloc, 1, 0}, Op{TraceOp::kFreeCompleted, 1, 0},
                          Op{TraceOp::kAlloc, 2, 1}, Op{TraceOp::kFreeCompleted, 2, 1}));
}

TEST(Recorder, RecordsManyThreadsSoundly) {
  SimBackend device;
  const auto allocator = make_policy("caching", device);
  Recorder recorder("threads");
  {
    const ObserverGuard guard(allocator->observers(), recorder);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 500; ++i) DataPtr block = allocator->allocate(512);
      });
  }
  const Trace trace = recorder.take();
  EXPECT_EQ(trace.blocks, 2000u);
  EXPECT_EQ(trace.events.size(), 4000u);
  EXPECT_THAT(trace.warnings, IsEmpty());
  EXPECT_EQ(parse_csv(format_csv(trace), "threads.csv").events, trace.events);
}

}  // namespace
}  // namespace tenon
