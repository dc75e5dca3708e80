#include "tenon/trace/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::TemporaryFile;

constexpr const char* kHeader = "time_us,op,id,size,stream\n";

// Where and why parsing fails; ("", 0, 0) when it does not.
struct Failure {
  std::string reason;
  std::uint64_t line = 0;
  std::uint64_t column = 0;
};
Failure csv_failure(const std::string& text) {
  try {
    parse_csv(text, "dir/bad.csv");
  } catch (const ParseError& error) {
    EXPECT_EQ(error.name(), "dir/bad.csv");
    EXPECT_THAT(error.what(), HasSubstr("bad.csv:" + std::to_string(error.line())));
    return {error.reason(), error.line(), error.column()};
  }
  return {};
}

void expect_failure(const std::string& body, std::uint64_t line, std::uint64_t column,
                    const std::string& reason) {
  const Failure failure = csv_failure(kHeader + body);
  EXPECT_EQ(failure.line, line) << body;
  EXPECT_EQ(failure.column, column) << body << failure.reason;
  EXPECT_THAT(failure.reason, HasSubstr(reason)) << body;
}

TEST(Csv, ReadsEventsAndNumbersBlocksByOrderOfAllocation) {
  const Trace trace = parse_csv(
      "time_us,op,id,size,stream\n"
      "10,alloc,77,4096,0\n"
      "20,alloc,5,0,9\n"
      "30,free_requested,77,4096,0\n"
      "40,free_completed,77,4096,0\n"
      "50,alloc,77,100,0\n",
      "dir/model.csv");
  EXPECT_EQ(trace.name, "model");
  EXPECT_EQ(trace.blocks, 3u);
  EXPECT_THAT(trace.streams, ElementsAre(0u, 9u));
  EXPECT_THAT(trace.events,
              ElementsAre(TraceEvent{10, 4096, 0, 0, TraceOp::kAlloc},
                          TraceEvent{20, 0, 1, 1, TraceOp::kAlloc},
                          TraceEvent{30, 4096, 0, 0, TraceOp::kFreeRequested},
                          TraceEvent{40, 4096, 0, 0, TraceOp::kFreeCompleted},
                          TraceEvent{50, 100, 2, 0, TraceOp::kAlloc}));
  EXPECT_EQ(trace.replayed_events(), 4u);
  EXPECT_EQ(trace.live_peak_bytes(), 4096u);
  EXPECT_EQ(trace.duration_us(), 40u);
  EXPECT_THAT(trace.warnings, IsEmpty());
}

TEST(Csv, TakesColumnsInAnyOrderAndIgnoresOthers) {
  const Trace trace = parse_csv(
      "thread,size,op,stream,id,tag,colour,time_us\r\n"
      "main,64,alloc,3,1,conv \"x\",red,5\r\n"
      ",,free_completed,,1,,,6\r\n"
      "\r\n",
      "x.csv");
  EXPECT_THAT(trace.events, ElementsAre(TraceEvent{5, 64, 0, 0, TraceOp::kAlloc, 1},
                                        TraceEvent{6, 64, 0, 0, TraceOp::kFreeCompleted}));
  EXPECT_EQ(trace.sites->text(trace.sites->site(1).tag), "conv \"x\"");
  EXPECT_EQ(trace.sites->site(1).thread, 1u);
  EXPECT_THAT(trace.streams, ElementsAre(3u));
}

TEST(Csv, DevicesThatAreWrittenAlikeAreOneDevice) {
  const auto traces = parse_csv_devices(
      "time_us,op,id,size,stream,device,tag\n1,alloc,1,5,0,a b,\n2,alloc,2,5,0,a\rb,\n", "t.csv");
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_EQ(traces[0].blocks, 2u);
}

TEST(Csv, AnEmptyDeviceIsDeviceZero) {
  const std::string text = "time_us,op,id,size,stream,device\n"
                           "0,alloc,0,8,0,\n"
                           "1,alloc,1,8,0,0\n"
                           "2,alloc,0,8,0,1\n";
  const std::vector<Trace> traces = parse_csv_devices(text, "a.csv");
  ASSERT_EQ(traces.size(), 2u);
  EXPECT_EQ(traces[0].blocks, 2u);
  EXPECT_EQ(parse_csv_devices(format_csv(traces), "b.csv").size(), 2u);
}

TEST(Csv, TakesAFileWithoutFinalNewlineAndOneWithoutEvents) {
  EXPECT_THAT(parse_csv(std::string(kHeader) + "0,alloc,0,1,0", "x").events, SizeIs(1));
  EXPECT_THAT(parse_csv(kHeader, "x").events, IsEmpty());
}

TEST(Csv, NamesLineColumnAndReasonOfBadFields) {
  expect_failure("0,alloc,0,1,0\n1,malloc,1,1,0\n", 3, 3, "unknown op \"malloc\"");
  expect_failure("0,free_completed,8,1,0\n", 2, 18, "id 8, which was never allocated");
  expect_failure("0,alloc,0,1,0\n0,free_completed,0,1,0\n0,free_completed,0,1,0\n", 4, 18,
                 "double free");
  expect_failure("0,alloc,0,1,0\n0,free_requested,0,1,0\n0,free_requested,0,1,0\n", 4, 18,
                 "double free");
  expect_failure("0,alloc,0,1,0\n0,alloc,0,1,0\n", 3, 9, "second time while it is live");
  expect_failure("0,alloc,0,-4,0\n", 2, 11, "size -4 is negative");
  expect_failure("0,alloc,0,99999999999999999999,0\n", 2, 11, "is too large");
  expect_failure("0,alloc,0,140737488355329,0\n", 2, 11, "no request may exceed 140737488355328");
  expect_failure("0,alloc,0,12x,0\n", 2, 11, "size \"12x\" is not a whole number");
  expect_failure("0,alloc,0,,0\n", 2, 11, "size is missing");
  expect_failure("x,alloc,0,1,0\n", 2, 1, "time_us \"x\"");
  expect_failure("9223372036854775807,alloc,0,1,0\n", 2, 1, "out of range");
  expect_failure("0,alloc,0,1\n", 2, 12, "ends after 4 of 5 fields: the file may be truncated");
  expect_failure("0,alloc,0,1,0,7\n", 2, 15, "more fields than the header's 5");
}

