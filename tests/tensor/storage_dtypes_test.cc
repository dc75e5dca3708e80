// Dtypes that are stored, copied, cast and compared, and not computed with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/refusal.h"
#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/interop/dlpack.h"
#include "tenon/tensor/interop/dlpack_abi.h"
#include "tenon/tensor/print.h"
#include "tenon/tensor/promotion.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using testing::refusal;

constexpr DType kStored[] = {DType::kU16, DType::kU32, DType::kU64, DType::kF8E4M3,
                             DType::kF8E5M2};

// --- A reference that knows nothing of bits: all values of a format, and the nearest by search.
struct Format {
  int mantissa, bias;
  bool has_infinity;
};
constexpr Format kE4M3{3, 7, false}, kE5M2{2, 15, true};

double value_of(const Format& f, int bits) {
  const int fields = bits & 0x7f, steps = 1 << f.mantissa;
  const int exponent = fields / steps, fraction = fields % steps;
  const int top = 127 / steps;
  double value;
  if (f.has_infinity && exponent == top)
    value = fraction == 0 ? INFINITY : NAN;
  else if (!f.has_infinity && fields == 127)
    value = NAN;
  else if (exponent == 0)
    value = std::ldexp(fraction, 1 - f.bias - f.mantissa);
  else
    value = std::ldexp(steps + fraction, exponent - f.bias - f.mantissa);
  return (bits & 0x80) != 0 ? -value : value;
}

// Round to nearest even; beyond the largest, what would be the next one up decides.
int nearest_bits(const Format& f, double x) {
  const int sign = std::signbit(x) ? 0x80 : 0, last = f.has_infinity ? 0x7b : 0x7e;
  if (std::isnan(x)) return sign | 0x7f;
  const double magnitude = std::abs(x);
  const double largest = value_of(f, last);
  const double next = largest + (largest - value_of(f, last - 1));
  if (magnitude > (largest + next) / 2 || (magnitude == (largest + next) / 2 && last % 2 != 0))
    return sign | (last + 1);
  int best = 0;
  for (int bits = 1; bits <= last; ++bits) {
    const double now = std::abs(value_of(f, bits) - magnitude);
    const double before = std::abs(value_of(f, best) - magnitude);
    if (now < before || (now == before && bits % 2 == 0)) best = bits;
  }
  return sign | best;
}

template <typename Float8>
void check_every_value(const Format& format, DType dtype) {
  Tensor all = empty({256}, DType::kU8);
  for (int i = 0; i < 256; ++i) all.data_ptr<std::uint8_t>()[i] = static_cast<std::uint8_t>(i);
  const Tensor wide = to(all.view_dtype(dtype), DType::kF64);
  for (int i = 0; i < 256; ++i) {
    const double found = wide.const_data_ptr<double>()[i], wanted = value_of(format, i);
    if (std::isnan(wanted))
      EXPECT_TRUE(std::isnan(found)) << i;
    else
      EXPECT_EQ(found, wanted) << i;
    EXPECT_EQ(std::signbit(static_cast<float>(Float8::from_bits(static_cast<std::uint8_t>(i)))),
              i >= 128);
  }
}

TEST(StorageDtypesTest, All256Float8ValuesAreExact) {
  check_every_value<Float8E4M3>(kE4M3, DType::kF8E4M3);
  check_every_value<Float8E5M2>(kE5M2, DType::kF8E5M2);
}

// Every bfloat16 and every half, so every tie and every neighbour of one.
void check_casts(const Format& format, DType dtype, DType from) {
  Tensor all = empty({65536}, DType::kU16);
  for (int i = 0; i < 65536; ++i) all.data_ptr<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
  const Tensor source = all.view_dtype(from);
  const Tensor exact = to(source, DType::kF64);
  const Tensor cast = to(source, dtype).view_dtype(DType::kU8);
  for (int i = 0; i < 65536; ++i) {
    const double x = exact.const_data_ptr<double>()[i];
    ASSERT_EQ(cast.const_data_ptr<std::uint8_t>()[i], nearest_bits(format, x)) << x;
  }
}

TEST(StorageDtypesTest, Float8CastsRoundToNearestEven) {
  for (const DType from : {DType::kF16, DType::kBF16}) {
    check_casts(kE4M3, DType::kF8E4M3, from);
    check_casts(kE5M2, DType::kF8E5M2, from);
  }
}

TEST(StorageDtypesTest, Float8OverflowsAsPyTorchDoes) {
  const Tensor x = tensor<float>({448, 464, 464.1f, -1e9f, INFINITY, 57344, 61439, 61440});
  const auto bits = [&](DType dtype) {
    const Tensor b = to(x, dtype).view_dtype(DType::kU8);
    return std::vector<int>(b.const_data_ptr<std::uint8_t>(),
                            b.const_data_ptr<std::uint8_t>() + b.numel());
  };
  EXPECT_EQ(bits(DType::kF8E4M3),
            (std::vector<int>{0x7e, 0x7e, 0x7f, 0xff, 0x7f, 0x7f, 0x7f, 0x7f}));
  EXPECT_EQ(bits(DType::kF8E5M2),
            (std::vector<int>{0x5f, 0x5f, 0x5f, 0xfc, 0x7c, 0x7b, 0x7b, 0x7c}));
}

