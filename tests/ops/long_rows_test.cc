// What is computed by stretches: argmax, norms, losses and additions of rows longer than one.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::int64_t largest_of(const Tensor& t) { return ops::argmax(t, 0).item<std::int64_t>(); }
std::int64_t smallest_of(const Tensor& t) { return ops::argmin(t, 0).item<std::int64_t>(); }

TEST(LongRowsTest, ArgmaxIsTheFirstOfEqualOnesAndOfNaN) {
  for (const std::int64_t length : {1024, 1025, 1536, 5000})
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kI16, DType::kU8,
                              DType::kI64, DType::kF16}) {
      SCOPED_TRACE(dtype_name(dtype));
      Tensor row = full({length}, 5, dtype);
      EXPECT_EQ(largest_of(row), 0);
      EXPECT_EQ(smallest_of(row), 0);
      for (const std::int64_t at : {length - 1, std::int64_t{513}, std::int64_t{511}}) {
        fill_(row.narrow(0, at, 1), 7);
        EXPECT_EQ(largest_of(row), at);
        EXPECT_EQ(smallest_of(row), 0);
      }
      fill_(row, 5);
      fill_(row.narrow(0, 700, 1), 3);
      fill_(row.narrow(0, 900, 1), 3);
      EXPECT_EQ(smallest_of(row), 700);
      if (!is_floating(dtype)) continue;
      fill_(row.narrow(0, length - 2, 2), kNaN);
      EXPECT_EQ(largest_of(row), length - 2);
      EXPECT_EQ(smallest_of(row), length - 2);
      fill_(row.narrow(0, 3, 1), kNaN);
      EXPECT_EQ(largest_of(row), 3);
    }
  Tensor lowest = full({3000}, -std::numeric_limits<double>::infinity(), DType::kF32);
  EXPECT_EQ(largest_of(lowest), 0);
  fill_(lowest.narrow(0, 2900, 1), -1e30);
  EXPECT_EQ(largest_of(lowest), 2900);
}

// All of the variance is the first element's, so its result is the root of the others' number.
TEST(LongRowsTest, LayerNormLosesNoDigitsToADistantFirstElement) {
  for (const std::int64_t length : {9, 1 << 16, (1 << 16) + 1, 1 << 22}) {
    Tensor row = zeros({1, length});
    fill_(row.narrow(1, 0, 1), 3.1e15);
    const Tensor y = ops::layer_norm(row, {length});
    const double wanted = std::sqrt(static_cast<double>(length - 1));
    EXPECT_NEAR(y.narrow(1, 0, 1).item<float>(), wanted, 2e-7 * wanted) << length;
    EXPECT_NEAR(y.narrow(1, 1, 1).item<float>(), -1 / wanted, 2e-7 / wanted) << length;
  }
}

TEST(LongRowsTest, SumsOfLossesAreThoseOfTheSingleLosses) {
  using Loss = Tensor (*)(const Tensor&, const Tensor&, ops::Reduction);
  const Loss losses[] = {
      [](const Tensor& a, const Tensor& b, ops::Reduction r) { return ops::mse_loss(a, b, r); },
      [](const Tensor& a, const Tensor& b, ops::Reduction r) { return ops::l1_loss(a, b, r); },
      [](const Tensor& a, const Tensor& b, ops::Reduction r) {
        return ops::huber_loss(a, b, r, 0.7);
      }};
  for (const std::int64_t count : {0, 1, 31, 33, 1024, 1025, 16385, 40001})
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      const Tensor a = to(randn({count}), dtype), b = to(randn({count}), dtype);
      for (const Loss loss : losses) {
        const Tensor wide_a = to(a, DType::kF64), wide_b = to(b, DType::kF64);
        const double wanted = ops::sum(loss(wide_a, wide_b, ops::Reduction::kNone)).item<double>();
        const double rounding = dtype == DType::kF64    ? 1e-12
                                : dtype == DType::kF32  ? 1e-5
                                : dtype == DType::kBF16 ? 1e-2
                                                        : 2e-3;
        const Tensor found = loss(a, b, ops::Reduction::kSum);
        EXPECT_EQ(found.dtype(), dtype);
        EXPECT_EQ(found.dim(), 0);
        if (wanted < 60000) {  // f16 ends
          EXPECT_NEAR(found.item<double>(), wanted, rounding * wanted);
        }
        const double mean = loss(a, b, ops::Reduction::kMean).item<double>();
        if (count == 0) {
          EXPECT_TRUE(std::isnan(mean));
        } else {
          EXPECT_NEAR(mean, wanted / static_cast<double>(count), rounding * mean);
        }
      }
      if (count < 40) continue;
      fill_(a.narrow(0, count - 1, 1), kNaN);
      EXPECT_TRUE(std::isnan(losses[0](a, b, ops::Reduction::kSum).item<double>()));
      EXPECT_TRUE(std::isnan(losses[2](a, b, ops::Reduction::kMean).item<double>()));
    }
}

