#include "tenon/lab/advice/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lab/traces.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/advice/advice_report.h"
#include "tenon/lab/advice/conf_choice.h"
#include "tenon/lab/advice/recorded_programs.h"
#include "tenon/lab/advice/recorded_settings.h"
#include "tenon/lab/capacity.h"
#include "tenon/memory/gpu/pytorch_rules.h"
#include "tenon/trace/load.h"

namespace tenon {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

AdviceOptions quick() {
  AdviceOptions options;
  options.effort = 0.2;
  return options;
}

Workload recorded(const std::string& name) {
  return Workload(
      load_traces(std::string(TENON_SOURCE_DIR) + "/data/traces/" + name + ".csv.zst").at(0));
}

TEST(ConfChoices, AreAllAcceptedAndDistinct) {
  std::set<std::string> seen;
  for (const ConfChoice& choice : coarse_choices({2, 11})) {
    EXPECT_NO_THROW(parse_caching_settings(choice.text())) << choice.text();
    EXPECT_TRUE(seen.insert(choice.text()).second) << choice.text();
    for (const ConfChoice& other : neighbours_of(choice, {2, 11})) {
      EXPECT_NO_THROW(parse_caching_settings(other.text())) << other.text();
      EXPECT_NE(other.text(), choice.text());
    }
  }
  EXPECT_THAT(ConfChoice{}.text(), IsEmpty());
}

TEST(ConfChoices, HaveOnlyWhatAVersionAccepts) {
  const std::size_t all = coarse_choices({2, 11}).size();
  std::size_t last = 0;
  for (const TorchVersion version : {TorchVersion{2, 0}, {2, 1}, {2, 11}}) {
    const std::vector<ConfChoice> choices = coarse_choices(version);
    EXPECT_GT(choices.size(), last);
    last = choices.size();
    for (const ConfChoice& choice : choices)
      for (const ConfChoice& other : neighbours_of(choice, version))
        EXPECT_TRUE(accepts(version, other.text())) << other.text();
  }
  EXPECT_EQ(last, all);
}

TEST(TorchSettings, KnowEveryKeyOfTheParser) {
  for (const TorchSetting& setting : torch_settings())
    try {
      parse_caching_settings(std::string(setting.key) + ":nonsense");  // some take anything
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), Not(HasSubstr("is no allocator setting")));
    }
  try {
    parse_caching_settings("nonsense:1");
  } catch (const InvalidArgument& error) {
    const std::string known = error.what();
    EXPECT_EQ(static_cast<std::size_t>(std::count(known.begin(), known.end(), ',')) + 1,
              torch_settings().size());
  }
}

TEST(TorchSettings, CompareVersionsAsNumbers) {
  EXPECT_LT(parse_torch_version("2.9.1"), parse_torch_version("2.10.0+cu124"));
  EXPECT_TRUE(accepts({2, 1}, "expandable_segments:True,roundup_power2_divisions:[1:2,>:4]"));
  EXPECT_FALSE(accepts({2, 10}, "large_segment_size_mb:40"));
  EXPECT_FALSE(accepts({2, 11}, "no_such_key:1"));
  EXPECT_TRUE(accepts({2, 8}, "expandable_segments:True,max_split_size_mb:21"));
  for (const char* least : {"max_split_size_mb:20", "max_non_split_rounding_mb: 20"}) {
    EXPECT_FALSE(accepts({2, 8}, least));
    EXPECT_TRUE(accepts({2, 9}, least));
  }
  EXPECT_THAT(fidelity_note("garbage_collection_threshold:0.8"), HasSubstr("approximate"));
  EXPECT_THAT(fidelity_note("expandable_segments:True"), IsEmpty());
}

