// Categories of programs whose truth is known, and what a verdict says of small recordings.
#include "tenon/lab/verdict/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lab/explained.h"
#include "tenon/base/byte_size.h"
#include "tenon/lab/explain/diff.h"
#include "tenon/lab/explain/explain.h"
#include "rigs/known_program.h"
#include "tenon/lab/verdict/what_if.h"
#include "tenon/trace/snapshot.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using testing::explained;
using namespace testing::pickled;
namespace pickled = testing::pickled;

TEST(Categories, AreRightForProgramsWhoseTruthIsKnown) {
  double told = 0;
  double right = 0;
  std::uint64_t programs = 0;
  for (std::uint64_t seed = 2000; seed < 2060; ++seed) {
    const KnownProgram program = make_known_program(seed);
    if (program.what.find("no stacks") != std::string::npos ||
        program.what.find("begun late") != std::string::npos)
      continue;
    const TraceFacts facts(program.trace);
    const Moment peak = live_peak(program.trace);
    ASSERT_EQ(program.truth.size(), program.trace.blocks);
    double told_bytes = 0;
    double right_bytes = 0;
    for (std::uint32_t block = 0; block < program.trace.blocks; ++block) {
      if (!facts.lives[block].live_after(peak.events)) continue;
      const auto bytes = static_cast<double>(facts.lives[block].size_bytes);
      const Category found = facts.categories.blocks[block].category;
      if (found != Category::kUnknown) told_bytes += bytes;
      if (found == program.truth[block]) right_bytes += bytes;
    }
    told += told_bytes / static_cast<double>(peak.bytes);
    right += right_bytes / static_cast<double>(peak.bytes);
    ++programs;
  }
  EXPECT_GE(told / static_cast<double>(programs), 0.99);
  EXPECT_GE(right / static_cast<double>(programs), 0.95);
}

// The groups of a category add up, and the categories to all that was live.
TEST(Categories, AddUp) {
  const KnownProgram program = make_known_program(3);
  const TraceFacts facts(program.trace);
  const LiveSet live = live_set(facts, live_peak(program.trace).events);
  std::uint64_t all = 0;
  for (const CategoryGroup& group : live.by_category) {
    all += group.bytes;
    std::uint64_t bytes = 0;
    for (const LiveGroup& site : group.sites) bytes += site.bytes;
    EXPECT_EQ(bytes, group.bytes) << group.name;
    EXPECT_EQ(group.confidence_bytes[0] + group.confidence_bytes[1] + group.confidence_bytes[2],
              group.bytes);
  }
  EXPECT_EQ(all, live.bytes);
}

std::string frames(const std::vector<std::pair<const char*, const char*>>& lines) {
  std::vector<std::string> all;
  for (const auto& [function, file] : lines) all.push_back(frame(function, file, 7));
  return list(all);
}

const std::string kWeight = frames({{"_apply", "x/site-packages/torch/nn/modules/module.py"},
                                    {"main", "train.py"}});
const std::string kForward =
    frames({{"relu", "x/site-packages/torch/nn/functional.py"},
            {"forward", "model.py"},
            {"_call_impl", "x/site-packages/torch/nn/modules/module.py"},
            {"main", "train.py"}});
const std::string kElsewhere = frames({{"attend", "attention.py"},
                                       {"_call_impl", "x/site-packages/torch/nn/modules/module.py"},
                                       {"main", "train.py"}});
const std::string kMatmulBackward =
    frames({{"torch::unwind::unwind()", "??"},
            {"at::_ops::mm::call(at::Tensor const&)", "??"},
            {"torch::autograd::generated::ReluBackward0::apply(int)", "??"},
            {"torch::autograd::Engine::thread_main(int)", "??"}});

std::string request(std::uint64_t address, std::uint64_t size, std::uint64_t now,
                    const std::string& stack) {
  return entry_with("alloc", address, size, now, {{"frames", stack}});
}