// Each addition rounds to the dtype.
TEST(LongRowsTest, RowsOf16BitFloatsAreAddedOneAfterTheOther) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const std::int64_t width : {64, 100, 513, 1200}) {
      const Tensor rows = to(randn({7, width}), dtype);
      const Tensor at = tensor<std::int64_t>({2, 0, 2, 2, 1, 0, 2});
      const Tensor base = to(randn({3, width}), dtype);
      const Tensor wanted = clone(base);
      for (std::int64_t i = 0; i < 7; ++i) {
        const Tensor sums = wanted[at[i].item<std::int64_t>()];
        ops::add_(sums, rows[i]);
      }
      const Tensor found = ops::index_add(base, 0, at, rows);
      EXPECT_TRUE(ops::all(ops::eq(found, wanted)).item<bool>());
    }
}

TEST(LongRowsTest, PiecesOfCatLieWhereTheyShould) {
  for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kF64, DType::kC128})
    for (const std::int64_t width : {1, 17, 64, 300}) {
      const auto part = [&](std::int64_t n) { return to(randn({5, n, width}), dtype); };
      const std::vector<Tensor> parts = {part(3), part(0), part(1), part(40)};
      const Tensor joined = ops::cat(parts, 1);
      std::int64_t at = 0;
      for (const Tensor& t : parts) {
        EXPECT_TRUE(ops::all(ops::eq(joined.narrow(1, at, t.size(1)), t)).item<bool>());
        at += t.size(1);
      }
      EXPECT_EQ(joined.size(1), at);
    }
}

TEST(LongRowsTest, WhereChoosesBitsInEveryDtypeAndOrder) {
  const Tensor mask = ops::gt(rand({7, 33, 18}), 0.5);
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kF16, DType::kF32, DType::kI64,
                            DType::kC64, DType::kC128}) {
    const Tensor a = to(ops::mul(randn({7, 33, 18}), 9), dtype);
    const Tensor b = to(ops::mul(randn({7, 33, 18}), 9), dtype);
    const Tensor found = ops::where(mask, a, b);
    const Tensor turned =
        ops::where(mask.transpose(0, 2), a.transpose(0, 2), b.transpose(0, 2)).transpose(0, 2);
    EXPECT_EQ(turned.strides(), found.strides());
    for (std::int64_t i = 0; i < mask.numel(); ++i) {
      const auto at = [&](const Tensor& t) { return contiguous(t).view({-1})[i]; };
      const Tensor wanted = at(mask).item<bool>() ? at(a) : at(b);
      ASSERT_TRUE(ops::eq(at(found), wanted).item<bool>()) << dtype_name(dtype) << " " << i;
      ASSERT_TRUE(ops::eq(at(turned), wanted).item<bool>()) << dtype_name(dtype) << " " << i;
    }
  }
  const Tensor nan = full({100}, kNaN), zero = full({100}, -0.0);
  const Tensor chosen = ops::where(ops::eq(zero, 0), zero, nan);
  EXPECT_TRUE(std::signbit(chosen[99].item<float>()));
}

// Rows of every length have vectors and what is left of one.
TEST(LongRowsTest, NormsAreThoseOfF64) {
  for (const std::int64_t width : {1, 7, 15, 16, 33, 100, 517})
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Tensor x = to(randn({6, width}), dtype), w = to(rand({width}), dtype);
      const auto wide = [](const Tensor& t) { return to(t, DType::kF64); };
      const auto expect_near = [&](const Tensor& found, const Tensor& wanted) {
        const Tensor error = ops::amax(ops::abs(ops::sub(wide(found), wanted)));
        EXPECT_LT(error.item<double>(), dtype == DType::kF32 ? 2e-5 : 4e-2) << width;
      };
      const Tensor norm = ops::layer_norm(wide(x), {width}, wide(w), wide(w));
      const Tensor centred = ops::sub(wide(x), ops::mean(wide(x), {1}, true));
      const Tensor variance = ops::mean(ops::square(centred), {1}, true);
      const Tensor plain = ops::mul(centred, ops::rsqrt(ops::add(variance, 1e-5)));
      expect_near(ops::layer_norm(x, {width}, w, w), norm);
      expect_near(ops::layer_norm(x, {width}), plain);
      expect_near(ops::rms_norm(x, {width}, w), ops::rms_norm(wide(x), {width}, wide(w)));
      const Tensor image = to(randn({2, 4, 3, width}), dtype), c = to(rand({4}), dtype);
      expect_near(ops::group_norm(image, 2, c, c),
                  ops::group_norm(wide(image), 2, wide(c), wide(c)));
      expect_near(ops::batch_norm(image, c, ops::add(c, 1), c, c),
                  ops::batch_norm(wide(image), wide(c), wide(ops::add(c, 1)), wide(c), wide(c)));
    }
}

}  // namespace
}  // namespace tenon