TEST(RecordedSettings, ReadTheTextOrTheValues) {
  Snapshot snapshot;
  EXPECT_FALSE(recorded_settings(snapshot).known);
  snapshot.settings = {{"PYTORCH_CUDA_ALLOC_CONF", ""},
                       {"max_split_size", "268435456"},
                       {"expandable_segments", "False"},
                       {"roundup_power2_divisions", "{1: 0, 2: 8, 4: 8}"}};
  EXPECT_EQ(recorded_settings(snapshot).conf,
            "max_split_size_mb:256,roundup_power2_divisions:[1:0,2:8,4:8]");
  snapshot.settings[0].second = "expandable_segments:True";
  EXPECT_EQ(recorded_settings(snapshot).conf, "expandable_segments:True");
  snapshot.settings[0].second = "max_split_size_mb:20";  // from PyTorch 2.9 on
  EXPECT_TRUE(recorded_settings(snapshot).known);
  EXPECT_EQ(recorded_settings(snapshot).settings.max_split_size, 20 * kMiB);
  snapshot.settings[0].second = "from_the_future:1";
  const RecordedSettings unknown = recorded_settings(snapshot);
  EXPECT_FALSE(unknown.known);
  EXPECT_THAT(unknown.warning, HasSubstr("from_the_future"));
  EXPECT_THAT(unknown.conf, IsEmpty());
}

TEST(RecordedSettings, KnowExpandableSegmentsWhenTheyAreSeen) {
  Snapshot snapshot;
  snapshot.segments.push_back({.total_bytes = kMiB, .expandable = true});
  EXPECT_EQ(recorded_settings(snapshot).conf, "expandable_segments:True");
}

TEST(RecordedSettings, ReplaysFollowAVersionThatIsNamed) {
  Snapshot snapshot;
  snapshot.traces.emplace_back();
  replay_as({2, 12}, snapshot);
  EXPECT_TRUE(snapshot.traces[0].oldest_segment_first);
  replay_as({2, 11}, snapshot);
  EXPECT_FALSE(snapshot.traces[0].oldest_segment_first);
}

TEST(RecordedSettings, TellTheOldestPyTorchThatWritesSuchASnapshot) {
  Snapshot snapshot;
  EXPECT_FALSE(oldest_torch(snapshot)) << "no snapshot of PyTorch's";
  snapshot.fields = {"segments", "device_traces"};
  snapshot.segments.push_back({.total_bytes = kMiB});
  EXPECT_EQ(oldest_torch(snapshot), kFirstTorch);
  snapshot.fields.push_back("is_expandable");
  EXPECT_EQ(oldest_torch(snapshot), (TorchVersion{2, 1}));
  snapshot.fields = {"segments", "device_traces", "allocator_settings"};
  EXPECT_EQ(oldest_torch(snapshot), (TorchVersion{2, 3}));
  snapshot.fields.push_back("external_annotations");
  EXPECT_EQ(oldest_torch(snapshot), (TorchVersion{2, 5}));
  snapshot.settings = {{"PYTORCH_CUDA_ALLOC_CONF", "large_segment_size_mb:40"}};
  EXPECT_EQ(oldest_torch(snapshot), (TorchVersion{2, 11})) << "it ran with a setting of 2.11";
  snapshot.fields.push_back("pool_id");
  EXPECT_EQ(oldest_torch(snapshot), (TorchVersion{2, 12}));
  snapshot.settings.emplace_back("max_round_threshold", "-1");
  EXPECT_EQ(oldest_torch(snapshot), (TorchVersion{2, 13}));
  snapshot.fields.push_back("host_segments");
  EXPECT_EQ(oldest_torch(snapshot), (TorchVersion{2, 14}));
  const Snapshot shipped = load_snapshot(TENON_SOURCE_DIR "/data/snapshots/gpt2.pickle");
  EXPECT_EQ(oldest_torch(shipped), (TorchVersion{2, 9})) << "recorded with 2.11";
  EXPECT_EQ(accepted_since("max_split_size_mb:64"), kFirstTorch);
  EXPECT_EQ(accepted_since("max_split_size_mb:64,large_segment_size_mb:40"),
            (TorchVersion{2, 11}));
}