// A weight, four activations, and a failure while three are live; afterwards more is live.
std::string failing(std::uint64_t device_free) {
  const auto mib = [](std::uint64_t n) { return n * kMiB; };
  std::vector<std::string> entries = {request(mib(1), mib(40), 1, kWeight),
                                      request(mib(100), mib(20), 2, kForward),
                                      request(mib(200), mib(20), 3, kForward)};
  entries.push_back(dict({{"action", text("oom")},
                          {"device_free", number(device_free)},
                          {"size", number(mib(60))},
                          {"stream", number(0)},
                          {"time_us", number(4)},
                          {"frames", kForward}}));
  entries.push_back(request(mib(300), mib(30), 5, kForward));
  return pickled::snapshot(
      {segment(0, mib(1), mib(40), {block(mib(1), mib(40), "active_allocated")}),
       segment(0, mib(100), mib(20), {block(mib(100), mib(20), "active_allocated")}),
       segment(0, mib(200), mib(20), {block(mib(200), mib(20), "active_allocated")}),
       segment(0, mib(300), mib(30), {block(mib(300), mib(30), "active_allocated")})},
      {entries});
}

TEST(VerdictTest, SpeaksOfTheFailureAndOfWhatWasLiveThen) {
  const Explanation all = explained(failing(4 * kMiB));
  const DeviceExplanation& device = all.devices.at(0);
  const Verdict& verdict = device.verdict;
  EXPECT_EQ(verdict.moment, "at the failure");
  EXPECT_EQ(verdict.peak_bytes, 140 * kMiB);  // 80 live, 60 asked for; at the peak 110 are live
  ASSERT_THAT(verdict.sentences, Not(IsEmpty()));
  EXPECT_THAT(verdict.sentences[0], HasSubstr("Out of memory: 60 MiB were asked for by forward "
                                              "model.py:7"));
  EXPECT_THAT(verdict.sentences[1], HasSubstr("weights 50 % (40 MiB), activations 50 % (40 MiB"));
  const OutOfMemoryReport& failure = device.failures.at(0);
  EXPECT_EQ(failure.live.bytes, 80 * kMiB);
  EXPECT_EQ(device.at_peak.bytes, 110 * kMiB);
  EXPECT_THAT(failure.stack.front(), HasSubstr("relu torch/nn/functional.py:7"));
  const auto json = nlohmann::json::parse(explanation_json(all));
  const auto& found = json["devices"][0];
  EXPECT_EQ(found["verdict"]["sentences"][0], verdict.sentences[0]);
  EXPECT_EQ(found["out_of_memory"][0]["live"]["by_category"][0]["bytes"], 40 * kMiB);
  EXPECT_THAT(explanation_text(all), HasSubstr("What was live then: 80 MiB in 3 blocks"));
}

// Two blocks of 40 MiB at the beginning of segments with these bytes, and a request of 80 MiB that
// failed with 4 MiB left.
Explanation failed_in_segments(std::uint64_t segment_bytes) {
  std::vector<std::string> segments, entries;
  for (const std::uint64_t address : {kGiB, 2 * kGiB}) {
    segments.push_back(segment(0, address, segment_bytes,
                               {block(address, 40 * kMiB, "active_allocated"),
                                block(address + 40 * kMiB, segment_bytes - 40 * kMiB,
                                      "inactive")}));
    entries.push_back(entry_with("segment_alloc", address, segment_bytes, 1, {}));
    entries.push_back(request(address, 40 * kMiB, 2, kForward));
  }
  entries.push_back(dict({{"action", text("oom")},
                          {"device_free", number(4 * kMiB)},
                          {"size", number(80 * kMiB)},
                          {"stream", number(0)},
                          {"time_us", number(3)}}));
  return explained(pickled::snapshot(segments, {entries}));
}

TEST(VerdictTest, NamesNoSettingWhereTheDefaultsServeTheRequestInAReplayToo) {
  const Explanation all = failed_in_segments(100 * kMiB);
  const DeviceExplanation& device = all.devices.at(0);
  ASSERT_EQ(device.failures.at(0).reason, FailureReason::kFragmented);
  std::size_t passing = 0;
  for (const Remedy& remedy : device.failures[0].remedies)
    passing += remedy.helps && (remedy.name.starts_with("PyTorch's default") ||
                                remedy.name == "expandable_segments:True");
  EXPECT_EQ(passing, 2u);
  for (const Change& change : device.verdict.changes) EXPECT_FALSE(change.lets_pass);
}

