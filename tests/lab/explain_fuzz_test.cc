// Whatever a file says, explaining it ends with a report or a ParseError.
#include <gtest/gtest.h>

#include <string>

#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/lab/explain/diff.h"
#include "tenon/lab/explain/explain.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/perfetto.h"
#include "tenon/trace/snapshot_writer.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using namespace testing::pickled;

std::string damaged(std::string bytes, Random& random) {
  const std::uint64_t count = random.between(1, 6);
  for (std::uint64_t i = 0; i < count && !bytes.empty(); ++i) {
    const std::size_t at = random.below(bytes.size());
    switch (random.below(4)) {
      case 0: bytes[at] = static_cast<char>(random.next()); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8))); break;
      case 2: bytes.erase(at, random.between(1, 9)); break;
      default: bytes.insert(at, bytes.substr(random.below(bytes.size()), random.between(1, 9)));
    }
  }
  return bytes;
}

// Reads, explains, writes and compares; true when the file could be read.
bool survives(const std::string& bytes, bool replay) {
  try {
    const Snapshot snapshot = parse_snapshot(bytes, "fuzz.pickle");
    const Explanation explanation = explain(snapshot, "fuzz.pickle", {.replay = replay});
    EXPECT_FALSE(explanation_text(explanation).empty());
    EXPECT_FALSE(explanation_json(explanation).empty());
    EXPECT_FALSE(format_perfetto(snapshot.traces).empty());
    const Snapshot again =
        parse_snapshot(format_snapshot(snapshot.traces, snapshot.segments), "again.pickle");
    EXPECT_EQ(again.traces.size(), snapshot.traces.size());
    EXPECT_FALSE(diff_text(diff(snapshot.traces[0], again.traces[0])).empty());
    return true;
  } catch (const ParseError&) {
    return false;
  }
}

// A small recording with everything in it: stacks, segments, pages, failures, phases.
std::string busy_snapshot(Random& random) {
  static constexpr const char* kActions[] = {
      "alloc",       "alloc",         "free_requested", "free_completed", "segment_alloc",
      "segment_map", "segment_unmap", "segment_free",   "oom",            "strange"};
  std::vector<std::string> entries;
  for (std::uint64_t i = 0; i < 40; ++i)
    entries.push_back(entry_with(
        kActions[random.below(10)], random.below(8) << 21, random.below(4 << 20), 1000 + i,
        {{"frames", list({frame("f", "a.py", random.below(4))})},
         {"device_free", number(random.below(1 << 24))}}));
  std::vector<std::string> notes;
  for (std::uint64_t i = 0; i < 8; ++i)
    notes.push_back(dict({{"stage", text(i % 2 == 0 ? "START" : "END")},
                          {"name", text("step")},
                          {"device", number(0)},
                          {"time_us", number(1000 + 5 * i)}}));
  return file(dict(
      {{"segments", list({segment(0, 0, 4 << 20, {block(0, 1 << 20, "active_allocated"),
                                                  block(1 << 20, 3 << 20, "inactive")}),
                          segment(0, 8 << 20, 2 << 20, {block(8 << 20, 2 << 20, "inactive")})})},
       {"device_traces", list({list(entries)})},
       {"external_annotations", list(notes)}}));
}

TEST(ExplainFuzz, RandomRecordingsAreExplained) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    EXPECT_TRUE(survives(busy_snapshot(random), /*replay=*/seed % 10 == 0));
  }
}

TEST(ExplainFuzz, DamagedRecordingsAreExplainedOrRefused) {
  Random first(7);
  const std::string bytes = busy_snapshot(first);
  int read = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    read += survives(damaged(bytes, random), /*replay=*/seed % 100 == 0) ? 1 : 0;
  }
  EXPECT_GT(read, 20);
  EXPECT_LT(read, 1500);
}

TEST(ExplainFuzz, ADamagedShippedSnapshotIsExplainedOrRefused) {
  const FileBytes file(TENON_SOURCE_DIR "/data/snapshots/gnn_sampled.pickle");
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    survives(damaged(std::string(file.view()), random), /*replay=*/false);
  }
}

}  // namespace
}  // namespace tenon