TEST(RecordedSettings, FindTheReservedPeakByUndoingTheMarks) {
  Snapshot snapshot;
  snapshot.segments.push_back({.total_bytes = 20 * kMiB});
  Trace trace;
  const auto mark = [&](MarkKind kind, std::uint64_t mib) {
    TraceMark made;
    made.kind = kind;
    made.size_bytes = mib * kMiB;
    trace.marks.push_back(made);
  };
  EXPECT_EQ(recorded_reserved_peak(snapshot, trace), 20 * kMiB);
  mark(MarkKind::kSegmentAlloc, 30);  // before it: 10
  mark(MarkKind::kSegmentFree, 40);   // before it: 60
  mark(MarkKind::kSegmentMap, 5);
  mark(MarkKind::kSegmentUnmap, 5);
  EXPECT_EQ(recorded_reserved_peak(snapshot, trace), 60 * kMiB);
}

// The program's own empty_cache() has another stack than the request that follows it.
TEST(RecordedSettings, CountHowOftenTheDeviceWasFull) {
  const auto sites = std::make_shared<SiteTable>();
  const auto site = [&](std::string_view function) {
    const std::uint32_t frame = sites->add_frame(function, "x.py", 1);
    return sites->add_site({.stack = sites->add_stack({&frame, 1})});
  };
  Trace trace;
  trace.sites = sites;
  const auto mark = [&](MarkKind kind, std::uint32_t event, std::uint32_t of_site) {
    TraceMark made;
    made.kind = kind;
    made.event = event;
    made.site = of_site;
    trace.marks.push_back(made);
  };
  const std::uint32_t relu = site("relu"), empty_cache = site("empty_cache");
  const auto pair = [&](std::uint32_t went_at, std::uint32_t by, std::uint32_t came_at) {
    mark(MarkKind::kSegmentFree, went_at, by);
    mark(MarkKind::kSegmentAlloc, came_at, by == 0 ? 0 : relu);
  };
  pair(3, empty_cache, 3);
  pair(4, relu, 5);
  pair(6, 0, 6);
  EXPECT_EQ(times_full({}, trace), 0u);
  mark(MarkKind::kSegmentFree, 7, relu);
  pair(7, relu, 7);
  mark(MarkKind::kSegmentUnmap, 9, relu);
  mark(MarkKind::kSegmentMap, 9, relu);
  EXPECT_EQ(times_full({}, trace), 2u);
  Snapshot collects;
  collects.settings = {{"PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.8"}};
  EXPECT_EQ(times_full(collects, trace), 0u);
}

TEST(Advise, IsNotWorseThanTheRecordingAndCanBeMadeAgain) {
  const Workload workload = recorded("gnn_sampled");
  for (const char* conf : {"", "expandable_segments:True", "max_split_size_mb:64"}) {
    const Advice advice = tenon::advise({{&workload, conf, true, std::nullopt, ""}}, quick());
    const AdviceFigures& best = advice.best.programs[0];
    EXPECT_LE(best.reserved_peak_bytes, advice.recorded.programs[0].reserved_peak_bytes);
    EXPECT_LE(best.min_capacity_bytes, advice.recorded.programs[0].min_capacity_bytes);
    ReplaySetup setup;
    setup.policy = "caching";
    setup.options.conf = advice.best.conf;
    const ReplayFigures again = replay(workload, setup);
    EXPECT_EQ(again.reserved_peak_bytes, best.reserved_peak_bytes);
    EXPECT_EQ(again.ledger.stall_ns, best.driver_stall_ns);
    EXPECT_EQ(find_min_capacity(workload, setup, best.reserved_peak_bytes),
              best.min_capacity_bytes);
  }
}

TEST(Advise, ReservesNoMoreThanPyTorchDidWhenItWasRecorded) {
  const Workload workload = recorded("gnn_sampled");
  const Advice advice = tenon::advise({{&workload, "", true, kGiB, ""}}, quick());
  EXPECT_EQ(advice.outcome, AdviceOutcome::kNothingNeeded) << "no settings reserve 1 GiB here";
  EXPECT_THAT(advice_verdict(advice), HasSubstr("or more reserved bytes than PyTorch held"));
}

TEST(Advise, MayReserveMoreThanAFullDeviceLetPyTorchHold) {
  const Workload workload = recorded("gnn_sampled");
  AdvisedProgram program = {&workload, "", true, kGiB, ""};
  program.times_full = 2;
  const Advice advice = tenon::advise({program}, quick());
  EXPECT_EQ(advice.outcome, AdviceOutcome::kSet);
  EXPECT_THAT(advice_text(advice), HasSubstr("when it was recorded; 2 times the device was full"));
}

