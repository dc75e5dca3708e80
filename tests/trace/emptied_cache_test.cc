#include "tenon/trace/emptied_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tenon/trace/csv.h"
#include "tenon/trace/snapshot.h"
#include "tenon/trace/snapshot_writer.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace testing::pickled;

constexpr std::uint64_t kMiB = 1 << 20;

// An entry of one mark, with the functions of its stack, innermost first.
std::string with_stack(std::string_view action, std::uint64_t address, std::uint64_t mebibytes,
                       const std::vector<std::string_view>& functions) {
  std::vector<std::string> frames;
  for (const std::string_view function : functions) frames.push_back(frame(function, "x.py", 1));
  return entry_with(action, address, mebibytes * kMiB, 0, {{"frames", list(frames)}});
}

Trace trace_of(const std::vector<std::string>& entries) {
  return parse_snapshot(snapshot({}, {entries}), "x.pickle").traces.at(0);
}

// Of the calls of empty_cache(): the event that they come before, and their MiB.
std::vector<std::string> calls(const Trace& trace) {
  std::vector<std::string> found;
  for (const TraceMark& mark : trace.marks)
    if (mark.kind == MarkKind::kEmptyCache)
      found.push_back(std::to_string(mark.event) + ": " + std::to_string(mark.size_bytes / kMiB));
  return found;
}

std::vector<std::string> calls(const std::vector<std::string>& entries) {
  return calls(trace_of(entries));
}

const std::string kFirst = with_stack("alloc", 1, 20, {});

TEST(EmptiedCache, IsWhereAStackNamesTheCall) {
  EXPECT_THAT(calls({kFirst, with_stack("segment_free", 8, 20, {"empty_cache", "train"}),
                     with_stack("segment_free", 9, 40, {"empty_cache", "train"}),
                     with_stack("segment_alloc", 8, 60, {"empty_cache", "train"})}),
              ElementsAre("1: 60"));
  EXPECT_THAT(calls({kFirst, with_stack("segment_unmap", 8, 20,
                                        {"c10::cuda::CUDACachingAllocator::emptyCache()"})}),
              ElementsAre("1: 20"));
}

TEST(EmptiedCache, IsNotWhereADeviceIsTooFullForARequest) {
  EXPECT_THAT(calls({kFirst, with_stack("segment_free", 8, 20, {"forward"}),
                     with_stack("segment_alloc", 8, 60, {"forward"})}),
              IsEmpty());
  EXPECT_THAT(calls({kFirst, with_stack("segment_free", 8, 20, {"forward"}),
                     with_stack("oom", 0, 60, {"forward"})}),
              IsEmpty());
}

TEST(EmptiedCache, IsNotWhereAPoolWasDestroyed) {
  EXPECT_THAT(calls({kFirst, with_stack("segment_free", 8, 20,
                                        {"c10::cuda::CUDACachingAllocator::emptyCache()",
                                         "c10::cuda::MemPool::~MemPool()"})}),
              IsEmpty());
}

// context="alloc": a call has no stack of its own, so PyTorch names that of the segment.
TEST(EmptiedCache, IsWhereMemoryOfOtherStacksFollows) {
  EXPECT_THAT(calls({kFirst, with_stack("segment_free", 8, 20, {"forward"}),
                     with_stack("segment_alloc", 8, 60, {"backward"})}),
              ElementsAre("1: 20"));
}

TEST(EmptiedCache, WithoutStacksIsToldByTheRoomOfTheDevice) {
  const std::vector<std::string> begin = {
      entry("segment_alloc", 8, 40 * kMiB), entry("alloc", 8, 40 * kMiB),
      entry("free_requested", 8, 40 * kMiB), entry("free_completed", 8, 40 * kMiB),
      entry("segment_free", 8, 40 * kMiB)};
  const auto followed_by = [&](std::string next) {
    std::vector<std::string> entries = begin;
    entries.push_back(std::move(next));
    return calls(entries);
  };
  EXPECT_THAT(followed_by(entry("snapshot", 0, 0)), ElementsAre("3: 40"));
  EXPECT_THAT(followed_by(entry("segment_alloc", 8, 20 * kMiB)), IsEmpty());
  EXPECT_THAT(followed_by(entry("oom", 0, 20 * kMiB)), IsEmpty());
  std::vector<std::string> larger_later = begin;
  larger_later.push_back(entry("segment_alloc", 8, 20 * kMiB));
  larger_later.push_back(entry("segment_alloc", 9, 80 * kMiB));
  EXPECT_THAT(calls(larger_later), ElementsAre("3: 40"));
}

TEST(EmptiedCache, IsWrittenToFilesAndReadBack) {
  const Trace trace = trace_of(
      {entry("alloc", 1, 40 * kMiB), entry("free_completed", 1, 40 * kMiB),
       with_stack("segment_free", 1, 40, {"empty_cache"}), entry("alloc", 2, 60 * kMiB)});
  ASSERT_THAT(calls(trace), ElementsAre("2: 40"));
  const std::string csv = format_csv({&trace, 1});
  EXPECT_THAT(csv, HasSubstr("empty_cache"));
  EXPECT_THAT(calls(parse_csv(csv, "x.csv")), ElementsAre("2: 40"));
  EXPECT_THAT(calls(parse_snapshot(format_snapshot({&trace, 1}), "x.pickle").traces.at(0)),
              ElementsAre("2: 40"));
}

}  // namespace
}  // namespace tenon
