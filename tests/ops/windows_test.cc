// Convolutions of single channels and pools, by a definition of their own.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "ops/reference.h"
#include "tenon/base/error.h"
#include "tenon/ops/conv.h"
#include "tenon/ops/pool.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::ops {
namespace {

using testing::values;

double at(const Tensor& t, std::int64_t n, std::int64_t c, std::int64_t y, std::int64_t x) {
  return t.const_data_ptr<double>()[((n * t.size(1) + c) * t.size(2) + y) * t.size(3) + x];
}

bool is_inside(const Tensor& t, std::int64_t y, std::int64_t x) {
  return y >= 0 && y < t.size(2) && x >= 0 && x < t.size(3);
}

// Calls body(n, c, y, x) for each element.
template <typename Body>
void for_each_place(const Tensor& t, Body&& body) {
  for (std::int64_t n = 0; n < t.size(0); ++n)
    for (std::int64_t c = 0; c < t.size(1); ++c)
      for (std::int64_t y = 0; y < t.size(2); ++y)
        for (std::int64_t x = 0; x < t.size(3); ++x) body(n, c, y, x);
}

// Widths below, at and beyond a vector's; a row of results, and some beside groups of four; strides
// of one, two (whose columns go in pairs) and more.
TEST(WindowsTest, ConvolutionsOfSingleChannelsAreTheirDefinition) {
  for (const std::int64_t width : {5, 16, 33, 70})
    for (const std::int64_t stride : {1, 2, 3})
      for (int i = 0; i < 8; ++i) {
        const DType dtype = i % 2 == 0 ? DType::kF32 : DType::kF64;
        const std::int64_t height = std::array{3, 7, 8, 9}[static_cast<std::size_t>(i / 2)];
        const ConvOptions o{{1, stride}, {1, 3}, {2, stride == 3 ? 2 : 1}, 3, 0};
        const Tensor a = to(randn({2, 3, height, width}), dtype);
        const Tensor w = to(randn({6, 1, 3, 4}), dtype);
        const Tensor bias = to(randn({6}), dtype);
        const Tensor out = to(conv2d(a, w, bias, o), DType::kF64);
        const Tensor in = to(a, DType::kF64), taps = to(w, DType::kF64);
        const Tensor offsets = to(bias, DType::kF64);
        for_each_place(out, [&](auto n, auto f, auto y, auto x) {
          double sum = offsets.const_data_ptr<double>()[f];
          for (std::int64_t ky = 0; ky < 3; ++ky)
            for (std::int64_t kx = 0; kx < 4; ++kx) {
              const std::int64_t from_y = y + ky * 2 - 1;
              const std::int64_t from_x = x * stride + kx * o.dilation.width - 3;
              if (is_inside(in, from_y, from_x))
                sum += at(in, n, f / 2, from_y, from_x) * at(taps, f, 0, ky, kx);
            }
          ASSERT_NEAR(at(out, n, f, y, x), sum, dtype == DType::kF32 ? 1e-4 : 1e-12)
              << width << " wide, stride " << stride;
        });
      }
}

// Strides whose windows go in vectors (up to 3) and those that go one by one.
TEST(WindowsTest, PoolsAreTheirDefinition) {
  for (const std::int64_t width : {5, 16, 33, 70})
    for (const std::int64_t stride : {1, 2, 3, 5})
      for (int i = 0; i < 8; ++i) {
        constexpr DType kDtypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
        const DType dtype = kDtypes[i / 2];
        const Tensor narrow = to(randn({2, 3, 7, width}), dtype), in = to(narrow, DType::kF64);
        const double nan = std::numeric_limits<double>::quiet_NaN();
        fill_(narrow.select(0, 0).select(0, 0).select(0, 1).narrow(0, 2, 1), nan);
        fill_(in.select(0, 0).select(0, 0).select(0, 1).narrow(0, 2, 1), nan);
        PoolOptions o{{3, 4}, {2, stride}, {1, 2}};
        o.count_padding = i % 2 == 1;
        const Tensor largest = to(max_pool2d(narrow, o), DType::kF64);
        const Tensor average = to(avg_pool2d(narrow, o), DType::kF64);
        const double unit = dtype == DType::kF64   ? 1e-15
                            : dtype == DType::kF32 ? 1e-6
                            : dtype == DType::kF16 ? 0x1p-11
                                                   : 0x1p-8;
        for_each_place(largest, [&](auto n, auto c, auto y, auto x) {
          double sum = 0, most = -std::numeric_limits<double>::infinity();
          std::int64_t count = 0;
          bool has_nan = false;
          for (std::int64_t from_y = y * 2 - 1; from_y < y * 2 + 2; ++from_y)
            for (std::int64_t from_x = x * stride - 2; from_x < x * stride + 2; ++from_x) {
              const bool inside = is_inside(in, from_y, from_x);
              const bool padded = from_y < in.size(2) + 1 && from_x < width + 2;
              count += (o.count_padding ? padded : inside) ? 1 : 0;
              if (!inside) continue;
              const double value = at(in, n, c, from_y, from_x);
              has_nan = has_nan || std::isnan(value);
              most = std::max(most, value);
              sum += value;
            }
          ASSERT_EQ(std::isnan(at(largest, n, c, y, x)), has_nan);
          ASSERT_EQ(std::isnan(at(average, n, c, y, x)), has_nan);
          if (has_nan) return;
          ASSERT_EQ(at(largest, n, c, y, x), most) << width << " wide, stride " << stride;
          ASSERT_NEAR(at(average, n, c, y, x), sum / static_cast<double>(count), 4 * unit);
        });
      }
}

TEST(WindowsTest, AdaptiveAveragesShareOutAllElements) {
  const Tensor in = randn({2, 2, 12, 31}, DType::kF64);
  for (const Pair size : {Pair{3, 7}, Pair{12, 31}, Pair{1, 4}, Pair{14, 40}}) {
    const Tensor out = adaptive_avg_pool2d(in, size);
    for_each_place(out, [&](auto n, auto c, auto y, auto x) {
      double sum = 0, count = 0;
      for (std::int64_t i = y * 12 / size.height; i * size.height < (y + 1) * 12; ++i)
        for (std::int64_t j = x * 31 / size.width; j * size.width < (x + 1) * 31; ++j, ++count)
          sum += at(in, n, c, i, j);
      ASSERT_NEAR(at(out, n, c, y, x), sum / count, 1e-14) << y << ' ' << x;
    });
  }
}

TEST(WindowsTest, TheLargestOfMinusInfinityIsThat) {
  for (const std::int64_t size : {2, 3, 7}) {
    const Tensor in = full({1, 1, 21, 45}, -std::numeric_limits<double>::infinity(), DType::kF32);
    EXPECT_EQ(values(max_pool2d(in, {size, size, size / 2})).front(),
              -std::numeric_limits<double>::infinity());
    fill_(in, -0.0);
    const double average = values(avg_pool2d(in, {size, size, 0})).front();
    EXPECT_EQ(average, 0);
  }
}

// The average of one number is that number, however many there are.
TEST(WindowsTest, AnAverageOfAPlaneKeepsItsDigits) {
  const Tensor plane = full({1, 2, 1500, 1500}, 0.1, DType::kF32);
  for (const MemoryFormat format : {MemoryFormat::kContiguous, MemoryFormat::kChannelsLast}) {
    const Tensor average = ops::adaptive_avg_pool2d(contiguous(plane, format), 1);
    EXPECT_EQ(average.sizes(), IntList({1, 2, 1, 1}));
    EXPECT_FLOAT_EQ(average.const_data_ptr<float>()[1], 0.1F);
  }
}

TEST(WindowsTest, PoolsTakePlanesOfFloats) {
  for (const std::int64_t size : {1, 2}) {
    const auto refusal = [&](const Tensor& a) -> std::string {
      try {
        adaptive_avg_pool2d(a, size);
      } catch (const InvalidArgument& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_EQ(refusal(ones({3, 3})), "adaptive_avg_pool2d: shape [3, 3]; take [N, C, H, W]");
    EXPECT_EQ(refusal(ones({1, 1, 1, 3, 3})),
              "adaptive_avg_pool2d: shape [1, 1, 1, 3, 3]; take [N, C, H, W]");
    for (const DType dtype : {DType::kI64, DType::kC64})
      EXPECT_EQ(refusal(ones({1, 1, 3, 3}, dtype)),
                std::string("adaptive_avg_pool2d: of ") + std::string(dtype_name(dtype)) +
                    "; convert it to floating point first");
  }
}

// Padding may be half of a kernel of any size: such planes are not spread out.
TEST(WindowsTest, LargeKernelsTakeNoMemory) {
  const Tensor a = randn({1, 2, 4, 4});
  constexpr std::int64_t kSize = 1 << 20;
  const Tensor out = max_pool2d(a, {kSize, kSize, kSize / 2});
  EXPECT_EQ(out.numel(), 2);
}

}  // namespace
}  // namespace tenon::ops