TEST(Advise, SaysHowOftenTheProgramEmptiedTheCache) {
  Trace trace =
      testing::TraceMaker().alloc(1, 0, 40 << 20).free(1, 1).alloc(2, 2, 60 << 20).make();
  const auto text = [&] {
    const Workload workload(trace);
    return advice_text(tenon::advise({{&workload, "", true, std::nullopt, ""}}, quick()));
  };
  EXPECT_THAT(text(), Not(HasSubstr("gave idle memory back")));
  TraceMark call;
  call.kind = MarkKind::kEmptyCache;
  call.event = 2;
  trace.marks.push_back(call);
  EXPECT_THAT(text(), HasSubstr("; 1 time the program gave idle memory back (empty_cache, sleep), "
                                "and so do replays"));
}

TEST(Advise, SaysThatTheRecordingContradictsItself) {
  Snapshot snapshot =
      load_snapshot(std::string(TENON_SOURCE_DIR) + "/data/snapshots/gnn_sampled.pickle");
  const auto verdict = [&] {
    RecordedPrograms programs;
    add_programs(snapshot, "gnn_sampled.pickle", std::nullopt, programs);
    const Advice advice = tenon::advise(programs.programs, quick());
    EXPECT_THAT(advice_text(advice), HasSubstr(advice_verdict(advice)));
    return advice_verdict(advice);
  };
  EXPECT_THAT(verdict(), Not(HasSubstr("contradicts itself")));
  for (SnapshotSegment& segment : snapshot.segments) segment.total_bytes = 512;
  EXPECT_THAT(verdict(), HasSubstr("gnn_sampled: The recording contradicts itself: 723"));
}

TEST(Advise, DoesNotDependOnTheNumberOfThreads) {
  const Workload workload(testing::random_trace(4, 3000, 2));
  AdviceOptions options = quick();
  options.threads = 1;
  const Advice alone = advise(workload, options);
  options.threads = 3;
  const Advice together = advise(workload, options);
  EXPECT_EQ(alone.best.conf, together.best.conf);
  EXPECT_EQ(alone.settings_tried, together.settings_tried);
}

TEST(Advise, SaysWhenTheProgramItselfIsTooLarge) {
  const Workload workload(testing::random_trace(4, 1000));
  AdviceOptions options = quick();
  options.outside = OutsideMemory{};
  options.capacity_bytes = workload.live_peak_bytes() - 1;
  EXPECT_EQ(advise(workload, options).outcome, AdviceOutcome::kHopeless);
  options.outside = OutsideMemory{};
  options.capacity_bytes = workload.live_peak_bytes() * 4 + 64 * kMiB;
  EXPECT_EQ(advise(workload, options).outcome,
            AdviceOutcome::kNothingNeeded);
}

TEST(Advise, FindsNothingThatFitsJustAboveTheLivePeak) {
  const Workload workload = recorded("gnn_sampled");
  AdviceOptions options = quick();
  options.outside = OutsideMemory{};
  options.capacity_bytes = workload.live_peak_bytes();
  const Advice advice = tenon::advise(workload, options);
  EXPECT_EQ(advice.outcome, AdviceOutcome::kNothingFits);
  EXPECT_FALSE(advice.best.fits());
  EXPECT_LE(advice.best.at_worst().min_capacity_bytes,
            advice.recorded.at_worst().min_capacity_bytes);
}

TEST(Advise, PrintsEachByteWhereTwoFiguresRoundToTheSame) {
  Advice advice;
  advice.outcome = AdviceOutcome::kSet;
  advice.best.programs = {{kGiB, 1605638009, 0, std::nullopt}};
  advice.recorded.programs = {{2 * kGiB, 1612408739, 0, std::nullopt}};
  EXPECT_THAT(advice_verdict(advice),
              HasSubstr("reserves 1 GiB instead of 2 GiB (1 GiB less); fits on a device with "
                        "1,605,638,009 bytes instead of 1,612,408,739 bytes (6.46 MiB less)"));
}

