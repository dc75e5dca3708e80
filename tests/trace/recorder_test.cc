#include "tenon/trace/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/host/host_thread.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/registry.h"
#include "tenon/trace/csv.h"
#include "tenon/trace/load.h"
#include "tenon/trace/recording_scope.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 500; ++i) DataPtr block = allocator->allocate(512);
      });
    for (std::thread& thread : threads) thread.join();
  }
  const Trace trace = recorder.take();
  EXPECT_EQ(trace.blocks, 2000u);
  EXPECT_EQ(trace.events.size(), 4000u);
  EXPECT_THAT(trace.warnings, IsEmpty());
  EXPECT_EQ(parse_csv(format_csv(trace), "threads.csv").events, trace.events);
}

TEST(Recorder, KeepsThreadsTagsAndStacks) {
  SimBackend device;
  const auto allocator = make_policy("system", device);
  Recorder recorder("x", {.stack_depth = 16, .stack_min_bytes = 1000});
  {
    const ObserverGuard guard(allocator->observers(), recorder);
    const TagGuard tag({"forward", "conv2d"});
    allocator->allocate(2000);
    allocator->allocate(10);
    std::thread([&] { allocator->allocate(3000); }).join();
  }
  const Trace trace = recorder.take();
  ASSERT_EQ(trace.events.size(), 6u);
  const SiteTable& sites = *trace.sites;
  const Site& large = sites.site(trace.events[0].site);
  const Site& small = sites.site(trace.events[2].site);
  const Site& other = sites.site(trace.events[4].site);
  EXPECT_EQ(sites.text(large.tag), "forward: conv2d");
  EXPECT_EQ(other.tag, 0u);
  EXPECT_NE(large.thread, other.thread);
  EXPECT_GT(sites.stack(large.stack).size(), 0u);
  EXPECT_EQ(small.stack, 0u);
}

TEST(Recorder, KeepsTheNewestEventsAndWhatWasLiveBeforeThem) {
  Recorder recorder("x", {.capacity_events = 4});
  recorder.on_memory_event({MemoryEvent::kAllocated, at(100), 1, {}, {}});
  recorder.on_memory_event({MemoryEvent::kAllocated, at(200), 2, {}, {}});
  recorder.on_memory_event({MemoryEvent::kFreed, at(100), 1, {}, {}});
  for (int i = 0; i < 2; ++i) {
    recorder.on_memory_event({MemoryEvent::kRecycled, at(100), 3, {}, {}});
    recorder.on_memory_event({MemoryEvent::kFreed, at(100), 3, {}, {}});
  }
  const Trace trace = recorder.take();
  EXPECT_EQ(trace.early_blocks, 1u);
  EXPECT_THAT(ops(trace),
              ElementsAre(Op{TraceOp::kAlloc, 2, 0}, Op{TraceOp::kAlloc, 3, 1},
                          Op{TraceOp::kFreeCompleted, 3, 1}, Op{TraceOp::kAlloc, 3, 2},
                          Op{TraceOp::kFreeCompleted, 3, 2}));
  ASSERT_THAT(trace.warnings, SizeIs(1));
  EXPECT_THAT(trace.warnings[0], HasSubstr("newest 4 events; 3 are older"));
}

TEST(Recorder, WritesWhatItHasWhenAnAllocationFails) {
  const testing::TemporaryFile file(".pickle");
  SimOptions options;
  options.capacity_bytes = 64 << 20;
  SimBackend device(options);
  const auto allocator = make_policy("caching", device);
  Recorder recorder("x", {.out_of_memory_path = file.path()});
  const ObserverGuard guard(allocator->observers(), recorder);
  const DataPtr block = allocator->allocate(2 << 20);
  EXPECT_THROW(allocator->allocate(100 << 20), OutOfMemory);
  const Trace trace = load_traces(file.path()).at(0);
  EXPECT_EQ(trace.live_peak_bytes(), 2u << 20);
  ASSERT_THAT(trace.marks, SizeIs(1));
  EXPECT_EQ(trace.marks[0].kind, MarkKind::kOutOfMemory);
  EXPECT_EQ(trace.marks[0].size_bytes, 100u << 20);
}

TEST(Recorder, AForkedChildRecordsItsOwnEventsOverWhatWasLive) {
  HostThread::watch_forks();
  SimBackend device;
  const auto allocator = make_policy("system", device);
  Recorder recorder("forks");
  const ObserverGuard guard(allocator->observers(), recorder);
  const DataPtr kept = allocator->allocate(1000);
  allocator->allocate(2000).clear();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool was_empty = recorder.is_empty();
    const DataPtr own = allocator->allocate(3000);
    const std::vector<Op> wanted = {{TraceOp::kAlloc, 1000, 0}, {TraceOp::kAlloc, 3000, 1}};
    const Trace trace = recorder.take();
    ::_exit(was_empty && ops(trace) == wanted && trace.warnings.empty() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(recorder.take().events, SizeIs(3)) << "of the parent alone";
}

TEST(Recorder, AForkedChildKeepsNoFailureWhereItsParentKeepsNone) {
  const testing::TemporaryFolder folder;
  HostThread::watch_forks();
  SimBackend device({.capacity_bytes = 64u << 20});
  const auto allocator = make_policy("system", device);
  Recorder recorder("forks", {.out_of_memory_path = folder.path() + "/oom.csv"});
  recorder.keep_no_failure();
  const ObserverGuard guard(allocator->observers(), recorder);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  EXPECT_THROW(allocator->allocate(100u << 20), OutOfMemory);
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(RecordingScope, RecordsAllocatorsThatWereThereAndThatCome) {
  const testing::TemporaryFile file(".csv.zst");
  SimBackend device;
  const auto early = make_policy("system", device);
  {
    RecordingScope recording(file.path());
    const DataPtr a = early->allocate(1000);
    SimOptions second;
    second.device_index = 1;
    SimBackend other_device(second);
    const auto late = make_policy("pool", other_device);
    const DataPtr b = late->allocate(2000);
    const DataPtr c = get_allocator(DeviceType::kCpu)->allocate(3000);
  }
  early->allocate(4000);  // not any more
  const std::vector<Trace> traces = load_traces(file.path());
  ASSERT_THAT(traces, SizeIs(3));
  EXPECT_EQ(traces[0].device_name, "sim:0");
  EXPECT_EQ(traces[0].live_peak_bytes(), 1000u);
  EXPECT_EQ(traces[1].device_name, "sim:1");
  EXPECT_EQ(traces[1].live_peak_bytes(), 2000u);
  EXPECT_EQ(traces[2].device_name, "cpu:0");
  EXPECT_EQ(traces[2].live_peak_bytes(), 3000u);
}

TEST(RecordingScope, RefusesAPathWithoutAFormat) {
  EXPECT_THROW(RecordingScope("recording.txt"), InvalidArgument);
}

}  // namespace
}  // namespace tenon