// uint16 holds 65,536 numbers; each goes to all other dtypes as C++ converts it, and back.
TEST(StorageDtypesTest, WideIntegersCastAsTheirValues) {
  Tensor all = empty({65536}, DType::kU16);
  for (int i = 0; i < 65536; ++i) all.data_ptr<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
  const auto expect_each = [&]<typename T>(T) {
    const Tensor cast = to(all, dtype_of<T>());
    for (int i = 0; i < 65536; ++i) ASSERT_EQ(cast.const_data_ptr<T>()[i], static_cast<T>(i)) << i;
    if (sizeof(T) > 2) {
      const Tensor back = to(cast, DType::kU16);
      ASSERT_EQ(std::memcmp(back.const_data_ptr(), all.const_data_ptr(), all.nbytes()), 0);
    }
  };
  expect_each(std::uint8_t{}), expect_each(std::int16_t{}), expect_each(std::int32_t{});
  expect_each(std::int64_t{}), expect_each(std::uint32_t{}), expect_each(std::uint64_t{});
  expect_each(float{}), expect_each(double{});
  EXPECT_EQ(to(all, DType::kBool)[0].item<bool>(), false);
  EXPECT_EQ(to(all, DType::kBool)[9].item<bool>(), true);
}

TEST(StorageDtypesTest, Uint64KeepsWhatNoInt64Holds) {
  constexpr std::uint64_t kBig = 18446744073709549568u;  // 2^64 - 2048, a double
  const Tensor big = full({2}, kBig, DType::kU64);
  EXPECT_EQ(big[0].item<std::uint64_t>(), kBig);
  EXPECT_EQ(big[0].item().dtype(), DType::kU64);
  EXPECT_EQ(to(big, DType::kF64)[1].item<double>(), 18446744073709549568.0);
  EXPECT_EQ(to(to(big, DType::kF64), DType::kU64)[1].item<std::uint64_t>(), kBig);
  // One rounding: by way of a double it would be two.
  const Tensor odd = full({1}, std::uint64_t{0x8000008000000001u}, DType::kU64);
  EXPECT_EQ(to(odd, DType::kF32)[0].item<float>(), 9223373136366403584.0f);
  EXPECT_EQ(to_string(big), "tensor([18446744073709549568, 18446744073709549568], dtype=uint64)");
  EXPECT_EQ(to(full({1}, -1.0, DType::kF64), DType::kU64)[0].item<std::uint64_t>(), UINT64_MAX);
}

TEST(StorageDtypesTest, NamesSizesAndKinds) {
  EXPECT_EQ(parse_dtype("F8_E4M3"), DType::kF8E4M3);
  EXPECT_EQ(parse_dtype("float8_e5m2"), DType::kF8E5M2);
  EXPECT_EQ(parse_dtype("u64"), DType::kU64);
  EXPECT_EQ(item_size(DType::kU32), 4u);
  EXPECT_EQ(item_size(DType::kF8E5M2), 1u);
  EXPECT_TRUE(is_floating(DType::kF8E4M3) && is_integral(DType::kU16) && !is_signed(DType::kU16));
  EXPECT_FALSE(is_complex(DType::kU64) || is_floating(DType::kU64));
}

TEST(StorageDtypesTest, CopiesFillsIndexesAndPrints) {
  for (const DType dtype : kStored) {
    const Tensor t = to(arange(0, 6, 1, DType::kI64).view({2, 3}), dtype);
    EXPECT_EQ(clone(t.t())[2][1].item<double>(), 5);
    const Tensor mask = tensor<bool>({false, true, true});
    EXPECT_EQ((t[{Slice(), mask}][1][0].item<double>()), 4);
    t.index_put_({tensor<std::int64_t>({1})}, scalar_tensor(7, dtype));
    EXPECT_EQ(t[1][2].item<double>(), 7);
    fill_(t, 3);
    EXPECT_EQ(t[0][0].item<double>(), 3);
    copy_(t, ones({3}, DType::kF16));
    EXPECT_EQ(t[1][1].item<double>(), 1);
  }
  EXPECT_EQ(to_string(full({2}, 1.5, DType::kF8E4M3)),
            "tensor([1.5000, 1.5000], dtype=float8_e4m3fn)");
}

// PyTorch 2.11's table: wide unsigned integers with floating point only, 8-bit floats alone.
TEST(StorageDtypesTest, PromotionIsPyTorchs) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto other = static_cast<DType>(i);
    for (const DType stored : kStored) {
      if (other == stored) {
        EXPECT_EQ(promote_types(stored, other), stored);
      } else if (is_wide_unsigned(stored) && is_floating(other) && !is_float8(other)) {
        EXPECT_EQ(promote_types(stored, other), other);
        EXPECT_EQ(promote_types(other, stored), other);
      } else {
        EXPECT_THAT(refusal([&] { promote_types(other, stored); }), HasSubstr("no common dtype"));
      }
    }
  }
  EXPECT_THROW(set_default_dtype(DType::kF8E5M2), InvalidArgument);
}

TEST(StorageDtypesTest, GoThroughDLPackByTheStandardsCodes) {
  for (const DType dtype : kStored) {
    const Tensor t = to(arange(0, 4, 1, DType::kI64), dtype);
    DLManagedTensor* managed = to_dlpack(t);
    const int code = managed->dl_tensor.dtype.code;
    EXPECT_EQ(code, dtype == DType::kF8E4M3 ? 10 : dtype == DType::kF8E5M2 ? 12 : 1);
    EXPECT_EQ(managed->dl_tensor.dtype.bits, 8 * item_size(dtype));
    const Tensor back = from_dlpack(managed);
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.const_data_ptr(), t.const_data_ptr());
  }
}

}  // namespace
}  // namespace tenon
