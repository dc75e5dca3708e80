// Explanations of recordings that were made up, where every figure is known.
#include "tenon/lab/explain/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "lab/explained.h"
#include "tenon/base/byte_size.h"
#include "tenon/lab/advice/recorded_settings.h"
#include "tenon/lab/explain/diff.h"
#include "tenon/lab/explain/memory_map.h"
#include "tenon/trace/load.h"
#include "tenon/trace/snapshot.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using testing::explained;
using namespace testing::pickled;
namespace pickled = testing::pickled;

std::string snapshot_path(const std::string& name) {
  return TENON_SOURCE_DIR "/data/snapshots/" + name + ".pickle";
}

class ExplainShipped : public ::testing::TestWithParam<const char*> {};

TEST_P(ExplainShipped, GivesTheFiguresOfAnIndependentReader) {
  std::ifstream file(TENON_SOURCE_DIR "/data/snapshots/" + std::string(GetParam()) +
                     ".expect.json");
  const auto expect = nlohmann::json::parse(file);
  const std::string path = snapshot_path(GetParam());
  const auto json =
      nlohmann::json::parse(explanation_json(explain(load_snapshot(path), path)));
  for (const auto& [key, value] : expect.items()) EXPECT_EQ(json.at(key), value) << key;
}

// The causes are a partition, and what undoing the marks leaves is what the history says.
TEST_P(ExplainShipped, AccountsForEveryReservedByte) {
  const std::string path = snapshot_path(GetParam());
  const Snapshot snapshot = load_snapshot(path);
  const Explanation explanation = explain(snapshot, path);
  const DeviceExplanation& device = explanation.devices.at(0);
  ASSERT_THAT(device.memory, SizeIs(3));
  for (const MemoryAt& at : device.memory) {
    const Fragmentation& f = at.fragmentation;
    EXPECT_EQ(f.reserved_bytes, f.requested_bytes + f.rounding_bytes + f.unsplit_bytes +
                                    f.other_pools_bytes + f.stranded_bytes + f.cached_bytes +
                                    f.held_bytes + f.hole_bytes)
        << at.moment;
  }
  EXPECT_EQ(device.memory[0].fragmentation.reserved_bytes, device.reserved_at_peak_bytes);
  EXPECT_EQ(device.memory[0].fragmentation.requested_bytes, device.live_peak.bytes);
  EXPECT_EQ(device.memory[1].fragmentation.reserved_bytes, device.reserved_peak_bytes);
  EXPECT_EQ(device.memory[2].fragmentation.reserved_bytes, explanation.figures.total_bytes);
}

// The end is known exactly; reconstructing it from the events must give the same.
TEST_P(ExplainShipped, ReconstructsTheEndFromTheEvents) {
  const Snapshot snapshot = load_snapshot(snapshot_path(GetParam()));
  const Trace& trace = snapshot.traces.at(0);
  const auto lives = lifetimes(trace);
  const auto made = memory_map(trace, lives, snapshot.segments, trace.events.size(),
                               trace.marks.size(), recorded_settings(snapshot).settings);
  const auto exact = segments_of(snapshot.segments, 0);
  ASSERT_EQ(made.size(), exact.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    ASSERT_EQ(made[i].blocks.size(), exact[i].blocks.size());
    for (std::size_t b = 0; b < made[i].blocks.size(); ++b) {
      EXPECT_EQ(made[i].blocks[b].address, exact[i].blocks[b].address);
      EXPECT_EQ(made[i].blocks[b].size_bytes, exact[i].blocks[b].size_bytes);
      EXPECT_EQ(made[i].blocks[b].state, exact[i].blocks[b].state);
    }
  }
}

TEST_P(ExplainShipped, GroupsOfWhatWasLiveAddUp) {
  const std::string path = snapshot_path(GetParam());
  const Explanation explanation = explain(load_snapshot(path), path);
  const LiveSet& live = explanation.devices.at(0).at_peak;
  const auto sum = [](const std::vector<LiveGroup>& groups) {
    std::uint64_t bytes = 0;
    for (const LiveGroup& group : groups) bytes += group.bytes;
    return bytes;
  };
  EXPECT_EQ(live.bytes, explanation.devices[0].live_peak.bytes);
  for (const auto* groups : {&live.by_site, &live.by_phase, &live.by_size, &live.by_age})
    EXPECT_EQ(sum(*groups), live.bytes);
}

