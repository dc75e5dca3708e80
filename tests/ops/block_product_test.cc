// Products in blocks, in the vectors of the processor.
#include "tenon/ops/kernels/cpu/block_product.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tenon/base/random.h"

namespace tenon::ops {
namespace {

template <typename T>
void expect_exact(DType dtype, std::uint64_t seed) {
  Random random(seed);
  const auto below = [&](std::uint64_t end) {
    return static_cast<std::int64_t>(random.below(end));
  };
  for (int round = 0; round < 80; ++round) {
    const std::int64_t m = 1 + below(round < 10 ? 300 : 40), n = 1 + below(round < 10 ? 600 : 80);
    const std::int64_t k = 1 + below(round < 30 ? 450 : 30), count = round < 30 ? 1 : 3;
    SCOPED_TRACE(fmt::format("{} {} {}", m, n, k));
    cpu::Matrix a{nullptr, 0, below(2) != 0}, b{nullptr, 0, below(2) != 0};
    a.row_stride = (a.transposed ? m : k) + below(3);
    b.row_stride = (b.transposed ? k : n) + below(3);
    // Sums of such numbers are exact, so the result has to be equal.
    const auto numbers = [&](std::int64_t elements) {
      std::vector<T> all(static_cast<std::size_t>(elements));
      for (T& number : all) number = static_cast<T>(below(17) - 8);
      return all;
    };
    cpu::Products p{.dtype = dtype, .m = m, .n = n, .k = k, .count = count};
    p.a_apart = (a.transposed ? k : m) * a.row_stride;
    p.b_apart = (b.transposed ? n : k) * b.row_stride;
    const std::vector<T> left = numbers(count * p.a_apart), right = numbers(count * p.b_apart);
    a.data = left.data();
    b.data = right.data();
    const std::int64_t stride = n + below(3);
    p.beta = below(2) == 0 ? 0 : 0.5;
    p.out_stride = stride;
    p.out_apart = m * stride;
    std::vector<T> out(static_cast<std::size_t>(count * p.out_apart), p.beta == 0 ? T(NAN) : T(3));
    p.a = a;
    p.b = b;
    p.out = out.data();
    cpu::block_product(p);
    const auto at = [](const cpu::Matrix& matrix, std::int64_t first, std::int64_t i,
                       std::int64_t j) {
      const std::int64_t there =
          matrix.transposed ? j * matrix.row_stride + i : i * matrix.row_stride + j;
      return static_cast<const T*>(matrix.data)[first + there];
    };
    for (std::int64_t row = 0; row < count * m; ++row)
      for (std::int64_t j = 0; j < stride; ++j) {
        const std::int64_t q = row / m, i = row % m;
        T sum = p.beta == 0 ? T(0) : T(1.5);
        for (std::int64_t l = 0; j < n && l < k; ++l)
          sum += at(a, q * p.a_apart, i, l) * at(b, q * p.b_apart, l, j);
        const T found = out[static_cast<std::size_t>(row * stride + j)];
        if (j < n)
          ASSERT_EQ(found, sum) << row << ' ' << j;
        else
          ASSERT_TRUE(p.beta == 0 ? std::isnan(found) : found == 3) << row << ' ' << j;
      }
  }
}

TEST(BlockProduct, AnyShapeAndOrderIsExact) {
  expect_exact<float>(DType::kF32, 5);
  expect_exact<double>(DType::kF64, 6);
}

}  // namespace
}  // namespace tenon::ops
