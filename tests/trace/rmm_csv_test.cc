#include "tenon/trace/rmm_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/trace/load.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr const char* kRmmHeader = "Thread,Time,Action,Pointer,Size,Stream\n";

TEST(RmmCsv, ReadsALog) {
  const testing::TemporaryFile file(".csv", std::string(kRmmHeader) +
                                                "11,10:00:00:000100,allocate,0x7f00,1024,0\n"
                                                "12,10:00:00:000300,allocate,0x8f00,2048,0x2\n"
                                                "11,10:00:01.000000,free,0x7f00,1024,0\n"
                                                "12,10:00:02:000000,allocate failure,(nil),9999,0\n"
                                                "12,10:00:02:500000,free,0x8f00,2048,0x2\n");
  const Snapshot snapshot = load_snapshot(file.path());
  ASSERT_THAT(snapshot.traces, SizeIs(1));
  const Trace& trace = snapshot.traces[0];
  const auto ops = [&] {
    std::vector<std::tuple<std::int64_t, TraceOp, std::uint64_t, std::uint32_t>> out;
    for (const TraceEvent& e : trace.events)
      out.emplace_back(e.time_us, e.op, e.size_bytes, e.stream);
    return out;
  }();
  EXPECT_THAT(ops, ElementsAre(std::tuple(0, TraceOp::kAlloc, 1024, 0),
                               std::tuple(200, TraceOp::kAlloc, 2048, 1),
                               std::tuple(999'900, TraceOp::kFreeCompleted, 1024, 0),
                               std::tuple(2'499'900, TraceOp::kFreeCompleted, 2048, 1)));
  EXPECT_THAT(trace.streams, ElementsAre(0u, 2u));
  EXPECT_THAT(trace.addresses, ElementsAre(0x7f00u, 0x8f00u));
  EXPECT_EQ(trace.sites->site(trace.events[0].site).thread, 1u);
  EXPECT_EQ(trace.sites->site(trace.events[1].site).thread, 2u);
  ASSERT_THAT(trace.marks, SizeIs(1));
  EXPECT_EQ(trace.marks[0].kind, MarkKind::kOutOfMemory);
  EXPECT_EQ(trace.marks[0].size_bytes, 9999u);
  EXPECT_EQ(trace.marks[0].event, 3u);
}

TEST(RmmCsv, GoesOnPastMidnight) {
  const Trace trace = parse_rmm_csv(std::string(kRmmHeader) +
                                        "1,23:59:59:000000,allocate,7f00,8,0\n"
                                        "1,00:00:01:000000,free,7f00,8,0\n",
                                    "x.csv");
  EXPECT_EQ(trace.events[1].time_us, 2'000'000);
  EXPECT_THAT(trace.warnings, SizeIs(0));
}

TEST(RmmCsv, MendsWhatTheLogDoesNotShow) {
  const Trace trace = parse_rmm_csv(std::string(kRmmHeader) +
                                        "1,10:00:00:000000,free,0x10,8,0\n"
                                        "1,10:00:00:000001,allocate,0x20,8,0\n"
                                        "1,10:00:00:000002,allocate,0x20,16,0\n"
                                        "1,10:00:00:000003,free,0x10,8,0\n",
                                    "x.csv");
  EXPECT_EQ(trace.early_blocks, 1u);
  EXPECT_EQ(trace.blocks, 3u);
  EXPECT_EQ(trace.live_peak_bytes(), 16u);
  ASSERT_THAT(trace.warnings, SizeIs(2));
  EXPECT_THAT(trace.warnings[0], HasSubstr("2 lines contradict"));
  EXPECT_THAT(trace.warnings[1], HasSubstr("1 blocks were live before"));
}

TEST(RmmCsv, SaysWhereALineIsWrong) {
  const auto failure = [](const std::string& line) {
    try {
      parse_rmm_csv(kRmmHeader + line, "x.csv");
    } catch (const ParseError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(failure("1,10:00:00:0,allocate,0x10,8\n"), HasSubstr("x.csv:2:"));
  EXPECT_THAT(failure("1,10:00:00:0,allocate,0x10,8"), HasSubstr("truncated"));
  EXPECT_THAT(failure("1,noon,allocate,0x10,8,0\n"), HasSubstr("x.csv:2:3: the time \"noon\""));
  EXPECT_THAT(failure("1,10:00:00:0,allocate,pointer,8,0\n"), HasSubstr("in hexadecimal"));
  EXPECT_THAT(failure("1,10:00:00:0,allocate,0x10,-8,0\n"), HasSubstr("the size \"-8\""));
  EXPECT_THAT(failure("1,10:00:00:0,allocate,0x10,9999999999999999,0\n"), HasSubstr("too large"));
}

}  // namespace
}  // namespace tenon
