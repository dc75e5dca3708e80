#include "tenon/trace/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

// The segments' list is handed over item by item until another list begins; what stands between the
// two is of the document.
TEST(Snapshot, KeepsFieldsBetweenTheListsThatAreHandedOver) {
  const std::string settings = dict({{"max_split_size", number(7)}, {"list", list({text("a")})}});
  const std::string bytes =
      pickled::file(dict({{"segments", list({})},
                          {"allocator_settings", settings},
                          {"device_traces", list({list({entry("alloc", 1, 10)})})}}));
  const Snapshot snapshot = parse_snapshot(bytes, "x.pickle");
  EXPECT_THAT(snapshot.settings, ElementsAre(std::pair<std::string, std::string>("max_split_size",
                                                                                "7"),
                                             std::pair<std::string, std::string>("list", "(a)")));
}

TEST(Snapshot, OfPyTorch213AndNewerTellsTheOrderOfItsSegments) {
  for (const bool newer : {false, true}) {
    const std::string settings =
        newer ? dict({{"max_split_size", number(7)}, {"max_round_threshold", number(1)}})
              : dict({{"max_split_size", number(7)}});
    const Snapshot snapshot = parse_snapshot(
        pickled::file(dict({{"segments", list({})},
                            {"device_traces", list({list({entry("alloc", 1, 10)})})},
                            {"allocator_settings", settings},
                            {"host_segments", list({})},
                            {"host_traces", list({})}})),
        "x.pickle");
    EXPECT_EQ(snapshot.traces.at(0).oldest_segment_first, newer);
    EXPECT_THAT(snapshot.notes, IsEmpty());
  }
}