TEST(Advise, SaysWhereASavingIsCountedFromMoreThanPyTorchHeld) {
  Advice advice;
  advice.outcome = AdviceOutcome::kSet;
  advice.best.programs = {{kGiB, kGiB, 0, std::nullopt}};
  advice.recorded.programs = {{3 * kGiB, 2 * kGiB, 0, std::nullopt}};
  advice.programs.emplace_back().recorded_peak_bytes = 2 * kGiB;
  EXPECT_THAT(advice_verdict(advice),
              EndsWith("When it was recorded PyTorch held 2 GiB, less than the replay of the same "
                       "settings: the saving may be smaller."));
  advice.programs[0].recorded_peak_bytes = 3 * kGiB;
  EXPECT_THAT(advice_verdict(advice), Not(HasSubstr("may be smaller")));
}

TEST(Advise, SaysWhenATradeOffIsOfUse) {
  Advice advice;
  advice.outcome = AdviceOutcome::kNothingNeeded;
  advice.programs.emplace_back();
  advice.recorded.programs = {{2 * kGiB, kGiB, 0, std::nullopt}};
  advice.expandable.emplace();
  advice.expandable->programs = {{kGiB, kGiB + kMiB, 0, std::nullopt}};
  EXPECT_THAT(advice_verdict(advice),
              AllOf(HasSubstr("reserves 1 GiB instead of 2 GiB (1 GiB less)"),
                    HasSubstr("(1 MiB more). Without it PyTorch returns its cache"),
                    HasSubstr("to leave memory to other programs, not to fit")));
  advice.expandable->programs = {{3 * kGiB, kGiB / 2, 0, std::nullopt}};
  EXPECT_THAT(advice_verdict(advice),
              HasSubstr("to fit on a smaller device, not to leave memory to other programs"));
  advice.expandable->programs = {{kGiB, kGiB, 0, std::nullopt}};
  EXPECT_THAT(advice_verdict(advice), EndsWith("fits on a device with 1 GiB as before."));
}

TEST(Advise, TakesAProgramWithoutEvents) {
  const Workload workload(testing::TraceMaker().make());
  const Advice advice = tenon::advise(workload, quick());
  EXPECT_EQ(advice.outcome, AdviceOutcome::kNothingNeeded);
  EXPECT_EQ(advice.best.at_worst().reserved_peak_bytes, 0u);
}

// A recording of gnn_sampled on a card that has 2400 MiB for PyTorch's allocator, with PyTorch's
// defaults: it runs out of memory.
Snapshot failed_recording(std::uint64_t room_bytes) {
  Trace trace =
      load_traces(TENON_SOURCE_DIR "/data/traces/gnn_sampled.csv.zst").at(0);
  ReplaySetup setup;
  setup.policy = "caching";
  setup.capacity_bytes = room_bytes;
  const ReplayFigures figures = replay(Workload(trace), setup);
  const std::size_t at = figures.out_of_memory.value().event - 1;
  const TraceEvent request = trace.events.at(at);
  trace.events.resize(at);
  trace.blocks = request.block;
  TraceMark mark;
  mark.kind = MarkKind::kOutOfMemory;
  mark.time_us = request.time_us;
  mark.size_bytes = request.size_bytes;
  mark.stream = trace.streams.at(request.stream);
  mark.event = static_cast<std::uint32_t>(at);
  mark.device_free_bytes = kMiB;
  trace.marks = {mark};
  Snapshot snapshot;
  snapshot.segments.push_back({.total_bytes = room_bytes - kMiB});
  snapshot.traces.push_back(std::move(trace));
  return snapshot;
}

TEST(FailedRequests, AreServedWhereTheyFailed) {
  const Snapshot snapshot = failed_recording(2400 * kMiB);
  const Trace& trace = snapshot.traces[0];
  ASSERT_TRUE(has_failed_requests(trace));
  const auto room = room_at_failure(snapshot, trace);
  ASSERT_TRUE(room.has_value());
  EXPECT_EQ(room->bytes(), 2400 * kMiB);
  EXPECT_FALSE(room->limited);
  const Trace served = with_failed_requests(trace);
  ASSERT_EQ(served.events.size(), trace.events.size() + 2);
  const TraceEvent& request = served.events[trace.events.size()];
  EXPECT_EQ(request.size_bytes, trace.marks[0].size_bytes);
  EXPECT_EQ(request.block, trace.blocks);
  EXPECT_EQ(served.blocks, trace.blocks + 1);
  EXPECT_EQ(served.events.back().op, TraceOp::kFreeCompleted);
}