// Adam keeps two numbers for each weight. The program frees its weights before the recording ends.
TEST(Explain, TellsPyTorchsOptimizerStateFromWeights) {
  const std::string path = snapshot_path("gpt2");
  std::map<Category, std::uint64_t> bytes;
  const Explanation explanation = explain(load_snapshot(path), path, {.replay = false});
  for (const CategoryGroup& group : explanation.devices.at(0).at_peak.by_category)
    bytes[group.category] = group.bytes;
  EXPECT_NEAR(static_cast<double>(bytes[Category::kOptimizerState]),
              2 * static_cast<double>(bytes[Category::kWeights]), 1e6);
}

INSTANTIATE_TEST_SUITE_P(All, ExplainShipped,
                         ::testing::Values("gpt2", "gnn_sampled", "multistream_prefetch"),
                         [](const auto& shipped) { return std::string(shipped.param); });

std::string pooled_segment(std::uint64_t address, std::uint64_t size, std::uint64_t stream,
                           std::string_view pool, const std::vector<std::string>& blocks) {
  return dict({{"device", number(0)},
               {"address", number(address)},
               {"total_size", number(size)},
               {"allocated_size", number(0)},
               {"stream", number(stream)},
               {"segment_type", text("large")},
               {"segment_pool_id", pool == "private" ? list({number(0), number(1)})
                                                     : list({number(0), number(0)})},
               {"blocks", list(blocks)}});
}

std::string used(std::uint64_t address, std::uint64_t size, std::uint64_t requested,
                 std::string_view state = "active_allocated") {
  return dict({{"address", number(address)},
               {"size", number(size)},
               {"requested_size", number(requested)},
               {"state", text(state)}});
}

TEST(Fragmentation, CountsEachCauseOnce) {
  const std::string bytes = pickled::snapshot(
      {
          // Two blocks in use around a hole; one is larger than its rounding explains.
          pooled_segment(0, 10'240, 0, "",
                         {used(0, 1024, 1000), block(1024, 2048, "inactive"),
                          used(3072, 7168, 512)}),
          // Held by one block that waits for another stream.
          pooled_segment(20'480, 4096, 0, "",
                         {used(20'480, 512, 512, "active_pending_free"),
                          block(20'992, 3584, "inactive")}),
          pooled_segment(40'960, 8192, 0, "", {block(40'960, 8192, "inactive")}),
          pooled_segment(61'440, 2048, 9, "", {block(61'440, 2048, "inactive")}),
          pooled_segment(81'920, 1024, 0, "private", {block(81'920, 1024, "inactive")}),
      },
      {{entry("alloc", 0, 1000, 5)}});
  const Snapshot snapshot = parse_snapshot(bytes, "x.pickle");
  const Fragmentation f = fragmentation(snapshot.segments, 0, CachingSettings{});
  EXPECT_EQ(f.reserved_bytes, 10'240u + 4096 + 8192 + 2048 + 1024);
  EXPECT_EQ(f.requested_bytes, 1000u + 512 + 512);
  EXPECT_EQ(f.rounding_bytes, 24u);
  EXPECT_EQ(f.unsplit_bytes, 6656u);
  EXPECT_EQ(f.hole_bytes, 2048u);
  EXPECT_EQ(f.held_bytes, 3584u);
  EXPECT_EQ(f.cached_bytes, 8192u);
  EXPECT_EQ(f.stranded_bytes, 2048u);
  EXPECT_EQ(f.other_pools_bytes, 1024u);
  EXPECT_EQ(f.waiting_bytes, 512u);
  EXPECT_EQ(f.largest_free_bytes, 8192u);
  EXPECT_EQ(f.free_blocks, 3u);
  ASSERT_THAT(f.held, SizeIs(1));
  EXPECT_EQ(f.held[0].total_bytes, 4096u);
  EXPECT_EQ(busiest_stream(snapshot.segments), 0u);
}