TEST(Snapshot, OfPyTorch212NamesThePoolOfEachEntry) {
  for (const bool newer : {false, true}) {
    const std::vector<std::pair<std::string_view, std::string>> pool = {
        {"pool_id", list({number(0), number(0)})}};
    const Snapshot snapshot = parse_snapshot(
        pickled::file(
            dict({{"segments", list({})},
                  {"device_traces",
                   list({list({entry_with("alloc", 1, 10, 0,
                                          newer ? pool : decltype(pool){})})})}})),
        "x.pickle");
    EXPECT_EQ(snapshot.traces.at(0).oldest_segment_first, newer);
    EXPECT_EQ(std::count(snapshot.fields.begin(), snapshot.fields.end(), "pool_id"), newer);
    EXPECT_THAT(snapshot.notes, IsEmpty());
  }
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

// The five innermost frames that asked for most, and how much.
TEST_P(ShippedSnapshot, KnowsWhoAskedForMost) {
  const std::string stem = std::string(TENON_SOURCE_DIR "/data/snapshots/") + GetParam();
  std::ifstream file(stem + ".expect.json");
  const auto expect = nlohmann::json::parse(file).at("top_allocating_frames");
  const FileBytes bytes(stem + ".pickle");
  const Snapshot snapshot = parse_snapshot(bytes.view(), stem + ".pickle");
  auto frames = snapshot.figures.frame_bytes;
  std::stable_sort(frames.begin(), frames.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  ASSERT_GE(frames.size(), expect.size());
  for (std::size_t i = 0; i < expect.size(); ++i) {
    EXPECT_EQ(snapshot.sites->frame_label(frames[i].first), expect[i][0].get<std::string>());
    EXPECT_EQ(frames[i].second, expect[i][1]);
  }
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

TEST(Snapshot, KeepsWhereEventsCameFrom) {
  const std::string stack =
      list({frame("linear", "nn.py", 12), frame("main", "train.py", 3)});
  const Snapshot snapshot = parse_snapshot(
      pickled::snapshot(
          {}, {{entry_with("alloc", 1, 10, 5, {{"frames", stack}}),
                entry_with("alloc", 2, 20, 6, {{"frames", list({})}}),
                entry_with("alloc", 3, 30, 7, {{"frames", stack}, {"user_metadata", text("a")}}),
                entry_with("free_completed", 1, 10, 8, {{"frames", stack}})}}),
      "run.pickle");
  const Trace& trace = snapshot.traces.at(0);
  const SiteTable& sites = *trace.sites;
  EXPECT_EQ(trace.events[0].site, trace.events[3].site);
  EXPECT_EQ(trace.events[1].site, 0u);
  EXPECT_NE(trace.events[2].site, trace.events[0].site);
  EXPECT_EQ(sites.site(trace.events[2].site).stack, sites.site(trace.events[0].site).stack);
  EXPECT_EQ(sites.text(sites.site(trace.events[2].site).tag), "a");
  EXPECT_EQ(sites.label(trace.events[0].site), "linear nn.py:12");
  const auto frames = sites.stack(sites.site(trace.events[0].site).stack);
  ASSERT_THAT(frames, SizeIs(2));
  EXPECT_EQ(sites.frame_label(frames[1]), "main train.py:3");
  EXPECT_THAT(trace.addresses, ElementsAre(1u, 2u, 3u));
}

TEST(Snapshot, MarksWhatHappenedBetweenEvents) {
  const std::string annotation =
      dict({{"stage", text("START")}, {"name", text("step")}, {"device", number(0)},
            {"time_us", number(107)}});
  const std::string bytes = file(dict(
      {{"segments", list({segment(0, 0, 100, {block(40, 8, "active_allocated")})})},
       {"device_traces",
        list({list({entry("segment_alloc", 0, 100, 99, 7), entry("alloc", 1, 10, 100),
                    entry_with("oom", 0, 500, 110, {{"device_free", number(33)}}),
                    entry("shrug", 0, 0, 111), entry("alloc", 2, 10, 112)})})},
       {"external_annotations", list({annotation})}}));
  const Trace trace = parse_snapshot(bytes, "run.pickle").traces.at(0);
  ASSERT_THAT(trace.marks, SizeIs(4));
  EXPECT_EQ(trace.early_blocks, 1u);
  EXPECT_EQ(trace.traced_peak_bytes(), 20u);
  EXPECT_EQ(trace.live_peak_bytes(), 28u);
  EXPECT_EQ(trace.marks[0].kind, MarkKind::kSegmentAlloc);
  EXPECT_EQ(trace.marks[0].event, 1u);
  EXPECT_EQ(trace.marks[0].time_us, -1);
  EXPECT_EQ(trace.marks[0].stream, 7u);
  EXPECT_EQ(trace.marks[1].kind, MarkKind::kOutOfMemory);
  EXPECT_EQ(trace.marks[1].device_free_bytes, 33u);
  EXPECT_EQ(trace.marks[2].kind, MarkKind::kOther);
  EXPECT_EQ(trace.sites->text(trace.marks[2].text), "shrug");
  EXPECT_EQ(trace.marks[3].kind, MarkKind::kPhaseBegin);
  EXPECT_EQ(trace.sites->text(trace.marks[3].text), "step");
}

TEST(Snapshot, NamesFieldsThatItDoesNotKnow) {
  const Snapshot snapshot = parse_snapshot(
      pickled::snapshot({}, {{entry_with("alloc", 1, 10, 5, {{"colour", text("red")}})}}),
      "run.pickle");
  ASSERT_THAT(snapshot.notes, SizeIs(1));
  EXPECT_THAT(snapshot.notes[0], HasSubstr("a trace entry: colour"));
}

TEST(Snapshot, WarnsOfSegmentsThatOverlap) {
  const auto warnings = [](std::uint64_t device, std::uint64_t address) {
    return parse_snapshot(
               pickled::snapshot({pickled::segment(0, 4096, 4096, {}),
                                  pickled::segment(device, address, 4096, {})},
                                 {{entry("alloc", 1, 10)}}),
               "run.pickle")
        .traces.at(0)
        .warnings;
  };
  EXPECT_THAT(warnings(0, 8192), IsEmpty());
  EXPECT_THAT(warnings(1, 4096), IsEmpty()) << "another device";
  EXPECT_THAT(warnings(0, 6000),
              ElementsAre("run.pickle: 1 of 2 segments overlap another one, first at 0x1770: the "
                          "file was edited or damaged"));
}

TEST(Snapshot, CountsActionsThatItDoesNotKnow) {
  std::vector<std::string> entries = {entry("alloc", 1, 10), entry("teleport", 1, 10),
                                      entry("teleport", 1, 10), entry("shrug", 1, 10)};
  const auto warnings = [&] {
    return parse_snapshot(pickled::snapshot({}, {entries}), "run.pickle").traces.at(0).warnings;
  };
  EXPECT_THAT(warnings(),
              ElementsAre("run.pickle: an entry with the unknown action \"shrug\" was left aside",
                          "run.pickle: 2 entries with the unknown action \"teleport\" were left "
                          "aside"));
  for (int i = 0; i < 100; ++i) entries.push_back(entry("action" + std::to_string(i), 1, 10));
  EXPECT_THAT(warnings(), SizeIs(17));
  EXPECT_THAT(warnings().back(), HasSubstr("86 entries with other unknown actions"));
}

TEST(Snapshot, NamesStatesOfBlocksThatItDoesNotKnow) {
  const Snapshot snapshot = parse_snapshot(
      pickled::snapshot({pickled::segment(0, 4096, 512, {block(4096, 512, "petrified")})},
                        {{entry("alloc", 1, 10)}}),
      "run.pickle");
  EXPECT_THAT(snapshot.notes,
              ElementsAre("unknown state \"petrified\" of 1 block, taken as free"));
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
  EXPECT_THAT(trace.warnings[0], HasSubstr("ran out of memory when 3 MiB"));
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
  EXPECT_THAT(failure_of(pickled::snapshot({number(4)}, {})),
              HasSubstr("holds an int where a dict belongs"));
  EXPECT_THAT(failure_of("(dp0\n."),
              HasSubstr("no pickle of protocol 2 or later: write it with torch.cuda.memory"));
  EXPECT_THAT(failure_of(pickled::snapshot({}, {{entry("alloc", 1, std::uint64_t{1} << 60)}})),
              HasSubstr("exceeds the largest request"));
}

// A field of another type, or out of range, was never written by PyTorch; None and a field that is
// missing are as in older versions.
TEST(Snapshot, RefusesSegmentsThatPyTorchCannotHaveWritten) {
  const auto reason = [](const std::string& key, const std::string& value, bool of_block) {
    using Fields = std::vector<std::pair<std::string_view, std::string>>;
    Fields block = {{"size", number(512)}, {"state", text("inactive")}};
    Fields segment = {{"total_size", number(512)}, {"allocated_size", number(0)}};
    (of_block ? block : segment).emplace_back(key, value);
    segment.emplace_back("blocks", list({dict(block)}));
    return failure_of(file(dict({{"segments", list({dict(segment)})},
                                 {"device_traces", list({list({entry("alloc", 1, 10)})})}})));
  };
  EXPECT_THAT(reason("address", number(7), false), IsEmpty());
  EXPECT_THAT(reason("address", "N", false), IsEmpty());
  EXPECT_THAT(reason("address", text("x"), false), HasSubstr("a segment: \"address\" is missing"));
  EXPECT_THAT(reason("device", text("x"), false), HasSubstr("a segment: \"device\" is missing"));
  EXPECT_THAT(reason("device", number(1'000'000), false), HasSubstr("device 1000000 is none of"));
  EXPECT_THAT(reason("address", text("x"), true), HasSubstr("a block: \"address\" is missing"));
  EXPECT_THAT(reason("requested_size", text("x"), true), HasSubstr("\"requested_size\" is mis"));
  EXPECT_THAT(failure_of(file(dict({{"segments", list({})}, {"device_traces", text("x")}}))),
              HasSubstr("device_traces holds a str"));
}

// torch.save(torch.cuda.memory._snapshot(), "snapshot.pt")
TEST(Snapshot, NamesAnArchiveOfTorchSave) {
  const testing::TemporaryFile saved(".pt", std::string("PK\x03\x04\x14\0\0\0", 8));
  try {
    load_snapshot(saved.path());
    FAIL();
  } catch (const ParseError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is a zip archive, as torch.save writes: write it with "
                                        "torch.cuda.memory._dump_snapshot"));
  }
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