// A recording ends at its failure: that the request would have fitted says nothing of the program.
TEST(VerdictTest, SaysHowMuchIsLeftWhereFragmentationFailedTheRequest) {
  const std::string said = failed_in_segments(100 * kMiB).devices.at(0).verdict.sentences.at(0);
  EXPECT_THAT(said, HasSubstr("The request would have fitted into the 204 MiB there are"));
  EXPECT_THAT(said, HasSubstr("44 MiB are left for what the program asks for next"));
  EXPECT_THAT(said, Not(HasSubstr("The program would have fitted")));
}

TEST(VerdictTest, MeasuresWhatAChangeSaves) {
  const Explanation all = explained(failing(4 * kMiB));
  const Verdict& verdict = all.devices.at(0).verdict;
  ASSERT_THAT(verdict.changes, Not(IsEmpty()));
  const Change& half = verdict.changes[0];
  EXPECT_EQ(half.what, "halve the batch");
  EXPECT_EQ(half.peak_bytes, 120 * kMiB);  // 40 of weights, 20 of activations, the request
  EXPECT_EQ(half.saves_bytes, 20 * kMiB);
}

TEST(WhatIf, IsTheLivePeakOfTheTraceWithOtherSizes) {
  const KnownProgram program = make_known_program(11);
  const Trace& trace = program.trace;
  const auto same = [](std::uint32_t, std::uint64_t bytes) { return bytes; };
  EXPECT_EQ(live_peak_if(trace, trace.events.size(), 0, same), trace.live_peak_bytes());
  Trace halved = trace;
  for (TraceEvent& event : halved.events)
    if (program.truth[event.block] == Category::kWeights) event.size_bytes /= 2;
  EXPECT_EQ(live_peak_if(trace, trace.events.size(), 0,
                         [&](std::uint32_t block, std::uint64_t bytes) {
                           return program.truth[block] == Category::kWeights ? bytes / 2 : bytes;
                         }),
            halved.live_peak_bytes());
}

TEST(VerdictTest, SaysThatNothingIsNeededWhereNothingFailed) {
  const Explanation all = explained(pickled::snapshot(
      {}, {{request(1, 4096, 1, kWeight), request(8192, 512, 2, kForward),
            entry("free_completed", 8192, 512, 3)}}));
  const Verdict& verdict = all.devices.at(0).verdict;
  EXPECT_TRUE(verdict.nothing_needed);
  EXPECT_EQ(verdict.state, Verdict::State::kPassed);
  EXPECT_THAT(explanation_text(all), HasSubstr("Nothing has to be changed"));
}

TEST(VerdictTest, SaysWhatARecordingWithoutHistoryCannotTell) {
  const Explanation still = explained(pickled::snapshot(
      {segment(0, 0, 4096, {block(0, 4096, "active_allocated")})}, {}));
  ASSERT_THAT(still.devices.at(0).verdict.cannot_tell, SizeIs(1));
  EXPECT_EQ(still.devices[0].verdict.state, Verdict::State::kNoHistory);
  EXPECT_THAT(still.devices[0].verdict.cannot_tell[0], HasSubstr("Without history"));
  EXPECT_THAT(still.devices[0].verdict.sentences[0], HasSubstr("holds no history: 4 KiB"));
  EXPECT_THAT(still.devices[0].verdict.sentences[1], HasSubstr("unknown 100 %"));
  EXPECT_FALSE(still.devices[0].verdict.nothing_needed);
  EXPECT_FALSE(still.devices[0].has_history);
  EXPECT_THAT(explanation_text(still), HasSubstr("Live when the snapshot was taken: 4 KiB"));
  const Explanation bare = explained(
      pickled::snapshot({}, {{entry("alloc", 1, 512, 1), entry("alloc", 1024, 512, 2)}}));
  ASSERT_THAT(bare.devices.at(0).verdict.cannot_tell, SizeIs(1));
  EXPECT_THAT(bare.devices[0].verdict.cannot_tell[0], HasSubstr("no call stacks"));
}