TEST(FailedRequests, InTheMiddleKeepTheOrderOfEvents) {
  Snapshot snapshot = failed_recording(2400 * kMiB);
  Trace& trace = snapshot.traces[0];
  trace.marks[0].event = 7;
  trace.marks[0].stream = 12345;  // a stream that nothing else uses
  const Trace served = with_failed_requests(trace);
  EXPECT_EQ(served.streams.back(), 12345u);
  EXPECT_EQ(served.events[7].op, TraceOp::kAlloc);
  EXPECT_EQ(served.events[7].stream, served.streams.size() - 1);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(served.events[i], trace.events[i]);
  for (std::size_t i = 7; i < trace.events.size(); ++i)
    EXPECT_EQ(served.events[i + 2], trace.events[i]);
}

TEST(FailedRequests, AreReplayedByTheRulesOfTheRecording) {
  Snapshot snapshot = failed_recording(2400 * kMiB);
  Trace& trace = snapshot.traces[0];
  trace.device_name = "vulkan:0";
  TraceMark sleep;
  sleep.kind = MarkKind::kSleepToHost;
  sleep.event = static_cast<std::uint32_t>(trace.events.size() - 1);
  trace.marks[0].event = 3;
  trace.marks.push_back(sleep);
  for (const TorchVersion version : {kOldestSegmentFirst, TorchVersion{2, 11}}) {
    replay_as(version, snapshot);
    const Workload served(with_failed_requests(trace));
    EXPECT_EQ(served.oldest_segment_first(), version == kOldestSegmentFirst);
    EXPECT_TRUE(served.grows_by_shares());
    EXPECT_TRUE(served.ops().back().gives_back);
  }
}

TEST(FailedRequests, OfALimitLeaveWhatWasHeld) {
  Snapshot snapshot = failed_recording(2400 * kMiB);
  snapshot.traces[0].marks[0].device_free_bytes = 40 * kGiB;
  const auto room = room_at_failure(snapshot, snapshot.traces[0]);
  ASSERT_TRUE(room.has_value());
  EXPECT_TRUE(room->limited);
  EXPECT_EQ(room->bytes(), 2399 * kMiB);
}

TEST(Advise, TakesTheCardFromTheFailureAndFindsWhatWouldHavePassed) {
  RecordedPrograms recorded;
  add_programs(failed_recording(2400 * kMiB), "failed.pickle", std::nullopt, recorded);
  const Advice advice = tenon::advise(recorded.programs, quick());
  EXPECT_EQ(advice.capacity_bytes, 2400 * kMiB);
  EXPECT_EQ(advice.outcome, AdviceOutcome::kSet);
  EXPECT_FALSE(advice.recorded.fits());
  EXPECT_FALSE(advice.failure_not_replayed);
  EXPECT_TRUE(advice.best.fits());
  ReplaySetup setup;
  setup.policy = "caching";
  setup.options.conf = advice.best.conf;
  setup.capacity_bytes = advice.capacity_bytes;
  EXPECT_TRUE(fits(recorded.workloads[0], setup));
  EXPECT_THAT(advice_text(advice), HasSubstr("--serve-failed"));
  EXPECT_THAT(advice_text(advice), HasSubstr("are left for what the program asks for after the"));
}

TEST(Advise, SaysThatAVersionRefusesTheRecordedSettings) {
  Snapshot snapshot = load_snapshot(TENON_SOURCE_DIR "/data/snapshots/gnn_sampled.pickle");
  snapshot.settings = {{"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:20"}};
  RecordedPrograms recorded;
  add_programs(snapshot, "recorded.pickle", std::nullopt, recorded);
  AdviceOptions options = quick();
  for (const auto& [version, said] : {std::pair{TorchVersion{2, 8}, true}, {{2, 9}, false}}) {
    options.torch = version;
    const std::string text = advice_text(tenon::advise(recorded.programs, options));
    EXPECT_EQ(text.find("does not accept these settings; 2.9 and newer do") != text.npos, said);
  }
}

