#include "tenon/base/byte_size.h"

#include <gtest/gtest.h>

#include "tenon/base/error.h"
#include "tenon/base/random.h"

namespace tenon {
namespace {

TEST(ByteSize, ReadsWhatPeopleWrite) {
  EXPECT_EQ(parse_byte_size("0"), 0u);
  EXPECT_EQ(parse_byte_size("4096"), 4096u);
  EXPECT_EQ(parse_byte_size("512B"), 512u);
  EXPECT_EQ(parse_byte_size("3 bytes"), 3u);
  EXPECT_EQ(parse_byte_size("512MB"), 512'000'000u);
  EXPECT_EQ(parse_byte_size("12GiB"), 12 * kGiB);
  EXPECT_EQ(parse_byte_size("12 gib"), 12 * kGiB);
  EXPECT_EQ(parse_byte_size(" 1.5 GiB "), kGiB + kGiB / 2);
  EXPECT_EQ(parse_byte_size("64k"), 64 * kKiB);
  EXPECT_EQ(parse_byte_size("2M"), 2 * kMiB);
  EXPECT_EQ(parse_byte_size("1t"), kTiB);
  EXPECT_EQ(parse_byte_size("0.5KB"), 500u);
  EXPECT_EQ(parse_byte_size("1PiB"), 1024 * kTiB);
}

TEST(ByteSize, WholeNumbersAreExactUpToTheirEnd) {
  EXPECT_EQ(parse_byte_size("9223372036854775807"), 9223372036854775807u);
  EXPECT_EQ(parse_byte_size("9007199254740993"), 9007199254740993u) << "2^53 + 1";
  EXPECT_EQ(parse_byte_size("8191PiB"), 8191 * 1024 * kTiB);
}

TEST(ByteSize, RefusesEverythingElse) {
  for (const char* text :
       {"", " ", "GiB", "-1", "+1", "1.2.3MB", ".", "12GiBs", "1e9", "0x10", "1,5GB", "nan", "inf",
        "12 34", "8192PiB", "9223372036854775808", "99999999999999999999", "1e400", "1.5.",
        "9000.5PiB"})
    EXPECT_THROW(parse_byte_size(text), InvalidArgument) << '"' << text << '"';
}

TEST(ByteSize, ErrorsShowTheTextAndARemedy) {
  try {
    parse_byte_size("12 parsecs");
    FAIL();
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("\"12 parsecs\""), std::string::npos) << text;
    EXPECT_NE(text.find("\"parsecs\" is no unit"), std::string::npos) << text;
    EXPECT_NE(text.find("12GiB"), std::string::npos) << text;
  }
}

TEST(ByteSize, WritesTheLargestUnitThatFits) {
  EXPECT_EQ(format_byte_size(0), "0 B");
  EXPECT_EQ(format_byte_size(512), "512 B");
  EXPECT_EQ(format_byte_size(1023), "1023 B");
  EXPECT_EQ(format_byte_size(kKiB), "1 KiB");
  EXPECT_EQ(format_byte_size(kMiB + kMiB / 2), "1.50 MiB");
  EXPECT_EQ(format_byte_size(12 * kGiB), "12 GiB");
  EXPECT_EQ(format_byte_size(3 * kTiB), "3 TiB");
  EXPECT_EQ(format_byte_size(2048 * kTiB), "2 PiB");
}

TEST(ByteSize, ReadsBackWhatItWrites) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t exact = random.between(1, 1023) << (10 * random.below(5));
    EXPECT_EQ(parse_byte_size(format_byte_size(exact)), exact);
    const std::uint64_t any = random.next() >> (1 + random.below(60));
    const auto back = static_cast<double>(parse_byte_size(format_byte_size(any)));
    EXPECT_NEAR(back, static_cast<double>(any), static_cast<double>(any) * 0.006) << any;
  }
}

}  // namespace
}  // namespace tenon
