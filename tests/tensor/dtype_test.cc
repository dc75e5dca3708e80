#include "tenon/tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "tenon/base/error.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/promotion.h"

namespace tenon {
namespace {

TEST(DTypeTest, EveryNameLeadsBackToItsType) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    if (dtype == DType::kQI8) continue;  // no type of C++
    visit_any_dtype(dtype, [&]<typename T>() {
      EXPECT_EQ(dtype_of<T>(), dtype);
      EXPECT_EQ(sizeof(T), item_size(dtype));
    });
  }
  EXPECT_EQ(parse_dtype("F32"), DType::kF32);
  EXPECT_EQ(parse_dtype("long"), DType::kI64);
  EXPECT_THROW(parse_dtype("float8"), InvalidArgument);
  EXPECT_THROW(parse_dtype(""), InvalidArgument);
}

TEST(DTypeTest, EveryHalfSurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const Half half = Half::from_bits(static_cast<std::uint16_t>(bits));
    const float value = half;
    const Half back(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(back)));
    } else {
      EXPECT_EQ(back.bits, half.bits);
    }
    const BFloat16 brain = BFloat16::from_bits(static_cast<std::uint16_t>(bits));
    if (std::isnan(static_cast<float>(brain))) continue;
    EXPECT_EQ(BFloat16(static_cast<float>(brain)).bits, brain.bits);
  }
}

// The neighbours of a float among the halves, found by search, decide what rounding must give.
TEST(DTypeTest, HalvesRoundToTheNearestAndTiesToEven) {
  for (std::uint16_t bits = 0; bits < 0x7bff; bits = static_cast<std::uint16_t>(bits + 7)) {
    const double low = static_cast<float>(Half::from_bits(bits));
    const double high = static_cast<float>(Half::from_bits(static_cast<std::uint16_t>(bits + 1)));
    const double middle = (low + high) / 2;  // exact in float
    const auto even = static_cast<std::uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(Half(static_cast<float>(middle)).bits, even) << bits;
    const float above = std::nextafter(static_cast<float>(middle), 1e30f);
    EXPECT_EQ(Half(above).bits, bits + 1) << bits;
    EXPECT_EQ(Half(-above).bits, 0x8000 | (bits + 1)) << bits;
  }
  EXPECT_EQ(Half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Half(65519.0f).bits, 0x7bff);
  EXPECT_EQ(Half(std::numeric_limits<float>::infinity()).bits, 0x7c00);
}

TEST(DTypeTest, ConversionsFollowPyTorch) {
  EXPECT_EQ(convert_element<bool>(0.25f), true);
  EXPECT_EQ(convert_element<std::int32_t>(-2.9), -2);
  EXPECT_EQ(convert_element<std::uint8_t>(300.0f), 44);
  EXPECT_EQ(convert_element<std::int64_t>(std::numeric_limits<double>::quiet_NaN()), INT64_MIN);
  EXPECT_EQ(convert_element<float>(Complex64(3, 4)), 3.0f);
  EXPECT_EQ(convert_element<bool>(Complex64(0, 4)), true);
  EXPECT_EQ(convert_element<Complex128>(BFloat16(1.5f)), Complex128(1.5, 0));
}

// The table of PyTorch's documentation, row by row in the order of DType.
TEST(PromotionTest, IsPyTorchsTable) {
  const std::map<std::string, std::string> rows = {
      {"bool", "bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128"},
      {"u8", "u8 u8 i16 i16 i32 i64 f16 bf16 f32 f64 c64 c128"},
      {"i8", "i8 i16 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128"},
      {"i16", "i16 i16 i16 i16 i32 i64 f16 bf16 f32 f64 c64 c128"},
      {"i32", "i32 i32 i32 i32 i32 i64 f16 bf16 f32 f64 c64 c128"},
      {"i64", "i64 i64 i64 i64 i64 i64 f16 bf16 f32 f64 c64 c128"},
      {"f16", "f16 f16 f16 f16 f16 f16 f16 f32 f32 f64 c64 c128"},
      {"bf16", "bf16 bf16 bf16 bf16 bf16 bf16 f32 bf16 f32 f64 c64 c128"},
      {"f32", "f32 f32 f32 f32 f32 f32 f32 f32 f32 f64 c64 c128"},
      {"f64", "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 c128 c128"},
      {"c64", "c64 c64 c64 c64 c64 c64 c64 c64 c64 c128 c64 c128"},
      {"c128", "c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128"}};
  for (const auto& [name, row] : rows) {
    std::size_t at = 0;
    for (int other = 0; DType(other) <= kLastComputedDType; ++other) {
      const std::size_t end = std::min(row.find(' ', at), row.size());
      EXPECT_EQ(promote_types(parse_dtype(name), static_cast<DType>(other)),
                parse_dtype(row.substr(at, end - at)))
          << name << " with " << dtype_name(static_cast<DType>(other));
      at = end + 1;
    }
  }
}

TEST(PromotionTest, DimensionsOutrankZeroDimensionalOutrankNumbers) {
  const Tensor i32 = empty({3}, DType::kI32);
  const Tensor f32 = empty({3}, DType::kF32);
  const Tensor f64_0d = empty({}, DType::kF64);
  const Tensor i64_0d = empty({}, DType::kI64);
  EXPECT_EQ(result_type(i32, i64_0d), DType::kI32);
  EXPECT_EQ(result_type(i32, f64_0d), DType::kF64);
  EXPECT_EQ(result_type(f32, f64_0d), DType::kF32);
  EXPECT_EQ(result_type(i32, Scalar(2.5)), DType::kF32);
  EXPECT_EQ(result_type(i32, Scalar(2)), DType::kI32);
  EXPECT_EQ(result_type(empty({3}, DType::kBool), Scalar(2)), DType::kI64);
  EXPECT_EQ(result_type(empty({3}, DType::kF64), Scalar(Complex64(1, 2))), DType::kC128);
  EXPECT_EQ(result_type(i64_0d, wrapped_number(2.5)), DType::kF32);
  EXPECT_EQ(result_type(empty({2}, DType::kF16), wrapped_number(2.5)), DType::kF16);
}

TEST(PromotionTest, KindsNeverFall) {
  EXPECT_TRUE(can_cast(DType::kI64, DType::kF16));
  EXPECT_TRUE(can_cast(DType::kF64, DType::kF16));
  EXPECT_FALSE(can_cast(DType::kF16, DType::kI64));
  EXPECT_FALSE(can_cast(DType::kC64, DType::kF64));
  EXPECT_FALSE(can_cast(DType::kU8, DType::kBool));
  EXPECT_THROW(set_default_dtype(DType::kI64), InvalidArgument);
}

}  // namespace
}  // namespace tenon