// PyTorch 2.0 keeps one event unless asked for more.
TEST(VerdictTest, LeavesOutTheBlockOfALoneFree) {
  const Explanation freed = explained(pickled::snapshot(
      {segment(0, 0, 8192, {block(0, 4096, "active_allocated"), block(4096, 4096, "inactive")})},
      {{entry("free_completed", 4096, 4096, 1)}}));
  EXPECT_FALSE(freed.devices.at(0).has_history);
  EXPECT_EQ(freed.devices[0].live_peak.bytes, 4096u);
  EXPECT_EQ(freed.devices[0].early_blocks, 1u);
  EXPECT_THAT(freed.devices[0].verdict.sentences[0], HasSubstr("holds no history: 4 KiB"));
}

// The order in which the blocks were allocated is not known: no peak of reserved memory and no
// growth from iteration to iteration follow from it.
// The i-th of blocks of 4 MiB that lie one after another.
std::string live_block(std::uint64_t i, const std::string& site) {
  return dict({{"address", number(i * 4 * kMiB)},
               {"size", number(4 * kMiB)},
               {"requested_size", number(4 * kMiB)},
               {"state", text("active_allocated")},
               {"frames", site}});
}

// With `segment_bytes` in the driver's hands from the first event on.
Explanation one_block_live(std::uint64_t live_bytes, std::uint64_t segment_bytes) {
  return explained(pickled::snapshot(
      {segment(0, 0, segment_bytes, {block(0, live_bytes, "active_allocated")})},
      {{entry("segment_alloc", 0, segment_bytes, 1), entry("alloc", 0, live_bytes, 2),
        entry("alloc", kGiB, 1024, 3), entry("free_completed", kGiB, 1024, 4)}}));
}

TEST(VerdictTest, SaysThatMoreWasLiveThanPyTorchHeld) {
  const Explanation wrong = one_block_live(4096, 1024);
  const Verdict& verdict = wrong.devices.at(0).verdict;
  EXPECT_THAT(verdict.contradiction,
              HasSubstr("contradicts itself: 5 KiB were live while PyTorch held 1 KiB"));
  EXPECT_FALSE(verdict.nothing_needed);
  EXPECT_THAT(explanation_text(wrong), HasSubstr(verdict.contradiction));
  EXPECT_THAT(explanation_json(wrong), HasSubstr("5 KiB were live"));
  const Explanation sound = one_block_live(4096, 5120);
  EXPECT_EQ(sound.devices.at(0).verdict.contradiction, "");
  EXPECT_TRUE(sound.devices[0].verdict.nothing_needed);
}

TEST(VerdictTest, ShowsOnlyTheEndOfARecordingWithoutHistory) {
  const std::string step = frames({{"_init_group", "x/site-packages/torch/optim/adam.py"},
                                   {"<module>", "train.py"}});
  std::vector<std::string> blocks;
  for (std::uint64_t i = 0; i < 12; ++i)
    blocks.push_back(live_block(i, i % 2 == 0 ? step : kForward));
  const Explanation all =
      explained(pickled::snapshot({segment(0, 0, 12 * 4 * kMiB, blocks)}, {}));
  const DeviceExplanation& device = all.devices.at(0);
  ASSERT_THAT(device.memory, SizeIs(1));
  EXPECT_EQ(device.memory[0].moment, "end");
  EXPECT_EQ(device.memory[0].fragmentation.requested_bytes, 48 * kMiB);
  EXPECT_EQ(device.growth.iterations, 0u);
  const std::string words = explanation_text(all);
  EXPECT_THAT(words, HasSubstr("as it was when the snapshot was taken"));
  for (const char* made_up : {"Live peak", "Reserved peak", "at the reserved peak", "Leaks"})
    EXPECT_THAT(words, Not(HasSubstr(made_up)));
}

// The history's ring held one entry, a free: a rise and a fall of live bytes, but no backward pass.
TEST(VerdictTest, TakesNoFreeForABackwardPassWithoutHistory) {
  const std::string cache = frames({{"update", "x/site-packages/transformers/cache_utils.py"},
                                    {"forward", "model.py"},
                                    {"generate", "main.py"}});
  std::vector<std::string> blocks;
  for (std::uint64_t i = 0; i < 4; ++i)
    blocks.push_back(live_block(i, cache));
  const Explanation all =
      explained(pickled::snapshot({segment(0, 0, 4 * 4 * kMiB, blocks)},
                                  {{entry("free_completed", kGiB, 8, 1)}}));
  const Verdict& verdict = all.devices.at(0).verdict;
  ASSERT_FALSE(all.devices[0].has_history);
  std::vector<std::string> changes;
  for (const Change& change : verdict.changes) changes.push_back(change.what);
  EXPECT_THAT(changes, ::testing::UnorderedElementsAre("keep keys and values in half the bytes",
                                                       "halve the batch"));
}

