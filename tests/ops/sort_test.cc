#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/reference.h"
#include "tenon/ops/operators.h"

namespace tenon {
namespace {

using testing::values;

// NaN behind everything.
bool comes_before(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

std::vector<double> stable_order(const std::vector<double>& row, bool descending) {
  std::vector<double> places(row.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](double x, double y) {
    const double a = row[static_cast<std::size_t>(x)], b = row[static_cast<std::size_t>(y)];
    return descending ? comes_before(b, a) : comes_before(a, b);
  });
  return places;
}

void expect_sorted(const Tensor& row) {
  for (const bool descending : {false, true}) {
    const std::vector<double> places = stable_order(values(row), descending);
    const auto [sorted, order] = ops::sort(row, 0, descending);
    EXPECT_EQ(values(order), places) << dtype_name(row.dtype()) << ' ' << row.numel();
    for (const std::int64_t k : {std::int64_t{1}, row.numel() / 20, row.numel() / 3}) {
      if (k == 0) continue;
      const std::vector<double> first(places.begin(), places.begin() + k);
      EXPECT_EQ(values(ops::topk(row, k, 0, descending).second), first)
          << dtype_name(row.dtype()) << ' ' << k << " of " << row.numel();
    }
  }
}

TEST(SortTest, EveryDtypeAndLengthIsStable) {
  for (const std::int64_t length : {1, 2, 17, 33, 100, 257, 1000, 20000})
    for (const DType d : {DType::kBool, DType::kU8, DType::kI8, DType::kI16, DType::kI32,
                          DType::kI64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
      if (d == DType::kBool)
        expect_sorted(ops::gt(rand({length}), 0.5));
      else if (d == DType::kU8)
        expect_sorted(randint(0, 256, {length}, d));
      else
        expect_sorted(to(ops::mul(randn({length}), 40), d));
    }
}

TEST(SortTest, NoNumbersAndBothZeros) {
  for (const DType d : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const double infinity = std::numeric_limits<double>::infinity();
    const Tensor row = tensor<double>({0.0, NAN, -0.0, infinity, -1, -NAN, 0.0, -infinity, 1});
    expect_sorted(to(row, d));
    expect_sorted(to(ops::repeat(row, {30}), d));
    const Tensor zeros = ops::sort(to(row, d)).first.narrow(0, 2, 3);  // keep their signs
    EXPECT_EQ(values(ops::lt(ops::reciprocal(zeros), 0)), (std::vector<double>{0, 1, 0}));
  }
}

// Their keys and places do not fit in 64 bits together.
TEST(SortTest, LongKeysThatDifferInTheirLastBits) {
  Tensor near = ops::add(ops::mul(to(randint(0, 50, {3000}), DType::kF64), 0x1p-52), 1.0);
  near = ops::mul(near, to(ops::sub(ops::mul(randint(0, 2, {3000}), 2), 1), DType::kF64));
  expect_sorted(near);
  const Tensor wide = ops::add(randint(0, 9, {3000}), std::numeric_limits<std::int64_t>::min());
  const Tensor order = ops::argsort(
      ops::where(ops::gt(rand({3000}), 0.5), wide, ops::sub(-1, wide)));  // at both ends
  EXPECT_EQ(values(ops::sort(order).first), values(arange(3000)));
}

}  // namespace
}  // namespace tenon