// 60 segments of 20 MiB, each with a block of 9 MiB in use and one of 9 MiB free (and the rest):
// more than half is free, nowhere more than 11 MiB in one piece, and a request of 300 MiB fails.
std::string fragmented_snapshot(std::uint64_t device_free) {
  constexpr std::uint64_t kSegments = 60;
  std::vector<std::string> segments;
  std::vector<std::string> entries;
  const auto address = [](std::uint64_t i) { return (i + 1) << 30; };
  for (std::uint64_t i = 0; i < kSegments; ++i) {
    segments.push_back(segment(0, address(i), 20 * kMiB,
                               {block(address(i), 9 * kMiB, "active_allocated"),
                                block(address(i) + 9 * kMiB, 11 * kMiB, "inactive")}));
    entries.push_back(entry("segment_alloc", address(i), 20 * kMiB, 10 * i + 1));
    entries.push_back(entry("alloc", address(i), 9 * kMiB, 10 * i + 2));
    entries.push_back(entry("alloc", address(i) + 9 * kMiB, 9 * kMiB, 10 * i + 3));
  }
  for (std::uint64_t i = 0; i < kSegments; ++i)
    for (const char* action : {"free_requested", "free_completed"})
      entries.push_back(entry(action, address(i) + 9 * kMiB, 9 * kMiB, 1000 + i));
  entries.push_back(dict({{"action", text("oom")},
                          {"device_free", number(device_free)},
                          {"size", number(300 * kMiB)},
                          {"stream", number(0)},
                          {"time_us", number(2000)}}));
  return pickled::snapshot(segments, {entries});
}

const Remedy* remedy(const OutOfMemoryReport& report, std::string_view name) {
  for (const Remedy& one : report.remedies)
    if (one.name.starts_with(name)) return &one;
  return nullptr;
}

TEST(OutOfMemory, IsFragmentationWhenEnoughIsFreeInPieces) {
  const Explanation explanation = explained(fragmented_snapshot(4 * kMiB));
  const auto& failures = explanation.devices.at(0).failures;
  ASSERT_THAT(failures, SizeIs(1));
  const OutOfMemoryReport& report = failures[0];
  EXPECT_EQ(report.reason, FailureReason::kFragmented);
  EXPECT_EQ(report.request_bytes, 300 * kMiB);
  EXPECT_EQ(report.segment_bytes, 300 * kMiB);
  EXPECT_EQ(report.live_bytes, 540 * kMiB);
  EXPECT_EQ(report.reserved_bytes, 1200 * kMiB);
  EXPECT_EQ(report.capacity_bytes, 1204 * kMiB);
  EXPECT_EQ(report.missing_bytes, 0u);
  EXPECT_EQ(report.fragmentation.held_bytes, 660 * kMiB);
  EXPECT_EQ(report.fragmentation.largest_free_bytes, 11 * kMiB);
  // The same events on a device of that size.
  ASSERT_NE(remedy(report, "PyTorch's default"), nullptr);
  EXPECT_FALSE(remedy(report, "PyTorch's default")->helps);
  EXPECT_FALSE(remedy(report, "expandable_segments:True")->helps);  // each page is in use
  EXPECT_TRUE(remedy(report, "a static plan")->helps);
  const std::string words = explanation_text(explanation);
  EXPECT_THAT(words, HasSubstr("there is room for 1.18 GiB: fragmentation failed the request"));
  EXPECT_THAT(words, HasSubstr("660 MiB of the reserved were free"));
}

TEST(OutOfMemory, IsALimitWhenTheDriverHadRoom) {
  const Explanation explanation = explained(fragmented_snapshot(640 * kMiB));
  const OutOfMemoryReport& report = explanation.devices.at(0).failures.at(0);
  EXPECT_EQ(report.reason, FailureReason::kLimited);
  ASSERT_NE(remedy(report, "a smaller request"), nullptr);
  EXPECT_THAT(remedy(report, "a smaller request")->detail,
              HasSubstr("one of 11 MiB would have passed, 289 MiB less"));
  ASSERT_NE(remedy(report, "a higher limit"), nullptr);
  EXPECT_THAT(remedy(report, "a higher limit")->detail, HasSubstr("1.46 GiB would have held"));
  // The limit was no less than what PyTorch held: replays have that much, not what was free.
  ASSERT_NE(remedy(report, "PyTorch's default"), nullptr);
  EXPECT_THAT(remedy(report, "PyTorch's default")->detail, HasSubstr("replayed with 1.17 GiB"));
  EXPECT_FALSE(remedy(report, "PyTorch's default")->helps);
  EXPECT_TRUE(remedy(report, "a static plan")->helps);
}

TEST(OutOfMemory, OfALimitBelowWhatIsNeededIsNotReplayed) {
  Snapshot snapshot = load_snapshot(TENON_SOURCE_DIR "/data/failed/gpt2.pickle");
  for (TraceMark& mark : snapshot.traces.at(0).marks)
    if (mark.kind == MarkKind::kOutOfMemory) mark.device_free_bytes = 70 * kGiB;
  const Explanation explanation = explain(snapshot, "limited.pickle");
  const OutOfMemoryReport& report = explanation.devices.at(0).failures.at(0);
  EXPECT_EQ(report.reason, FailureReason::kLimited);
  EXPECT_EQ(remedy(report, "expandable_segments:True"), nullptr);
  const std::string words = explanation_text(explanation);
  EXPECT_THAT(words, Not(HasSubstr("The request is served after")));
  EXPECT_THAT(words, Not(HasSubstr("70 GiB would have passed")));
  EXPECT_THAT(words, HasSubstr("A limit of 7.52 GiB would have let the request pass"));
}