// gpt2's failure, had the driver had 70 GiB left.
RecordedPrograms failed_by_a_limit() {
  Snapshot snapshot = load_snapshot(TENON_SOURCE_DIR "/data/failed/gpt2.pickle");
  for (TraceMark& mark : snapshot.traces.at(0).marks)
    if (mark.kind == MarkKind::kOutOfMemory) mark.device_free_bytes = 70 * kGiB;
  RecordedPrograms recorded;
  add_programs(snapshot, "limited.pickle", std::nullopt, recorded);
  return recorded;
}

TEST(Advise, TakesNoCapacityFromTheFailureOfALimit) {
  const RecordedPrograms recorded = failed_by_a_limit();
  const Advice advice = tenon::advise(recorded.programs, quick());
  EXPECT_EQ(advice.capacity_bytes, 0u);
  const std::string text = advice_text(advice);
  EXPECT_THAT(text, HasSubstr("The limit was at least 6.75 GiB"));
  EXPECT_THAT(text, HasSubstr("the driver had 70 GiB left"));
  EXPECT_THAT(text, HasSubstr("--capacity LIMIT"));
  EXPECT_THAT(text, Not(HasSubstr("nothing helps")));
  EXPECT_THAT(advice_json(advice, 0), HasSubstr("\"limit_at_least_bytes\": 7"));
  EXPECT_THAT(advice_json(advice, 0), HasSubstr("\"failure_replayed\": null"));
}

TEST(Advise, SaysToRaiseTheLimitWhereTheCardHasRoom) {
  const RecordedPrograms recorded = failed_by_a_limit();
  AdviceOptions options = quick();
  options.capacity_bytes = 80 * kGiB;
  const Advice card = tenon::advise(recorded.programs, options);
  EXPECT_EQ(card.outcome, AdviceOutcome::kRaiseLimit);
  EXPECT_THAT(advice_verdict(card), StartsWith("a higher limit helps"));
  EXPECT_THAT(advice_verdict(card), Not(HasSubstr("--capacity")));
  options.outside = OutsideMemory{};
  options.capacity_bytes = recorded.programs[0].room->reserved_bytes;
  EXPECT_EQ(tenon::advise(recorded.programs, options).outcome, AdviceOutcome::kHopeless);
}

TEST(Advise, NeverRecommendsTheSettingsThatFailed) {
  RecordedPrograms recorded;
  add_programs(failed_recording(2400 * kMiB), "failed.pickle", std::nullopt, recorded);
  // As where the recording began late: the replay has room for what failed.
  Workload begun_late(load_traces(TENON_SOURCE_DIR "/data/traces/gpt2.csv.zst").at(0));
  recorded.programs[0].workload = &begun_late;
  recorded.programs[0].room = RoomAtFailure{80 * kGiB, 0, kGiB, false};
  const Advice advice = tenon::advise(recorded.programs, quick());
  EXPECT_TRUE(advice.failure_not_replayed);
  EXPECT_FALSE(advice.recorded.fits());
  EXPECT_NE(advice.outcome, AdviceOutcome::kNothingNeeded);
  EXPECT_NE(advice.outcome == AdviceOutcome::kSet ? advice.best.conf : "other", "");
  EXPECT_THAT(advice_text(advice), HasSubstr("Leave a margin"));
}

TEST(Advise, ReckonsWhatTheCardHoldsBesidePyTorchFromTheFailure) {
  RecordedPrograms recorded;
  add_programs(failed_recording(2400 * kMiB), "failed.pickle", std::nullopt, recorded);
  const auto outside = outside_at_failure(recorded.programs, 2500 * kMiB);
  ASSERT_TRUE(outside.has_value());
  EXPECT_EQ(outside->total(), 100 * kMiB);
  EXPECT_FALSE(outside_at_failure(recorded.programs, 2399 * kMiB)) << "a smaller card";
  EXPECT_FALSE(outside_at_failure(recorded.programs, 24 * kGiB)) << "another card";
}

}  // namespace
}  // namespace tenon
