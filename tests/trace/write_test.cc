// What is written is read back the same, by Tenon and by whoever knows the format.
#include "tenon/trace/write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/base/interruption.h"
#include "tenon/trace/csv.h"
#include "tenon/trace/load.h"
#include "tenon/trace/perfetto.h"
#include "tenon/trace/snapshot_writer.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string data(const std::string& name) { return TENON_SOURCE_DIR "/data/" + name; }

// Events with their stacks as text, since tables may number them otherwise.
std::vector<std::string> described(const Trace& trace) {
  std::vector<std::string> out;
  for (const TraceEvent& e : trace.events) {
    std::string text = std::to_string(e.time_us) + " " + std::string(trace_op_name(e.op)) + " " +
                       std::to_string(e.block) + " " + std::to_string(e.size_bytes) + " " +
                       std::to_string(trace.streams[e.stream]);
    const Site& site = trace.sites->site(e.site);
    for (const std::uint32_t frame : trace.sites->stack(site.stack))
      text += "|" + trace.sites->frame_label(frame);
    out.push_back(text + "#" + std::string(trace.sites->text(site.tag)));
  }
  return out;
}

// The segments that PyTorch's viewer needs are no memory that was ever held.
TEST(SnapshotWriterTest, SegmentsThatWereMadeUpAreNotReadBack) {
  const Trace trace = parse_csv(
      "time_us,op,id,size,stream\n0,alloc,0,1000,0\n5,free_completed,0,1000,0\n", "a.csv");
  const std::string bytes = format_snapshot(std::span(&trace, 1), {});
  EXPECT_THAT(bytes, HasSubstr("segment_type"));
  const Snapshot again = parse_snapshot(bytes, "again.pickle");
  EXPECT_THAT(again.segments, SizeIs(0));
  ASSERT_THAT(again.traces, SizeIs(1));
  EXPECT_EQ(described(again.traces[0]), described(trace));
}

TEST(Write, StopsWhenAsked) {
  const Trace trace = parse_csv("time_us,op,id,size,stream\n0,alloc,0,1000,0\n", "a.csv");
  const std::span<const Trace> traces(&trace, 1);
  const std::atomic<bool> stop = true;
  const StopScope scope(&stop);
  EXPECT_THROW(format_csv(traces), Interrupted);
  EXPECT_THROW(format_snapshot(traces, {}), Interrupted);
  EXPECT_THROW(format_perfetto(traces), Interrupted);
}

class RoundTrip : public ::testing::TestWithParam<const char*> {};