TEST(OutOfMemory, IsTheProgramWhenLiveBytesAndRequestExceedTheMemory) {
  const Explanation explanation = explained(pickled::snapshot(
      {segment(0, 0, 40 * kMiB, {block(0, 40 * kMiB, "active_allocated")})},
      {{entry("segment_alloc", 0, 40 * kMiB, 1), entry("alloc", 0, 40 * kMiB, 2),
        dict({{"action", text("oom")},
              {"device_free", number(0)},
              {"size", number(8 * kMiB)},
              {"stream", number(0)},
              {"time_us", number(3)}})}}));
  const OutOfMemoryReport& report = explanation.devices.at(0).failures.at(0);
  EXPECT_EQ(report.reason, FailureReason::kLiveTooLarge);
  EXPECT_EQ(report.missing_bytes, 8 * kMiB);
  ASSERT_NE(remedy(report, "less live memory"), nullptr);
  EXPECT_THAT(remedy(report, "less live memory")->detail, HasSubstr("8 MiB fewer"));
}

// The settings that a snapshot was recorded under, as PyTorch writes them.
std::string with_settings(const std::vector<std::string>& segments,
                          const std::vector<std::string>& entries, std::string_view conf) {
  return pickled::file(dict({{"segments", list(segments)},
                             {"device_traces", list({list(entries)})},
                             {"allocator_settings", dict({{"PYTORCH_ALLOC_CONF", text(conf)}})}}));
}

// 60 MiB in use of a segment of 80 MiB, at the end and, by the events, at the peak.
Fragmentation recorded_under(std::string_view conf, std::uint64_t requested) {
  const Explanation explanation = explained(with_settings(
      {pooled_segment(0, 80 * kMiB, 0, "", {used(0, 80 * kMiB, requested)})},
      {entry("segment_alloc", 0, 80 * kMiB, 1), entry("alloc", 0, requested, 2),
       entry("free_completed", 0, requested, 3), entry("alloc", 0, requested, 4)},
      conf));
  const auto& moments = explanation.devices.at(0).memory;
  EXPECT_THAT(moments, SizeIs(3));
  for (const MemoryAt& at : moments) {
    EXPECT_EQ(at.fragmentation.rounding_bytes, moments[0].fragmentation.rounding_bytes);
    EXPECT_EQ(at.fragmentation.unsplit_bytes, moments[0].fragmentation.unsplit_bytes);
  }
  return moments.at(0).fragmentation;
}

TEST(Fragmentation, RoundsAsTheRecordingDid) {
  // Eighths between 64 and 128 MiB: 72 and 80 MiB.
  const Fragmentation f = recorded_under("roundup_power2_divisions:8", 73 * kMiB);
  EXPECT_EQ(f.rounding_bytes, 7 * kMiB);
  EXPECT_EQ(f.unsplit_bytes, 0u);
}

TEST(Fragmentation, SplitsAsTheRecordingDid) {
  // A request of at least max_split_size takes its block whole.
  const Fragmentation f = recorded_under("max_split_size_mb:32", 60 * kMiB);
  EXPECT_EQ(f.rounding_bytes, 0u);
  EXPECT_EQ(f.unsplit_bytes, 20 * kMiB);
}

TEST(Fragmentation, SettingsThatCannotBeReadAreSaid) {
  const Explanation explanation = explained(
      with_settings({}, {entry("alloc", 0, 512, 1)}, "max_split_size_mb:1"));
  EXPECT_THAT(explanation.notes, ::testing::Contains(HasSubstr("PyTorch's defaults are assumed")));
}