TEST(Csv, NamesMissingAndRepeatedColumns) {
  EXPECT_THAT(csv_failure("time_us,op,id\n").reason, HasSubstr("lacks size, stream"));
  const Failure twice = csv_failure("time_us,op,id,size,stream,op\n");
  EXPECT_THAT(twice.reason, HasSubstr("op is there twice"));
  EXPECT_EQ(twice.column, 27u);
  EXPECT_THAT(csv_failure("").reason, HasSubstr("no header line"));
  // Kineto's traces, HTML, RMM's log without its first line: what to give instead.
  for (const char* other : {"{\"traceEvents\": []}\n", "7,14:21:19.998533,allocate,0x30,256,0x2\n"})
    EXPECT_THAT(csv_failure(other).reason,
                AllOf(HasSubstr("_dump_snapshot"), HasSubstr("Thread,Time,Action,Pointer,Size"),
                      HasSubstr("time_us,op,id,size,stream")));
}

TEST(Csv, RefusesMoreLiveBytesThanCanBeCounted) {
  std::string text = kHeader;
  for (int i = 0; i < 40'000; ++i)
    text += "0,alloc," + std::to_string(i) + ",140737488355328,0\n";
  EXPECT_THAT(csv_failure(text).reason, HasSubstr("more live bytes"));
}

TEST(Csv, WarnsOfTimesThatRunBackwardsAndKeepsTheOrder) {
  const Trace trace = parse_csv(
      std::string(kHeader) + "100,alloc,0,1,0\n90,alloc,1,1,0\n95,alloc,2,1,0\n80,alloc,3,1,0\n",
      "x.csv");
  ASSERT_THAT(trace.warnings, SizeIs(1));
  EXPECT_THAT(trace.warnings[0], HasSubstr("x.csv:3: time runs backwards (2 times in all)"));
  EXPECT_EQ(trace.events[1].time_us, 90);
  EXPECT_EQ(trace.duration_us(), 0u);
}

TEST(Csv, WritesWhatItReads) {
  const Trace shipped =
      load_traces(TENON_SOURCE_DIR "/data/traces/multistream_prefetch.csv.zst").at(0);
  EXPECT_EQ(shipped.name, "multistream_prefetch");
  EXPECT_EQ(shipped.replayed_events(), 21166u);
  EXPECT_EQ(shipped.live_peak_bytes(), 1697265067u);
  for (const char* ending : {".csv", ".csv.zst"}) {
    const TemporaryFile file(ending);
    write_csv(shipped, file.path());
    const Trace again = load_traces(file.path()).at(0);
    EXPECT_EQ(again.events, shipped.events);
    EXPECT_EQ(again.streams, shipped.streams);
  }
}

TEST(FileBytes, SaysWhyAFileCannotBeRead) {
  const auto reason_of = [](const std::string& path) -> std::string {
    try {
      load_traces(path);
    } catch (const ParseError& error) {
      EXPECT_EQ(error.name(), path);
      return error.reason();
    }
    return "";
  };
  EXPECT_THAT(reason_of("/no/such/file.csv"), HasSubstr("No such file"));
  EXPECT_THAT(reason_of(TENON_SOURCE_DIR), HasSubstr("directory"));
  const TemporaryFile empty(".csv");
  EXPECT_THAT(reason_of(empty.path()), HasSubstr("empty"));

  const TemporaryFile plain(".csv", kHeader + std::string("0,alloc,0,1,0\n"));
  ASSERT_EQ(std::system(("gzip -f " + plain.path()).c_str()), 0);
  EXPECT_EQ(load_traces(plain.path() + ".gz").at(0).events.size(), 1u);
  std::filesystem::remove(plain.path() + ".gz");

  const TemporaryFile source(".csv.zst");
  write_file(source.path(), kHeader + std::string("0,alloc,0,1,0\n"));
  const std::string packed = source.contents();
  ASSERT_EQ(decompress_zstd(packed + packed, "two frames").size(), 2 * 40u);
  const TemporaryFile cut(".csv.zst", packed.substr(0, packed.size() - 3));
  EXPECT_THAT(reason_of(cut.path()), HasSubstr("truncated"));
  std::string damaged = packed;
  damaged[5] = static_cast<char>(damaged[5] ^ 0xff);
  damaged[6] = static_cast<char>(damaged[6] ^ 0xff);
  const TemporaryFile bad(".csv.zst", damaged);
  EXPECT_NE(reason_of(bad.path()), "");
}

TEST(FileBytes, ReportsAFileThatCannotBeWritten) {
  EXPECT_THROW(write_file("/no/such/dir/x.csv", "x"), std::runtime_error);
}

TEST(TraceName, DropsFolderAndEndings) {
  EXPECT_EQ(trace_name("a/b/gpt2.csv.zst"), "gpt2");
  EXPECT_EQ(trace_name("run.v2.pickle"), "run.v2");
  EXPECT_EQ(trace_name("run.txt"), "run");
  EXPECT_EQ(trace_name(".csv"), ".csv");
}

}  // namespace
}  // namespace tenon