TEST_P(RoundTrip, ThroughPyTorchsFormatLosesNothing) {
  const Snapshot before = load_snapshot(data("snapshots/") + GetParam() + ".pickle");
  const testing::TemporaryFile file(".pickle");
  write_traces(before.traces, before.segments, file.path());
  const Snapshot after = load_snapshot(file.path());
  ASSERT_THAT(after.traces, SizeIs(1));
  EXPECT_EQ(described(after.traces[0]), described(before.traces[0]));
  EXPECT_EQ(after.traces[0].addresses, before.traces[0].addresses);
  EXPECT_EQ(after.figures.segments, before.figures.segments);
  EXPECT_EQ(after.figures.blocks, before.figures.blocks);
  EXPECT_EQ(after.figures.total_bytes, before.figures.total_bytes);
  EXPECT_EQ(after.figures.allocated_bytes, before.figures.allocated_bytes);
  EXPECT_EQ(after.figures.states, before.figures.states);
  EXPECT_EQ(after.figures.actions, before.figures.actions);
  EXPECT_EQ(after.figures.external_annotations, before.figures.external_annotations);
  ASSERT_EQ(after.traces[0].marks.size(), before.traces[0].marks.size());
  for (std::size_t i = 0; i < after.traces[0].marks.size(); ++i) {
    EXPECT_EQ(after.traces[0].marks[i].kind, before.traces[0].marks[i].kind);
    EXPECT_EQ(after.traces[0].marks[i].event, before.traces[0].marks[i].event);
    EXPECT_EQ(after.traces[0].marks[i].time_us, before.traces[0].marks[i].time_us);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RoundTrip,
                         ::testing::Values("gpt2", "gnn_sampled", "multistream_prefetch"),
                         [](const auto& shipped) { return std::string(shipped.param); });

// Python itself reads it, where it is there, and finds what PyTorch's viewer needs.
TEST(SnapshotWriter, WritesWhatPythonReads) {
  if (std::system("python3 -c '' >/dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  const testing::TemporaryFile file(".pickle");
  write_traces(load_traces(data("snapshots/gnn_sampled.pickle")), file.path());
  const std::string script =
      "import pickle,sys\n"
      "d=pickle.load(open(sys.argv[1],'rb'))\n"
      "t=d['device_traces'][0]\n"
      "assert len(t)==1430, len(t)\n"
      "assert all(e['frames'] is not None and 'addr' in e and 'time_us' in e for e in t)\n"
      "for s in d['segments']:\n"
      "  assert sum(b['size'] for b in s['blocks'])==s['total_size']\n"
      "  assert s['blocks'][0]['address']==s['address']\n"
      "live={}\n"
      "for e in t:\n"
      "  if e['action']=='alloc': live[e['addr']]=e['size']\n"
      "  if e['action']=='free_completed': live.pop(e['addr'])\n"
      "held={b['address'] for s in d['segments'] for b in s['blocks'] if b['state']!='inactive'}\n"
      "assert set(live)<=held\n";
  const testing::TemporaryFile program(".py", script);
  EXPECT_EQ(std::system(("python3 " + program.path() + " " + file.path()).c_str()), 0);
}

TEST(SnapshotWriter, MakesUpAddressesThatNeverOverlap) {
  const std::vector<Trace> traces = load_traces(data("traces/multistream_prefetch.csv.zst"));
  const testing::TemporaryFile file(".pickle");
  write_traces(traces, file.path());
  const Snapshot after = load_snapshot(file.path());
  ASSERT_THAT(after.traces, SizeIs(1));
  const Trace& trace = after.traces[0];
  EXPECT_EQ(trace.live_peak_bytes(), traces[0].live_peak_bytes());
  EXPECT_EQ(trace.events.size(), traces[0].events.size());
  std::map<std::uint64_t, std::uint64_t> live;  // address to end
  for (const TraceEvent& event : trace.events) {
    const std::uint64_t address = trace.addresses[event.block];
    if (event.op == TraceOp::kFreeCompleted) live.erase(address);
    if (event.op != TraceOp::kAlloc) continue;
    const auto next = live.upper_bound(address);
    ASSERT_TRUE(next == live.end() || next->first >= address + event.size_bytes);
    ASSERT_TRUE(next == live.begin() || std::prev(next)->second <= address);
    live.emplace(address, address + event.size_bytes);
  }
}

TEST(Perfetto, IsJsonWithCountersBlocksAndFailures) {
  SiteTable sites;
  const std::uint32_t stack[] = {sites.add_frame("f\"q\"", "a\\b.py", 3)};
  const std::uint32_t site = sites.add_site({sites.add_stack(stack), 0, 0});
  const std::uint32_t phase = sites.add_text("st\xff" "ep\n");
  Trace trace;
  trace.name = "run";
  trace.streams = {0};
  trace.blocks = 2;
  trace.events = {{1, 100, 0, 0, TraceOp::kAlloc, site},
                  {5, 50, 1, 0, TraceOp::kAlloc, 0},
                  {9, 100, 0, 0, TraceOp::kFreeCompleted, 0}};
  TraceMark oom;
  oom.kind = MarkKind::kOutOfMemory;
  oom.size_bytes = 77;
  oom.event = 2;
  TraceMark begin;
  begin.kind = MarkKind::kPhaseBegin;
  begin.text = phase;
  trace.marks = {begin, oom};
  trace.sites = std::make_shared<const SiteTable>(std::move(sites));

  const auto json = nlohmann::json::parse(format_perfetto(std::span(&trace, 1)));
  std::vector<std::uint64_t> live;
  int begins = 0;
  int ends = 0;
  bool failed = false;
  for (const auto& entry : json.at("traceEvents")) {
    if (entry["ph"] == "C") live.push_back(entry["args"]["live"]);
    if (entry["ph"] == "b" && entry["cat"] == "block") ++begins;
    if (entry["ph"] == "e" && entry["cat"] == "block") ++ends;
    failed = failed || entry["name"] == "out of memory";
  }
  EXPECT_THAT(live, ElementsAre(100u, 150u, 50u));
  EXPECT_EQ(begins, 2);
  EXPECT_EQ(ends, 2);
  EXPECT_TRUE(failed);
  EXPECT_EQ(json["traceEvents"][4]["name"], "f\"q\" a\\b.py:3");
}

TEST(Write, ChoosesTheFormatByTheEnding) {
  EXPECT_EQ(traces_format("a.csv"), TraceFormat::kCsv);
  EXPECT_EQ(traces_format("a.csv.zst"), TraceFormat::kCsv);
  EXPECT_EQ(traces_format("a.pickle"), TraceFormat::kSnapshot);
  EXPECT_EQ(traces_format("a.json.zst"), TraceFormat::kPerfetto);
  EXPECT_THROW(traces_format("a.txt"), InvalidArgument);
}

TEST(CsvColumns, KeepThreadDeviceAndTag) {
  const std::string text =
      "time_us,op,id,size,stream,thread,device,tag\n"
      "1,alloc,0,10,0,1,sim:0,forward\n"
      "2,alloc,0,20,0,2,sim:1,\n"
      "3,free_completed,0,10,0,1,sim:0,backward\n";
  const std::vector<Trace> traces = parse_csv_devices(text, "run.csv");
  ASSERT_THAT(traces, SizeIs(2));
  EXPECT_EQ(traces[0].name, "run:sim:0");
  EXPECT_EQ(traces[1].device, 1u);
  EXPECT_EQ(traces[1].device_name, "sim:1");
  const SiteTable& sites = *traces[0].sites;
  EXPECT_EQ(sites.text(sites.site(traces[0].events[0].site).tag), "forward");
  EXPECT_EQ(sites.site(traces[1].events[0].site).thread, 2u);
  const std::vector<Trace> again = parse_csv_devices(format_csv(traces), "run.csv");
  ASSERT_THAT(again, SizeIs(2));
  EXPECT_EQ(described(again[0]), described(traces[0]));
  EXPECT_EQ(described(again[1]), described(traces[1]));
  EXPECT_THROW(parse_csv(text, "run.csv"), ParseError);
}

}  // namespace
}  // namespace tenon
