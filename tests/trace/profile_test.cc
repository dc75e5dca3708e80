#include "tenon/trace/profile.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/trace/call_site.h"
#include "tenon/trace/load.h"
#include "tenon/trace/snapshot_json.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

// An event of memory as Kineto writes it.
struct Memory {
  double time_us = 0;
  std::int64_t bytes = 0;
  std::uint64_t address = 0;
  std::int64_t allocated = 0;
  int type = 1;
  int device = 0;
  int thread = 1;
  std::string text(std::string_view name = "[memory]") const {
    return fmt::format(
        R"({{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "{}", "pid": 9, "tid": {},)"
        R"( "ts": {}, "args": {{"Total Reserved": 2097152, "Total Allocated": {}, "Bytes": {},)"
        R"( "Device Id": {}, "Device Type": {}, "Addr": {}, "Ev Idx": 3}}}})",
        name, thread, time_us, allocated, bytes, device, type, address);
  }
};

std::string span(std::string_view category, std::string_view name, double time_us,
                 double duration_us, int thread = 1) {
  return fmt::format(
      R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 9, "tid": {}, "ts": {}, "dur": {},)"
      R"( "args": {{"Input Dims": [[2, 3], []], "Bytes": "no number"}}}})",
      category, name, thread, time_us, duration_us);
}

std::string profile(const std::vector<std::string>& events) {
  return fmt::format(R"({{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "GPU"}}],)"
                     R"( "traceEvents": [{}], "traceName": "x"}})",
                     fmt::join(events, ", "));
}

Snapshot parsed(const std::vector<std::string>& events) {
  return parse_profile(profile(events), "run.json").value();
}

std::string profile_failure(const std::string& bytes) {
  try {
    parse_profile(bytes, "run.json");
  } catch (const ParseError& error) {
    return error.what();
  }
  return "";
}

std::string call_site_of(const Trace& trace, std::size_t event) {
  return CallSiteTable(*trace.sites).site_name(*trace.sites, trace.events[event].site);
}

