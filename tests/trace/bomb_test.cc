// Small files that would cost much: each is refused by a limit that follows from its own size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/base/read_limit.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"
#include "tenon/trace/pickle.h"
#include "tenon/trace/snapshot.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace testing::pickled;

class ReadLimit {
 public:
  explicit ReadLimit(const char* value) { ::setenv("TENON_READ_LIMIT", value, 1); }
  ~ReadLimit() { ::unsetenv("TENON_READ_LIMIT"); }
  ReadLimit(const ReadLimit&) = delete;
  ReadLimit& operator=(const ReadLimit&) = delete;
};

// The reason that a reader gives; empty where it takes the bytes.
template <typename Read>
std::string refusal_of(Read&& read) {
  try {
    read();
  } catch (const ParseError& error) {
    return error.reason();
  }
  return "";
}

std::string snapshot_refusal(const std::string& bytes) {
  return refusal_of([&] { parse_snapshot(bytes, "bomb.pickle"); });
}

std::string set_memo(int number) { return std::string("q") + static_cast<char>(number); }
std::string memo(int number) { return std::string("h") + static_cast<char>(number); }
std::string repeat(const std::string& what, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += what;
  return out;
}

// A list of as many references to one value.
std::string list_of(const std::string& reference, std::size_t count) {
  return "](" + repeat(reference, count) + "e";
}

TEST(Bomb, EmptyStringsInListsOfListsCount) {
  // 1000^3 strings in 6 KB.
  const std::string settings =
      dict({{"a", text("") + set_memo(1)},
            {"b", list_of(memo(1), 1000) + set_memo(2)},
            {"c", list_of(memo(2), 1000) + set_memo(3)},
            {"d", list_of(memo(3), 1000)}});
  const std::string bytes = file(dict({{"segments", list({})},
                                       {"allocator_settings", settings},
                                       {"device_traces", list({list({entry("alloc", 1, 1)})})}}));
  EXPECT_THAT(snapshot_refusal(bytes),
              HasSubstr("a setting repeats itself beyond the file's size"));
}

TEST(Bomb, KeysOfADictThatIsNamedAgainAndAgainCount) {
  std::vector<std::pair<std::string_view, std::string>> fields = {{"action", text("alloc")},
                                                                  {"addr", number(1)},
                                                                  {"size", number(1)}};
  std::vector<std::string> names;
  for (int i = 0; i < 60; ++i) names.push_back("unknown key " + std::to_string(i));
  for (const std::string& name : names) fields.emplace_back(name, number(0));
  // 60 keys for every 2 bytes.
  const std::string bytes = file(
      dict({{"segments", list({})},
            {"device_traces",
             list({"](" + dict(fields) + set_memo(1) + repeat(memo(1), 100'000) + "e"})}}));
  EXPECT_THAT(snapshot_refusal(bytes), HasSubstr("repeats itself beyond the file's size"));
}

TEST(Bomb, LongTextsThatManyFramesNameAreCut) {
  // 20,000 frames that share a name of 1 MB: 20 GB to look at.
  const std::string long_text =
      std::string("X") + std::string("\x40\x42\x0f\0", 4) + std::string(1'000'000, 'f');
  std::string frames = "](";
  for (int i = 0; i < 20'000; ++i)
    frames += "}(" + text("name") + memo(1) + text("line") + "M" + static_cast<char>(i) +
              static_cast<char>(i >> 8) + "u";
  frames += "e";
  const std::string bytes = file(dict(
      {{"segments", list({})},
       {"long", long_text + set_memo(1)},
       {"device_traces", list({list({entry_with("alloc", 1, 1, 0, {{"frames", frames}})})})}}));
  const Snapshot snapshot = parse_snapshot(bytes, "long.pickle");
  ASSERT_EQ(snapshot.sites->frames(), 20'001u);
  EXPECT_EQ(snapshot.sites->text(snapshot.sites->frame(1).function), std::string(4096, 'f'));
}

TEST(Bomb, ContainersTakeNoMoreMemoryThanTheLimit) {
  // Each byte makes a list: 48 bytes, without what holds it.
  const std::string bytes = "\x80\x04" + std::string(std::size_t{20} << 20, ']') + ".";
  EXPECT_THAT(refusal_of([&] { PickleDocument(bytes, "bomb.pickle"); }),
              AllOf(HasSubstr("take more than 576.00 MiB of memory"),
                    HasSubstr("TENON_READ_LIMIT=1GiB allows more")));
  const ReadLimit lowered("1 MiB");
  EXPECT_THAT(refusal_of([&] { PickleDocument(bytes.substr(0, 100'000), "bomb.pickle"); }),
              HasSubstr("take more than 1 MiB of memory"));
}

TEST(Bomb, ZstdThatUnpacksTooFarIsRefused) {
  const testing::TemporaryFile packed(".csv.zst");
  write_file(packed.path(), std::string(std::size_t{80} << 20, '0'));
  EXPECT_THAT(refusal_of([&] { load_traces(packed.path()); }),
              AllOf(HasSubstr("of zstd data unpack to more than 64"),
                    HasSubstr("TENON_READ_LIMIT=1GiB allows more")));
  const ReadLimit raised("96MiB");
  EXPECT_EQ(FileBytes(packed.path()).view().size(), std::size_t{80} << 20);
  const ReadLimit wrong("much");
  EXPECT_THROW(FileBytes(packed.path()), InvalidArgument);
}

// Frames that repeat one byte hold back their last bytes until they are asked again.
TEST(Zstd, WhatCompressesBestIsReadWhole) {
  for (const std::size_t size : {1, 1000, 131'072, 1 << 20, (1 << 20) + 1, 5'000'000, 20'000'000}) {
    const testing::TemporaryFile packed(".txt.zst");
    write_file(packed.path(), std::string(size, '0'));
    EXPECT_EQ(FileBytes(packed.path()).view(), std::string(size, '0')) << size;
  }
}

TEST(Bomb, DevicesAreNotRead) {
  EXPECT_THAT(refusal_of([] { load_traces("/dev/zero"); }), HasSubstr("is a device"));
}

TEST(ReadLimits, FollowTheFilesSizeAndDoesNotOverflow) {
  EXPECT_EQ(read_limit_bytes(1 << 20), (std::uint64_t{256 + 16}) << 20);
  EXPECT_EQ(unpack_limit_bytes(1 << 20), (std::uint64_t{64 + 40}) << 20);
  EXPECT_EQ(read_limit_bytes(UINT64_MAX / 2), UINT64_MAX);
  EXPECT_EQ(how_to_raise(UINT64_MAX), "TENON_READ_LIMIT=4294967296GiB allows more");
}

}  // namespace
}  // namespace tenon