// Bytes by category at the live peak.
std::uint64_t bytes_of(const Explanation& all, std::string_view category) {
  for (const CategoryGroup& group : all.devices.at(0).at_peak.by_category)
    if (group.name == category) return group.bytes;
  return 0;
}

// Blocks that were there before the recording: in segments, without an event.
std::vector<std::string> old_segments(std::uint64_t count, std::uint64_t size,
                                      const std::string& stack = "") {
  std::vector<std::string> segments;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = (i + 1) << 40;
    std::vector<std::pair<std::string_view, std::string>> fields = {
        {"address", number(at)}, {"size", number(size)}, {"requested_size", number(size)},
        {"state", text("active_allocated")}};
    if (!stack.empty()) fields.emplace_back("frames", stack);
    segments.push_back(segment(0, at, size, {dict(fields)}));
  }
  return segments;
}

TEST(EarlyBlocks, AreWorkspacesOnlyWhereThereAreFewOfTheSize) {
  const std::vector<std::string> entries = {request(1, 4096, 1, kForward),
                                            request(8192, 512, 2, kForward)};
  EXPECT_EQ(bytes_of(explained(pickled::snapshot(old_segments(1, 32 * kMiB), {entries})),
                     "workspaces"),
            32 * kMiB);
  const Explanation many = explained(pickled::snapshot(old_segments(97, 32 * kMiB), {entries}));
  EXPECT_EQ(bytes_of(many, "workspaces"), 0u);
  EXPECT_EQ(bytes_of(many, "weights"), 97 * 32 * kMiB);
}

// Without C++ frames the line that first multiplies matrices makes the workspace.
TEST(EarlyBlocks, AreWorkspacesByTheirSizeWhereALineOfAModuleMadeThem) {
  const std::vector<std::string> entries = {request(1, 4096, 1, kForward),
                                            request(8192, 512, 2, kForward)};
  const auto with = [&](std::uint64_t size, const std::string& stack) {
    return explained(pickled::snapshot(old_segments(1, size, stack), {entries}));
  };
  EXPECT_EQ(bytes_of(with(8'519'680, kForward), "workspaces"), 8'519'680u);
  EXPECT_EQ(bytes_of(with(8'519'681, kForward), "workspaces"), 0u);
  EXPECT_EQ(bytes_of(with(8'519'680, kWeight), "weights"), 8'519'680u);
}

TEST(EarlyBlocks, AreNoGradientsWhereNothingIsTrained) {
  std::vector<std::string> entries = {request(1, 4096, 1, kForward)};
  for (std::uint64_t i = 0; i < 3; ++i)
    entries.push_back(entry("free_completed", (50 + i) << 30, kMiB, 2 + i));
  entries.push_back(request(8192, 512, 9, kForward));
  const Explanation all = explained(pickled::snapshot(old_segments(2, kMiB), {entries}));
  EXPECT_EQ(bytes_of(all, "gradients"), 0u);
  EXPECT_EQ(bytes_of(all, "activations"), 3 * kMiB + 4096);
}

// Eight iterations, each of which keeps 64 KiB. 200 older blocks are live, of `older` bytes each.
Verdict leak_with_a_full_ring(std::uint64_t older) {
  const std::string keeps = frames({{"note", "train.py"}});
  std::vector<std::string> entries;
  std::uint64_t now = 1;
  for (std::uint64_t step = 0; step < 8; ++step) {
    for (std::uint64_t i = 0; i < 5; ++i)
      entries.push_back(request(i << 30, kMiB + 512 * i, now++, kForward));
    entries.push_back(request((10 + step) << 30, 64 * kKiB, now++, keeps));
    for (std::uint64_t i = 0; i < 5; ++i)
      entries.push_back(entry("free_completed", i << 30, kMiB + 512 * i, now++));
  }
  std::vector<std::string> segments = old_segments(200, older, keeps);
  for (std::uint64_t i = 0; i < 5; ++i) segments.push_back(segment(0, i << 30, 2 * kMiB, {}));
  const std::string bytes = pickled::snapshot(segments, {entries});
  return explained(bytes).devices.at(0).verdict;
}

