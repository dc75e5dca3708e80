#include "tenon/trace/foreign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/trace/load.h"

namespace tenon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using testing::TemporaryFile;

// A field of bytes in Protocol Buffers; sizes below 128.
std::string field(int number, std::string_view bytes) {
  std::string out = {static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())};
  return out.append(bytes);
}

std::string varint(int number, char value) { return {static_cast<char>(number << 3), value}; }

std::string pprof() {
  return field(1, varint(1, 1) + varint(2, 2)) + field(2, field(1, "\1\2") + field(2, "\5")) +
         field(4, varint(1, 1)) + field(6, "") + field(6, "inuse_space") + field(6, "bytes") +
         varint(9, 7) + varint(12, 64);
}

std::string xplane() {
  return field(1, field(2, "/host:CPU") + field(3, varint(1, 1))) + field(4, "host");
}

// Why a file with this ending is refused.
std::string reason_of(const std::string& ending, const std::string& bytes) {
  const TemporaryFile file(ending, bytes);
  try {
    load_traces(file.path());
  } catch (const ParseError& error) {
    const std::string text = error.what();
    EXPECT_THAT(text, StartsWith(file.path() + ": "));
    return text.substr(file.path().size() + 2);
  }
  return "";
}

TEST(Foreign, FilesOfOtherToolsAreNamedWithWhatToBringInstead) {
  const struct {
    std::string ending, bytes, says;
  } kFiles[] = {
      {".pb", pprof(), "is a pprof profile (JAX, Go, gperftools)"},
      {".xplane.pb", xplane(), "is a profile of XLA or TensorFlow (xplane.pb)"},
      {".html", "\n<!doctype html>\n<html><head>", "is a web page, and none that"},
      {".html", "<html>\n<img src='data:image/png;base64,iVBO'>", "is a web page, and none that"},
      {".heap", "heap profile: 1: 64 [1: 64] @ heapprofile\n", "of tcmalloc or Go"},
      {".heap", "heap_v2/524288\n  t*: 28106: 56637512 [0: 0]\n", "profile of jemalloc"},
      {".sqlite", std::string("SQLite format 3\0\20\0", 18), "is an SQLite database"},
      {".nsys-rep", std::string("\1\2\3", 3), "is a report of Nsight Systems"},
      {".txt", "========= COMPUTE-SANITIZER\n========= Leaked 8 bytes\n",
       "is a log of compute-sanitizer"},
      {".memory_profile.json", R"({"memoryProfilePerAllocator":{"GPU_0_bfc":{}},"numHosts":1})",
       "is a memory profile of TensorFlow or XLA"},
  };
  for (const auto& [ending, bytes, says] : kFiles)
    EXPECT_THAT(reason_of(ending, bytes),
                AllOf(HasSubstr(says), StartsWith("is a"), HasSubstr("torch.cuda.memory._dump_sn"),
                      HasSubstr("time_us,op,id,size,stream")))
        << ending;
}

TEST(Foreign, OtherBytesAreLeftToTheirReaders) {
  EXPECT_THAT(foreign_format(pprof().substr(0, pprof().size() - 1), "cut.pb"), IsEmpty());
  EXPECT_THAT(foreign_format(field(1, "") + field(6, "first"), "a.pb"), IsEmpty());
  EXPECT_THAT(foreign_format(field(1, field(2, "CPU")), "a.pb"), IsEmpty());
  EXPECT_THAT(foreign_format("time_us,op,id,size,stream\n", "a.csv"), IsEmpty());
  EXPECT_THAT(foreign_format("\x80\4}.", "a.pickle"), IsEmpty());
  EXPECT_THAT(foreign_format("", ""), IsEmpty());
}

TEST(Foreign, AKeyInsideOfAProfileIsNoMemoryProfile) {
  const std::string text =
      R"({"traceEvents":[{"name":"x","args":{"memoryProfilePerAllocator":1}}]})";
  EXPECT_THAT(reason_of(".json", text), HasSubstr("is a profile without events of memory"));
}

}  // namespace
}  // namespace tenon