TEST(Profile, PairsEventsByAddressAndNamesWhatRan) {
  const Snapshot snapshot = parsed({
      span("user_annotation", "ProfilerStep#2", 0, 100),
      span("python_function", "train.py(12): step", 1, 60),
      span("python_function", "nn.Module: Linear_0", 1, 60),
      span("python_function", "<built-in function linear>", 1, 60),
      span("cpu_op", "aten::linear", 2, 20),
      span("cpu_op", "aten::addmm", 3, 10),
      Memory{.time_us = 4.5, .bytes = 1024, .address = 4096, .allocated = 1024}.text(),
      span("cpu_op", "aten::relu", 30, 5),
      span("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 40, 20, 2),
      span("cpu_op", "MmBackward0", 41, 18, 2),
      span("cpu_op", "aten::mm", 42, 10, 2),
      Memory{.time_us = 43, .bytes = 512, .address = 8192, .allocated = 1536, .thread = 2}.text(),
      Memory{.time_us = 70, .bytes = -1024, .address = 4096, .allocated = 512}.text(),
  });
  ASSERT_THAT(snapshot.traces, SizeIs(1));
  const Trace& trace = snapshot.traces[0];
  EXPECT_EQ(trace.name, "run");
  ASSERT_THAT(trace.events, SizeIs(3));
  EXPECT_EQ(trace.events[1].time_us, 38);
  EXPECT_EQ(trace.events[2].op, TraceOp::kFreeCompleted);
  EXPECT_EQ(trace.events[2].block, 0u);
  EXPECT_THAT(trace.addresses, ElementsAre(4096u, 8192u));
  EXPECT_EQ(trace.early_blocks, 0u);
  EXPECT_EQ(trace.live_peak_bytes(), 1536u);
  EXPECT_EQ(trace.most_reserved_bytes, 2097152u);
  EXPECT_EQ(call_site_of(trace, 0), "step train.py:12: linear (addmm)");
  EXPECT_EQ(call_site_of(trace, 1), "backward of mm");
  ASSERT_THAT(trace.marks, SizeIs(2));
  EXPECT_EQ(trace.marks[0].kind, MarkKind::kPhaseBegin);
  EXPECT_EQ(trace.sites->text(trace.marks[0].text), "ProfilerStep#2");
  EXPECT_EQ(trace.marks[1].event, 3u);
  EXPECT_THAT(trace.warnings, Contains(HasSubstr("replays are approximate")));
}

TEST(Profile, IsReadInTheOrderOfItsTimes) {
  const Snapshot snapshot = parsed({
      Memory{.time_us = 30, .bytes = -1024, .address = 4096, .allocated = 0}.text(),
      Memory{.time_us = 20, .bytes = 1024, .address = 4096, .allocated = 1024}.text(),
  });
  EXPECT_EQ(snapshot.traces.at(0).early_blocks, 0u);
  EXPECT_EQ(snapshot.traces.at(0).events.at(0).op, TraceOp::kAlloc);
}

TEST(Profile, KnowsWhatWasAllocatedBefore) {
  const Snapshot snapshot = parsed({
      Memory{.time_us = 10, .bytes = 1024, .address = 4096, .allocated = 10'000}.text(),
      Memory{.time_us = 20, .bytes = -2000, .address = 8192, .allocated = 8'000}.text(),
  });
  const Trace& trace = snapshot.traces.at(0);
  EXPECT_EQ(trace.early_blocks, 2u);
  EXPECT_EQ(trace.live_peak_bytes(), 10'000u) << "what PyTorch counted";
  ASSERT_THAT(trace.events, SizeIs(4));
  EXPECT_EQ(trace.events[0].size_bytes, 2000u);
  EXPECT_EQ(trace.events[1].size_bytes, 10'000u - 1024 - 2000);
  EXPECT_EQ(call_site_of(trace, 1), kUnseenBlocks);
}

TEST(Profile, OfAGpuLeavesHostMemoryAside) {
  const std::string host =
      Memory{.time_us = 5, .bytes = 64, .address = 1, .type = 0, .device = -1}.text();
  const std::string one = Memory{.time_us = 6, .bytes = 512, .address = 2, .allocated = 512}.text();
  const std::string other =
      Memory{.time_us = 7, .bytes = 256, .address = 2, .allocated = 256, .device = 3}.text();
  const Snapshot both = parsed({host, one, other});
  ASSERT_THAT(both.traces, SizeIs(2));
  EXPECT_EQ(both.traces[1].device, 3u);
  EXPECT_EQ(both.traces[1].name, "run:3");
  EXPECT_EQ(both.traces[1].live_peak_bytes(), 256u);
  EXPECT_THAT(both.notes, ElementsAre("1 events of host memory, left aside"));
  const Snapshot alone = parsed({host});
  ASSERT_THAT(alone.traces, SizeIs(1));
  EXPECT_EQ(alone.traces[0].live_peak_bytes(), 64u);
  EXPECT_THAT(alone.traces[0].warnings, Contains(HasSubstr("no GPU has events")));
}

TEST(Profile, MarksFailures) {
  const Snapshot snapshot = parsed({
      Memory{.time_us = 1, .bytes = 512, .address = 2, .allocated = 512}.text(),
      Memory{.time_us = 2, .bytes = 1 << 30, .allocated = 512}.text("[OutOfMemory]"),
  });
  const Trace& trace = snapshot.traces.at(0);
  ASSERT_THAT(trace.marks, SizeIs(1));
  EXPECT_EQ(trace.marks[0].kind, MarkKind::kOutOfMemory);
  EXPECT_EQ(trace.marks[0].size_bytes, 1u << 30);
  EXPECT_THAT(trace.warnings, Contains(HasSubstr("ran out of memory once")));
}

TEST(Profile, SaysWhatContradictsItself) {
  const Snapshot snapshot = parsed({
      Memory{.time_us = 1, .bytes = 512, .address = 2, .allocated = 512}.text(),
      Memory{.time_us = 2, .bytes = 512, .address = 2, .allocated = 9728}.text(),
      Memory{.time_us = 3, .bytes = -512, .address = 2, .allocated = 9216}.text(),
      Memory{.time_us = 4, .bytes = -512, .address = 2, .allocated = 8704}.text(),
  });
  const Trace& trace = snapshot.traces.at(0);
  EXPECT_EQ(trace.live_peak_bytes(), 512u);
  EXPECT_THAT(trace.warnings, Contains(HasSubstr("2 events contradict earlier ones")));
  EXPECT_THAT(trace.warnings, Contains(HasSubstr("PyTorch counted up to 8.50 KiB more or less")));
}

TEST(Profile, ThatTellsNothingOfMemorySaysWhatToRecord) {
  EXPECT_THAT(profile_failure(profile({span("cpu_op", "aten::add", 1, 2)})),
              HasSubstr("is a profile without events of memory: record with "
                        "torch.profiler.profile(profile_memory=True)"));
  EXPECT_THAT(profile_failure(R"([{"name": "[memory]", "ph": "i", "args": {"Bytes": 4}}])"),
              HasSubstr("whose 1 events of memory have no addresses"));
  EXPECT_THAT(profile_failure("[[1, 2], [[0, 4], [0, 8]]]"), HasSubstr("give the profile itself"));
  EXPECT_THAT(profile_failure(R"([[-1, 0, 65536, 0]])"), HasSubstr("export_memory_timeline"));
  EXPECT_THAT(profile_failure(R"({"loss": [1, 2]})"),
              HasSubstr("neither a profile (traceEvents) nor"));
  EXPECT_THAT(profile_failure("[]"), HasSubstr("neither a profile"));
}

TEST(Profile, ThatIsDamagedIsRefusedWithThePlace) {
  const std::string sound =
      profile({Memory{.time_us = 1, .bytes = 512, .address = 2, .allocated = 512}.text()});
  EXPECT_THAT(profile_failure(sound), IsEmpty());
  for (std::size_t cut = 1; cut < sound.size(); ++cut)
    EXPECT_THAT(profile_failure(sound.substr(0, cut)), HasSubstr("run.json:1:")) << cut;
  EXPECT_THAT(profile_failure(sound.substr(0, 40)), HasSubstr("the file may be truncated"));
  EXPECT_THAT(profile_failure("{\n  \"a\": nan}"), HasSubstr("run.json:2:9: no JSON at"));
  EXPECT_THAT(profile_failure("{\"a\": \"\x01\"}"), HasSubstr("no JSON at"));
  EXPECT_THAT(profile_failure(std::string(1'000'000, '[')), HasSubstr("export_memory_timeline"));
  std::string deep = profile({Memory{.time_us = 1, .bytes = 512, .address = 2}.text()});
  deep.insert(deep.find("\"GPU\""), std::string(1'000'000, '['));
  EXPECT_THAT(profile_failure(deep), HasSubstr("no JSON at"));
}

TEST(Profile, OfNumbersThatNoProgramHasIsRefused) {
  const auto refusal = [](const Memory& memory) {
    const Memory sound = {.time_us = 1, .bytes = 8, .address = 2};
    return profile_failure(profile({sound.text(), memory.text()}));
  };
  EXPECT_THAT(refusal({.time_us = 1e300, .bytes = 8, .address = 4}),
              HasSubstr("time is not one that a clock has"));
  for (const std::int64_t bytes : {INT64_MAX, INT64_MIN})
    EXPECT_THAT(refusal({.bytes = bytes, .address = 4}), HasSubstr("exceeds the largest request"));
  EXPECT_THAT(refusal({.bytes = 8, .address = 4, .device = 5000}), HasSubstr("of device 5000"));
}

TEST(SnapshotJson, IsReadAsThePickleIs) {
  const std::string snapshot =
      R"({"segments": [{"device": 0, "address": 1000, "total_size": 700, "allocated_size": 100,)"
      R"( "stream": 0, "blocks": [{"address": 1000, "size": 700, "requested_size": 690,)"
      R"( "state": "active_allocated"}]}], "device_traces": [[{"action": "alloc", "addr": 1000,)"
      R"( "size": 690, "stream": 0, "time_us": 5, "frames": [{"name": "f", "filename": "a.py",)"
      R"( "line": 300}]}, {"action": "free_requested", "addr": 18446744073709551615, "size": 1,)"
      R"( "stream": -3, "time_us": 6, "frames": []}]], "allocator_settings": {"a": 1.5,)"
      R"( "b": false, "c": null}})";
  for (const std::string& text : {snapshot, "\xEF\xBB\xBF \n" + snapshot,
                                  "{\"rank\": 3, \"memory\": " + snapshot + "}",
                                  "[" + snapshot + "]"}) {
    EXPECT_FALSE(parse_profile(text, "run.json").has_value());
    const Snapshot read = parse_snapshot(pickle_of_json(text, "run.json"), "run.json");
    ASSERT_THAT(read.traces, SizeIs(1)) << text;
    EXPECT_EQ(read.traces[0].events.at(1).size_bytes, 690u);
    EXPECT_EQ(read.traces[0].addresses.at(0), ~std::uint64_t{0});
    EXPECT_EQ(call_site_of(read.traces[0], 1), "f a.py:300");
    EXPECT_THAT(read.settings, ElementsAre(Pair("a", "1.5"), Pair("b", "False"),
                                           Pair("c", "None")));
  }
  const std::size_t begin = snapshot.find('[');
  const std::string segments = snapshot.substr(begin, snapshot.find(", \"device_traces\"") - begin);
  EXPECT_FALSE(parse_profile(segments, "run.json").has_value());
  const Snapshot still = parse_snapshot(pickle_of_json(segments, "run.json"), "run.json");
  EXPECT_THAT(still.segments, SizeIs(1));
  EXPECT_EQ(still.traces.at(0).live_peak_bytes(), 690u);
  EXPECT_THROW(pickle_of_json(snapshot.substr(0, 90), "run.json"), ParseError);
}

TEST(SnapshotJson, IsKnownByItsContentWhateverTheFileIsCalled) {
  const testing::TemporaryFile file("snapshot.pickle");
  std::ofstream(file.path()) << R"({"snapshot": {"segments": [], "device_traces": [[)"
                             << R"({"action": "alloc", "addr": 16, "size": 5, "stream": 0}]]}})";
  EXPECT_EQ(load_snapshot(file.path()).traces.at(0).live_peak_bytes(), 5u);
}

TEST(Snapshot, InsideWhatAProgramPutAroundItIsFound) {
  namespace pickled = testing::pickled;
  const std::string inner = pickled::dict(
      {{"segments", pickled::list({})},
       {"device_traces", pickled::list({pickled::list({pickled::entry("alloc", 1, 10)})})}});
  for (const std::string& outer :
       {pickled::dict({{"rank", pickled::number(3)}, {"snapshot", inner}}),
        pickled::list({pickled::text("rank 3"), inner})}) {
    const Snapshot read = parse_snapshot(pickled::file(outer), "run.pickle");
    EXPECT_EQ(read.traces.at(0).live_peak_bytes(), 10u);
  }
  EXPECT_THROW(parse_snapshot(pickled::file(pickled::dict({{"model", pickled::dict({})}})), "x"),
               ParseError);
}

}  // namespace
}  // namespace tenon
