#include "tenon/base/parse_real.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

TEST(ParseReal, TakesWholeDecimalNumbersAlone) {
  EXPECT_EQ(parse_real("1.5"), 1.5);
  EXPECT_EQ(parse_real("-2e9"), -2e9);
  EXPECT_EQ(parse_real(".5"), 0.5);
  for (const char* text : {"", "+1", "1,5", " 1", "1 ", "1x", "e", "0x10", "nan", "inf", "1e999"})
    EXPECT_EQ(parse_real(text), std::nullopt) << text;
}

}  // namespace
}  // namespace tenon
