// Random damage: whatever the bytes, the readers either give a sound trace or throw ParseError.
#include <gtest/gtest.h>

#include <string>
#include <unordered_map>

#include "support/damage.h"
#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/trace/csv.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/pickle.h"
#include "tenon/trace/rmm_csv.h"
#include "tenon/trace/snapshot.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

// What every Trace promises, whatever it was read from.
void expect_sound(const Trace& trace) {
  std::vector<int> state(trace.blocks, 0);  // 0 new, 1 live, 2 requested, 3 freed
  std::uint32_t next = 0;
  for (const TraceEvent& event : trace.events) {
    ASSERT_LT(event.block, trace.blocks);
    ASSERT_LT(event.stream, trace.streams.size());
    int& now = state[event.block];
    if (event.op == TraceOp::kAlloc) {
      ASSERT_EQ(event.block, next++);
      now = 1;
    } else if (event.op == TraceOp::kFreeRequested) {
      ASSERT_EQ(now, 1);
      now = 2;
    } else {
      ASSERT_TRUE(now == 1 || now == 2);
      now = 3;
    }
  }
  EXPECT_EQ(next, trace.blocks);
}

template <typename Parse>
void fuzz(const std::string& bytes, int rounds, std::uint64_t seed, Parse&& parse) {
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    Random random(seed + static_cast<std::uint64_t>(round));
    const std::string input = damaged(bytes, random);
    SCOPED_TRACE("seed " + std::to_string(seed + static_cast<std::uint64_t>(round)));
    try {
      parse(input);
    } catch (const ParseError&) {
      ++refused;
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, rounds);
}

std::string random_csv(int events, Random& random) {
  std::string text = "time_us,op,id,size,stream\n";
  std::vector<int> live;
  for (int i = 0; i < events; ++i) {
    std::string op = "alloc";
    int id = i;
    if (!live.empty() && random.chance(0.5)) {
      const std::size_t at = random.below(live.size());
      op = "free_completed";
      id = live[at];
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      live.push_back(id);
    }
    text += std::to_string(i) + "," + op + "," + std::to_string(id) + "," +
            std::to_string(random.below(1 << 20)) + "," + std::to_string(random.below(3)) + "\n";
  }
  return text;
}

std::string random_snapshot(int events, Random& random) {
  using namespace testing::pickled;
  std::vector<std::string> entries;
  for (int i = 0; i < events; ++i) {
    static constexpr const char* kActions[] = {"alloc", "free_requested", "free_completed",
                                               "segment_alloc", "oom"};
    entries.push_back(entry(kActions[random.below(5)], random.below(20) * 512,
                            random.below(100'000), static_cast<std::uint64_t>(i), random.below(3)));
  }
  return snapshot({segment(0, 0, 1 << 20, {block(0, 512, "active_allocated"),
                                           block(512, 512, "inactive"),
                                           block(90'000, 512, "active_pending_free")})},
                  {entries});
}

TEST(Fuzz, DamagedCsvIsReadOrRefused) {
  Random random(1);
  fuzz(random_csv(30, random), 20'000, 100,
       [](const std::string& bytes) { expect_sound(parse_csv(bytes, "fuzz.csv")); });
}

TEST(Fuzz, DamagedRmmLogIsReadOrRefused) {
  std::string text = "Thread,Time,Action,Pointer,Size,Stream\n";
  for (int i = 0; i < 30; ++i)
    text += "7,10:00:0" + std::to_string(i % 10) + ":000123," + (i % 3 == 2 ? "free" : "allocate") +
            ",0x7f0" + std::to_string(i % 7) + "," + std::to_string(100 * i) + ",0x1\n";
  fuzz(text, 10'000, 150,
       [](const std::string& bytes) { expect_sound(parse_rmm_csv(bytes, "fuzz.csv")); });
}

TEST(Fuzz, DamagedSnapshotIsReadOrRefused) {
  Random random(2);
  fuzz(random_snapshot(25, random), 20'000, 200, [](const std::string& bytes) {
    for (const Trace& trace : parse_snapshot(bytes, "fuzz.pickle").traces) expect_sound(trace);
  });
}

TEST(Fuzz, DamagedShippedSnapshotIsReadOrRefused) {
  const FileBytes file(TENON_SOURCE_DIR "/data/snapshots/gnn_sampled.pickle");
  fuzz(std::string(file.view()), 300, 300, [](const std::string& bytes) {
    for (const Trace& trace : parse_snapshot(bytes, "fuzz.pickle").traces) expect_sound(trace);
  });
}

TEST(Fuzz, RandomOpcodesAreReadOrRefused) {
  static constexpr char kOpcodes[] =
      "(.012NJKMGUTXCB]ael)t}dsuhjqrcRbioPQ\x80\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91"
      "\x93\x94\x95\x96\x01\x02\x00";
  int read = 0;
  for (std::uint64_t seed = 0; seed < 50'000; ++seed) {
    Random random(seed);
    std::string bytes = "\x80\x04";
    const std::uint64_t length = random.between(1, 40);
    for (std::uint64_t i = 0; i < length; ++i)
      bytes += kOpcodes[random.below(sizeof kOpcodes - 1)];
    bytes += '.';
    try {
      PickleDocument(bytes, "fuzz");
      ++read;
    } catch (const ParseError&) {
    }
  }
  EXPECT_GT(read, 100);
}

TEST(Fuzz, EveryTruncationOfASnapshotIsRefused) {
  Random random(3);
  const std::string bytes = random_snapshot(10, random);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(parse_snapshot(bytes.substr(0, length), "fuzz.pickle"), ParseError) << length;
}

TEST(Fuzz, DamagedZstdIsReadOrRefused) {
  const FileBytes file(TENON_SOURCE_DIR "/data/traces/gnn_sampled.csv.zst");
  const std::string text = format_csv(parse_csv(file.view(), "gnn"));
  const testing::TemporaryFile packed_file(".csv.zst");  // that is how compressed bytes are made
  write_file(packed_file.path(), text.substr(0, 20'000));
  const std::string packed = packed_file.contents();
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    try {
      decompress_zstd(damaged(packed, random), "fuzz.zst");
    } catch (const ParseError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace tenon