TEST(OutOfMemory, AsksTheDriverForSegmentsByTheRecordingsSettings) {
  const auto segment_bytes = [](std::uint64_t request, std::string_view conf) {
    const Explanation explanation = explained(with_settings(
        {segment(0, 0, 2 * kMiB, {block(0, 2 * kMiB, "active_allocated")})},
        {entry("segment_alloc", 0, 2 * kMiB, 1), entry("alloc", 0, 2 * kMiB, 2),
         dict({{"action", text("oom")},
               {"device_free", number(0)},
               {"size", number(request)},
               {"stream", number(0)},
               {"time_us", number(3)}})},
        conf));
    return explanation.devices.at(0).failures.at(0).segment_bytes;
  };
  EXPECT_EQ(segment_bytes(1, ""), 2 * kMiB);
  EXPECT_EQ(segment_bytes(kMiB + 1, ""), 20 * kMiB);
  EXPECT_EQ(segment_bytes(10 * kMiB - 1, ""), 10 * kMiB) << "the request is rounded first";
  EXPECT_EQ(segment_bytes(10 * kMiB + 1, ""), 12 * kMiB);
  EXPECT_EQ(segment_bytes(kMiB + 1, "large_segment_size_mb:40"), 40 * kMiB);
  EXPECT_EQ(segment_bytes(65 * kMiB, "roundup_power2_divisions:4"), 80 * kMiB);
}