TEST(VerdictTest, FindsALeakMostOfWhichIsOlderThanTheRecording) {
  const Verdict leak = leak_with_a_full_ring(64 * kKiB);
  EXPECT_FALSE(leak.nothing_needed);
  ASSERT_THAT(leak.sentences, SizeIs(::testing::Gt(1u)));
  EXPECT_THAT(leak.sentences[1], HasSubstr("Memory grows: note train.py:7"));
  EXPECT_THAT(leak.sentences[1], HasSubstr("12.50 MiB are older than the recording"));
  ASSERT_THAT(leak.changes, Not(IsEmpty()));
  EXPECT_THAT(leak.changes[0].what, HasSubstr("keep nothing of earlier iterations"));
  EXPECT_EQ(leak.changes[0].saves_bytes, 207 * 64 * kKiB) << "all but the last iteration's";
  EXPECT_FALSE(leak.changes[0].guess);
  const Verdict other = leak_with_a_full_ring(96 * kKiB);  // no size that an iteration keeps
  for (const std::string& sentence : other.sentences)
    EXPECT_THAT(sentence, Not(HasSubstr("Memory grows")));
}

TEST(VerdictTest, MarksSavingsThatRestOnGuesses) {
  const std::vector<std::string> entries = {request(1, 4096, 1, kForward),
                                            request(8192, 512, 2, kForward)};
  const auto halved = [&](const std::string& stack) {
    const Explanation all =
        explained(pickled::snapshot(old_segments(97, 32 * kMiB, stack), {entries}));
    const Verdict& found = all.devices.at(0).verdict;
    EXPECT_EQ(found.changes.at(0).what, "load the weights in half the bytes");
    EXPECT_EQ(explanation_text(all).find("a guess, as the categories") != std::string::npos,
              found.changes.at(0).guess);
    return found.changes.at(0).guess;
  };
  EXPECT_TRUE(halved("")) << "a category by size alone";
  EXPECT_FALSE(halved(kWeight));
}

TEST(EarlyBlocks, FollowTheStackOfTheirRequest) {
  const std::vector<std::string> entries = {request(1, 4096, 1, kForward),
                                            request(8192, 512, 2, kForward)};
  const auto with = [&](const std::string& stack) {
    return explained(pickled::snapshot(old_segments(3, kMiB, stack), {entries}));
  };
  EXPECT_EQ(bytes_of(with(kMatmulBackward), "gradients"), 3 * kMiB);
  EXPECT_EQ(bytes_of(with(kForward), "activations"), 3 * kMiB + 4096 + 512);
  EXPECT_EQ(bytes_of(with(kWeight), "weights"), 3 * kMiB);
}

TEST(EarlyBlocks, FollowTheStackOfTheirFree) {
  const auto freed_by = [&](const std::string& function) {
    const std::string stack = frames({{function.c_str(), "x/torch/optim/adamw.py"},
                                      {"main", "train.py"}});
    return explained(pickled::snapshot(
        {}, {{request(1, 4096, 1, kForward),
              entry_with("free_requested", 1 << 30, kMiB, 2, {{"frames", stack}}),
              entry_with("free_completed", 1 << 30, kMiB, 3, {{"frames", stack}}),
              request(8192, 512, 4, kForward)}}));
  };
  EXPECT_EQ(bytes_of(freed_by("step"), "optimizer state"), kMiB);
  EXPECT_EQ(bytes_of(freed_by("zero_grad"), "gradients"), kMiB);
}

