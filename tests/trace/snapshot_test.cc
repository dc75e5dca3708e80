#include "tenon/trace/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace testing::pickled;
namespace pickled = testing::pickled;

std::string failure_of(const std::string& bytes) {
  try {
    parse_snapshot(bytes, "x.pickle");
  } catch (const ParseError& error) {
    return error.reason();
  }
  return "";
}

// The figures that an independent reader found in the shipped snapshots.
class ShippedSnapshot : public ::testing::TestWithParam<const char*> {};

TEST_P(ShippedSnapshot, HasTheFiguresOfAnIndependentReader) {
  const std::string stem = std::string(TENON_SOURCE_DIR "/data/snapshots/") + GetParam();
  std::ifstream file(stem + ".expect.json");
  const auto expect = nlohmann::json::parse(file);
  const FileBytes bytes(stem + ".pickle");
  const Snapshot snapshot = parse_snapshot(bytes.view(), stem + ".pickle");

  const SnapshotFigures& figures = snapshot.figures;
  EXPECT_EQ(figures.segments, expect.at("segments"));
  EXPECT_EQ(figures.blocks, expect.at("blocks"));
  EXPECT_EQ(figures.total_bytes, expect.at("total_size"));
  EXPECT_EQ(figures.allocated_bytes, expect.at("allocated_size"));
  EXPECT_EQ(figures.external_annotations, expect.at("external_annotations"));
  EXPECT_EQ(nlohmann::json(figures.trace_entries), expect.at("trace_entries"));
  EXPECT_EQ(nlohmann::json(figures.actions), expect.at("actions"));
  EXPECT_EQ(nlohmann::json(figures.states), expect.at("states"));

  ASSERT_THAT(snapshot.traces, SizeIs(1));
  const Trace& trace = snapshot.traces[0];
  EXPECT_EQ(trace.name, GetParam());
  EXPECT_EQ(trace.live_peak_bytes(), expect.at("traced_peak_bytes"));
  EXPECT_EQ(trace.blocks, expect.at("actions").at("alloc"));
  EXPECT_EQ(trace.events.front().time_us, 0);
  EXPECT_THAT(trace.warnings, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(All, ShippedSnapshot,
                         ::testing::Values("gpt2", "gnn_sampled", "multistream_prefetch"),
                         [](const auto& shipped) { return std::string(shipped.param); });

TEST(Snapshot, NumbersStreamsByFirstUse) {
  const Trace trace =
      load_traces(TENON_SOURCE_DIR "/data/snapshots/multistream_prefetch.pickle").at(0);
  EXPECT_THAT(trace.streams, SizeIs(3));
  EXPECT_EQ(trace.streams[0], 0u);
}

TEST(Snapshot, PutsBlocksFromBeforeTheRecordingAtTheStart) {
  const Snapshot snapshot = parse_snapshot(
      pickled::snapshot(
          {segment(0, 1000, 700, {block(1000, 100, "active_allocated"),
                                  block(1100, 200, "active_pending_free"),
                                  block(1300, 300, "active_allocated"),
                                  block(1600, 100, "inactive")}),
           segment(1, 9000, 100, {block(9000, 100, "active_allocated")})},
          {{entry("segment_alloc", 1000, 700, 49), entry("alloc", 1300, 300, 50),
            entry("free_requested", 1100, 200, 60), entry("free_requested", 5000, 40, 70),
            entry("free_completed", 5000, 40, 71), entry("snapshot", 0, 0, 80)}}),
      "dir/run.pickle");
  ASSERT_THAT(snapshot.traces, SizeIs(1));
  const Trace& trace = snapshot.traces[0];
  EXPECT_EQ(trace.name, "run");
  // 1100 and 5000 by their frees, 1000 by `segments`; 9000 is another device's.
  EXPECT_THAT(trace.events, ElementsAre(TraceEvent{0, 200, 0, 0, TraceOp::kAlloc},
                                        TraceEvent{0, 40, 1, 0, TraceOp::kAlloc},
                                        TraceEvent{0, 100, 2, 0, TraceOp::kAlloc},
                                        TraceEvent{0, 300, 3, 0, TraceOp::kAlloc},
                                        TraceEvent{10, 200, 0, 0, TraceOp::kFreeRequested},
                                        TraceEvent{20, 40, 1, 0, TraceOp::kFreeRequested},
                                        TraceEvent{21, 40, 1, 0, TraceOp::kFreeCompleted}));
  ASSERT_THAT(trace.warnings, SizeIs(1));
  EXPECT_THAT(trace.warnings[0], HasSubstr("3 blocks were live before"));
}

TEST(Snapshot, MakesATraceForEachDeviceThatHasEvents) {
  const Snapshot snapshot = parse_snapshot(
      pickled::snapshot({}, {{entry("alloc", 1, 10)}, {}, {entry("alloc", 1, 20, 5, 77)}}),
      "run.pickle");
  ASSERT_THAT(snapshot.traces, SizeIs(2));
  EXPECT_EQ(snapshot.traces[0].name, "run:0");
  EXPECT_EQ(snapshot.traces[1].name, "run:2");
  EXPECT_THAT(snapshot.traces[1].streams, ElementsAre(77u));
  EXPECT_THAT(snapshot.figures.trace_entries, ElementsAre(1u, 0u, 1u));
}

TEST(Snapshot, NotesWhenPyTorchRanOutOfMemoryAndMendsContradictions) {
  const Snapshot snapshot = parse_snapshot(
      pickled::snapshot({}, {{entry("alloc", 1, 10), entry("alloc", 1, 12),
                              entry("oom", 0, 3 << 20), entry("free_completed", 1, 12),
                              entry("free_completed", 1, 12)}}),
      "run.pickle");
  const Trace& trace = snapshot.traces.at(0);
  EXPECT_EQ(trace.events.size(), 4u);
  EXPECT_EQ(trace.live_peak_bytes(), 12u);
  ASSERT_THAT(trace.warnings, SizeIs(2));
  EXPECT_THAT(trace.warnings[0], HasSubstr("ran out of memory 1 times, first when 3 MiB"));
  EXPECT_THAT(trace.warnings[1], HasSubstr("2 entries contradict"));
}

TEST(Snapshot, RefusesWhatIsNone) {
  EXPECT_THAT(failure_of(file(number(1))), HasSubstr("_dump_snapshot"));
  EXPECT_THAT(failure_of(file(dict({{"x", number(1)}}))), HasSubstr("no segments"));
  EXPECT_THAT(failure_of(pickled::snapshot({}, {})), HasSubstr("_record_memory_history"));
  EXPECT_THAT(failure_of(pickled::snapshot({}, {{text("alloc")}})),
              HasSubstr("where a dict belongs"));
  EXPECT_THAT(failure_of(pickled::snapshot({}, {{dict({{"action", text("alloc")}})}})),
              HasSubstr("\"addr\" is missing"));
  EXPECT_THAT(failure_of(pickled::snapshot({number(4)}, {})), HasSubstr("where a dict belongs"));
  EXPECT_THAT(failure_of(pickled::snapshot({}, {{entry("alloc", 1, std::uint64_t{1} << 60)}})),
              HasSubstr("exceeds the largest request"));
}

// A few bytes that name the same long list again and again must not cost more than the file's size.
TEST(Snapshot, RefusesToVisitSharedListsWithoutEnd) {
  std::string shared = "](";
  for (int i = 0; i < 1000; ++i) shared += "N";
  std::string bytes =
      "\x80\x04}(" + text("segments") + "]" + text("device_traces") + "](" + shared + "e\x94";
  for (int i = 0; i < 1000; ++i) bytes += std::string("h\x00", 2);
  bytes += "eu.";
  EXPECT_THAT(failure_of(bytes), ::testing::AnyOf(HasSubstr("repeats itself"), HasSubstr("dict")));
}

TEST(Snapshot, IsReadCompressedToo) {
  const testing::TemporaryFile file(".pickle.zst");
  write_file(file.path(), pickled::snapshot({}, {{entry("alloc", 1, 10)}}));
  EXPECT_EQ(load_traces(file.path()).at(0).live_peak_bytes(), 10u);
}

}  // namespace
}  // namespace tenon