// Eight iterations; each makes and drops 5 blocks, and one call site keeps one of its blocks.
std::string leaking_snapshot(bool leak) {
  std::vector<std::string> entries;
  const std::string good = list({frame("forward", "model.py", 7)});
  const std::string bad = list({frame("log_loss", "train.py", 99)});
  std::uint64_t now = 1;
  for (std::uint64_t step = 0; step < 8; ++step) {
    for (std::uint64_t i = 0; i < 5; ++i)
      entries.push_back(entry_with("alloc", 512 * i, 100 + i, now++, {{"frames", good}}));
    if (leak || step == 0)
      entries.push_back(
          entry_with("alloc", 100'000 + 512 * step, 64, now++, {{"frames", bad}}));
    for (std::uint64_t i = 0; i < 5; ++i)
      entries.push_back(entry("free_completed", 512 * i, 100 + i, now++));
  }
  return pickled::snapshot({}, {entries});
}

TEST(GrowthTest, SuspectsTheSiteThatKeepsABlockOfEachIteration) {
  const Growth growth = explained(leaking_snapshot(true)).devices.at(0).growth;
  EXPECT_THAT(growth.boundaries, SizeIs(7));
  ASSERT_THAT(growth.suspects, SizeIs(1));
  EXPECT_THAT(growth.suspects[0].name, HasSubstr("log_loss train.py:99"));
  EXPECT_EQ(growth.suspects[0].last_bytes - growth.suspects[0].first_bytes, 6u * 64);
  EXPECT_DOUBLE_EQ(growth.suspects[0].bytes_per_iteration, 64);
}

TEST(GrowthTest, ThatIsAGoodPartOfThePeakIsTheVerdict) {
  const Verdict verdict = explained(leaking_snapshot(true)).devices.at(0).verdict;
  EXPECT_THAT(verdict.sentences.at(1), HasSubstr("Memory grows: log_loss train.py:99"));
  EXPECT_FALSE(verdict.nothing_needed);
  ASSERT_THAT(verdict.changes, Not(IsEmpty()));
  EXPECT_THAT(verdict.changes[0].what, HasSubstr("keep nothing of earlier iterations"));
  EXPECT_EQ(verdict.changes[0].saves_bytes, 7u * 64) << "all but the last iteration's";
  const Verdict steady = explained(leaking_snapshot(false)).devices.at(0).verdict;
  for (const std::string& sentence : steady.sentences)
    EXPECT_THAT(sentence, Not(HasSubstr("Memory grows")));
}

TEST(GrowthTest, SuspectsNobodyWhereWhatStaysWasMadeOnce) {
  const Growth growth = explained(leaking_snapshot(false)).devices.at(0).growth;
  EXPECT_THAT(growth.found_by, Not(IsEmpty()));
  EXPECT_THAT(growth.suspects, IsEmpty());
}

TEST(MemoryMap, UndoesPagesOfExpandableSegments) {
  const std::string bytes = pickled::snapshot(
      {dict({{"device", number(0)},
             {"address", number(0)},
             {"total_size", number(20 * kMiB)},
             {"allocated_size", number(0)},
             {"stream", number(3)},
             {"segment_type", text("large")},
             {"is_expandable", "\x88"},
             {"blocks", list({block(0, 20 * kMiB, "inactive")})}})},
      {{entry("segment_map", 0, 20 * kMiB, 1, 3), entry("segment_map", 20 * kMiB, 40 * kMiB, 2, 3),
        entry("alloc", 0, 50 * kMiB, 3, 3), entry("free_completed", 0, 50 * kMiB, 4, 3),
        entry("segment_unmap", 20 * kMiB, 40 * kMiB, 5, 3)}});
  const Snapshot snapshot = parse_snapshot(bytes, "x.pickle");
  const Trace& trace = snapshot.traces.at(0);
  const auto lives = lifetimes(trace);
  const auto map =
      memory_map(trace, lives, snapshot.segments, 1, marks_before(trace, 1), CachingSettings{});
  ASSERT_THAT(map, SizeIs(1));
  EXPECT_EQ(map[0].total_bytes, 60 * kMiB);
  ASSERT_THAT(map[0].blocks, SizeIs(2));
  EXPECT_EQ(map[0].blocks[0].size_bytes, 50 * kMiB);
  const ReservedHistory history = reserved_history(trace, 20 * kMiB);
  EXPECT_EQ(history.peak().bytes, 60 * kMiB);
  EXPECT_EQ(history.at(2), 60 * kMiB);
}

TEST(Explain, TakesASnapshotWithoutEventsForWhatItIs) {
  const Explanation explanation = explained(pickled::snapshot(
      {segment(0, 0, 4096, {used(0, 1024, 900), block(1024, 3072, "inactive")})}, {}));
  ASSERT_THAT(explanation.devices, SizeIs(1));
  EXPECT_EQ(explanation.devices[0].live_peak.bytes, 900u);
  EXPECT_EQ(explanation.traced_peak_bytes, 0u);
  EXPECT_THAT(explanation.devices[0].warnings.back(), HasSubstr("no events were recorded"));
}

TEST(Explain, ExplainsCsvTracesToo) {
  const std::string path = TENON_SOURCE_DIR "/data/traces/gnn_sampled.csv.zst";
  const Explanation explanation = explain(load_snapshot(path), path);
  EXPECT_EQ(explanation.figures.segments, 0u);
  EXPECT_GT(explanation.devices.at(0).live_peak.bytes, 0u);
  EXPECT_FALSE(explanation.devices[0].reserved_known);
  EXPECT_THAT(explanation_text(explanation), HasSubstr("Live peak"));
}

TEST(Diff, SaysWhatGrewWhatIsNewAndWhatIsGone) {
  const auto recording = [](std::uint64_t grown, bool second) {
    std::vector<std::string> entries = {
        entry_with("alloc", 1, grown, 1, {{"frames", list({frame("grow", "a.py", 1)})}}),
        entry_with("alloc", 2, 50, 2, {{"frames", list({frame("same", "a.py", 2)})}}),
        entry_with("alloc", 3, 70, 3,
                   {{"frames", list({second ? frame("fresh", "a.py", 3)
                                            : frame("old", "a.py", 3)})}})};
    return parse_snapshot(pickled::snapshot({}, {entries}), "x.pickle").traces.at(0);
  };
  const TraceDiff found = diff(recording(100, false), recording(400, true));
  EXPECT_EQ(found.before_peak_bytes, 220u);
  EXPECT_EQ(found.after_peak_bytes, 520u);
  ASSERT_THAT(found.sites, SizeIs(4));
  EXPECT_EQ(found.sites[0].name, "grow a.py:1");
  EXPECT_EQ(found.sites[0].growth_bytes(), 300);
  EXPECT_EQ(found.sites[1].name, "fresh a.py:3");
  EXPECT_TRUE(found.sites[1].is_new());
  EXPECT_EQ(found.sites[3].name, "old a.py:3");
  EXPECT_TRUE(found.sites[3].is_gone());
  EXPECT_EQ(found.sites[3].growth_bytes(), -70);
  EXPECT_THAT(diff_text(found), HasSubstr("+300 B"));
  EXPECT_EQ(nlohmann::json::parse(diff_json({found}))[0]["call_sites"][0]["growth_bytes"], 300);
}

TEST(Diff, MatchesSitesWhoseLinesMoved) {
  const auto at_line = [](std::uint64_t line) {
    const std::string stack = list({frame("f", "a.py", line)});
    const std::string alloc = entry_with("alloc", 1, 10, 1, {{"frames", stack}});
    return parse_snapshot(pickled::snapshot({}, {{alloc}}), "x.pickle").traces.at(0);
  };
  EXPECT_THAT(diff(at_line(10), at_line(12)).sites, SizeIs(2));
  const TraceDiff found = diff(at_line(10), at_line(12), /*without_lines=*/true);
  ASSERT_THAT(found.sites, SizeIs(1));
  EXPECT_EQ(found.sites[0].growth_bytes(), 0);
}

}  // namespace
}  // namespace tenon