TEST(Categories, TakeCastsForWeightsWhereAWeightHasTwiceTheBytes) {
  const std::string cast = frames({{"torch::unwind::unwind()", "??"},
                                   {"at::autocast::cached_cast(c10::ScalarType)", "??"},
                                   {"forward", "model.py"},
                                   {"_call_impl", "x/site-packages/torch/nn/modules/module.py"},
                                   {"main", "train.py"}});
  const Explanation all = explained(pickled::snapshot(
      old_segments(4, 6 * kMiB), {{request(1, 4096, 1, kForward), request(kMiB, 3 * kMiB, 2, cast),
                                   request(8 * kMiB, 5 * kMiB, 3, cast)}}));
  EXPECT_EQ(bytes_of(all, "weights"), 4 * 6 * kMiB + 3 * kMiB);
  EXPECT_EQ(bytes_of(all, "activations"), 5 * kMiB + 4096);
}

TEST(Categories, TakeCastsForWeightsThatTheProgramFreesAtItsEnd) {
  const char* const module = "x/site-packages/torch/nn/modules/module.py";
  const std::string build = frames({{"_apply", module}, {"main", "train.py"}});
  const std::string cast = frames({{"at::_ops::_to_copy::call", "??"},
                                   {"at::autocast::cached_cast(c10::ScalarType)", "??"},
                                   {"forward", "model.py"},
                                   {"_call_impl", module},
                                   {"main", "train.py"}});
  const Explanation all = explained(pickled::snapshot(
      {}, {{request(16 * kMiB, 6 * kMiB, 1, build), request(1, 4096, 2, kForward),
            request(kMiB, 3 * kMiB, 3, cast), request(8 * kMiB, 5 * kMiB, 4, cast),
            entry("free_completed", kMiB, 3 * kMiB, 5),
            entry("free_completed", 8 * kMiB, 5 * kMiB, 6),
            entry("free_completed", 16 * kMiB, 6 * kMiB, 7)}}));
  EXPECT_EQ(bytes_of(all, "weights"), 9 * kMiB);
}

TEST(Categories, AreCachesWhereALargerBlockTakesThePlace) {
  const auto generated = [&](std::uint64_t growth) {
    std::vector<std::string> entries;
    std::uint64_t now = 0;
    std::uint64_t last = 0;
    for (std::uint64_t i = 0; i < 6; ++i) {
      const std::uint64_t address = (i + 1) << 30;
      entries.push_back(request(address + kGiB / 2, 4096, ++now, kElsewhere));
      entries.push_back(entry("free_completed", address + kGiB / 2, 4096, ++now));
      entries.push_back(request(address, kMiB + i * growth, ++now, kForward));
      if (last != 0)
        entries.push_back(entry("free_completed", last, kMiB + (i - 1) * growth, ++now));
      last = address;
    }
    entries.push_back(entry("free_completed", last, kMiB + 5 * growth, ++now));
    return explained(pickled::snapshot({}, {entries}));
  };
  EXPECT_GE(bytes_of(generated(512), "KV caches"), kMiB);
  EXPECT_EQ(bytes_of(generated(0), "KV caches"), 0u) << "a layer's results, one after another";
}

TEST(VerdictTest, CountsAgesByEventsWhereThereAreNoTimes) {
  std::vector<std::string> entries;
  for (std::uint64_t i = 0; i < 120; ++i)
    entries.push_back(dict({{"action", text("alloc")},
                            {"addr", number(4096 * (i + 1))},
                            {"size", number(512)},
                            {"stream", number(0)},
                            {"frames", kForward}}));
  const Explanation all = explained(pickled::snapshot({}, {entries}));
  const auto& ages = all.devices.at(0).at_peak.by_age;
  ASSERT_THAT(ages, SizeIs(2));
  EXPECT_EQ(ages[0].name, "below 100 events");
  EXPECT_EQ(ages[0].blocks, 99u);
  EXPECT_EQ(ages[1].blocks, 21u);
}

TEST(GradientMatch, NamesTheForwardCallWhoseGradientItIs) {
  const Explanation all = explained(pickled::snapshot(
      {}, {{request(1, 4096, 1, kWeight), request(8192, 2048, 2, kForward),
            request(16384, 2048, 3, kMatmulBackward), entry("free_completed", 8192, 2048, 4)}}));
  const LiveSet& live = all.devices.at(0).at_peak;
  const auto gradients = std::find_if(
      live.by_category.begin(), live.by_category.end(),
      [](const CategoryGroup& group) { return group.category == Category::kGradients; });
  ASSERT_NE(gradients, live.by_category.end());
  EXPECT_EQ(gradients->bytes, 2048u);
  EXPECT_EQ(gradients->sites.at(0).name,
            "gradient of forward model.py:7 via relu torch/nn/functional.py:7");
}

std::string category_of(const std::vector<std::string>& entries, std::uint64_t bytes) {
  const Explanation all = explained(pickled::snapshot({}, {entries}));
  for (const CategoryGroup& group : all.devices.at(0).at_peak.by_category)
    if (group.largest_bytes == bytes) return group.name;
  return "not live";
}

TEST(Categories, TakeAClosureInAnOptimizersStepForWhatItDoes) {
  const std::string closure =
      frames({{"relu", "x/site-packages/torch/nn/functional.py"},
              {"training_step", "model.py"},
              {"closure", "x/site-packages/lightning/loop.py"},
              {"step", "x/site-packages/torch/optim/adam.py"}});
  const std::string state = frames({{"_init_group", "x/site-packages/torch/optim/adam.py"},
                                    {"step", "x/site-packages/torch/optim/adam.py"},
                                    {"main", "train.py"}});
  const std::vector<std::string> entries = {
      request(1, 4096, 1, kWeight), request(8192, 2048, 2, kForward),
      request(16384, 1024, 3, closure), request(32768, 512, 4, state),
      request(65536, 64, 5, kForward)};
  EXPECT_EQ(category_of(entries, 4096), "weights");
  EXPECT_EQ(category_of(entries, 2048), "activations");
  EXPECT_EQ(category_of(entries, 512), "optimizer state");
  EXPECT_NE(category_of(entries, 1024), "optimizer state");
}

TEST(Categories, TakeKeysAndValuesAndWorkspacesByTheirStacks) {
  const std::string cache = frames({{"update", "x/site-packages/transformers/cache_utils.py"},
                                    {"forward", "model.py"},
                                    {"generate", "main.py"}});
  const std::string scratch = frames({{"at::cuda::getNewWorkspace()", ""},
                                      {"at::_ops::bmm::call(at::Tensor const&)", "??"},
                                      {"forward", "model.py"}});
  const std::string loss = frames({{"cross_entropy", "x/site-packages/torch/nn/functional.py"},
                                   {"main", "train.py"}});
  const std::vector<std::string> entries = {request(1, 4096, 1, cache),
                                            request(8192, 2048, 2, scratch),
                                            request(16384, 1024, 3, loss)};
  EXPECT_EQ(category_of(entries, 4096), "KV caches");
  EXPECT_EQ(category_of(entries, 2048), "workspaces");
  EXPECT_EQ(category_of(entries, 1024), "loss and logits");
}

TEST(Diff, ComparesCategories) {
  const auto recording = [](std::uint64_t bytes) {
    return parse_snapshot(pickled::snapshot({}, {{request(1, 4096, 1, kWeight),
                                                  request(8192, bytes, 2, kForward)}}),
                          "x.pickle")
        .traces.at(0);
  };
  const TraceDiff found = diff(recording(512), recording(2048));
  ASSERT_THAT(found.categories, SizeIs(2));
  EXPECT_EQ(found.categories[0].name, "activations");
  EXPECT_EQ(found.categories[0].growth_bytes(), 1536);
  EXPECT_EQ(found.categories[1].growth_bytes(), 0);
}

TEST(VerdictTest, TakesTwoHundredDevicesAndMarkup) {
  std::vector<std::vector<std::string>> devices;
  for (std::uint64_t i = 0; i < 200; ++i)
    devices.push_back({entry_with(
        "alloc", 4096, 512, 1,
        {{"frames", list({frame("<img src=x onerror=alert(1)>\x1b[2J", "a\nb.py", 1)})}})});
  const Explanation all = explained(pickled::snapshot({}, devices));
  EXPECT_THAT(all.devices, SizeIs(200));
  const std::string words = explanation_text(all);
  EXPECT_EQ(words.find('\x1b'), std::string::npos);
  EXPECT_THAT(words, HasSubstr("<img src=x onerror=alert(1)>\xef\xbf\xbd[2J a\xef\xbf\xbd"
                               "b.py:1"));
}

}  // namespace
}  // namespace tenon
