// Products of matrices by oneDNN's kernels for blocks.
#include "tenon/ops/kernels/cpu/onednn_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "ops/reference.h"
#include "tenon/base/parallel.h"
#include "tenon/base/random.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops {
namespace {

using cpu::Matrix;

class OneDnnGemm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::has_onednn_gemm()) GTEST_SKIP() << "the processor has no instructions";
  }
  // Multiples of 1/64 from -2 to 2: eight bits.
  Tensor numbers(std::int64_t count) {
    const Tensor out = empty({count});
    for (std::int64_t i = 0; i < count; ++i)
      out.data_ptr<float>()[i] = (static_cast<float>(random_.below(257)) - 128) / 64;
    return out;
  }
  std::int64_t below(std::uint64_t end) { return static_cast<std::int64_t>(random_.below(end)); }

  Random random_{11};
};

float at(const Tensor& numbers, const Matrix& matrix, std::int64_t i, std::int64_t j) {
  return numbers.const_data_ptr<float>()[matrix.transposed ? j * matrix.row_stride + i
                                                           : i * matrix.row_stride + j];
}

// Sums of such numbers are exact in f32, so the result has to be equal.
TEST_F(OneDnnGemm, AnyShapeAndOrderIsExact) {
  for (int round = 0; round < 100; ++round) {
    const std::int64_t m = 1 + below(40), n = 1 + below(80), k = 1 + below(round < 20 ? 1100 : 30);
    Matrix a{nullptr, 0, below(2) != 0}, b{nullptr, 0, below(2) != 0};
    a.row_stride = (a.transposed ? m : k) + below(3);
    b.row_stride = (b.transposed ? k : n) + below(3);
    const Tensor left = numbers((a.transposed ? k : m) * a.row_stride);
    const Tensor right = numbers((b.transposed ? n : k) * b.row_stride);
    const Tensor given_left = to(left, DType::kBF16), given_right = to(right, DType::kBF16);
    a.data = given_left.const_data_ptr();
    b.data = given_right.const_data_ptr();
    const std::int64_t stride = n + below(3);
    const double beta = below(2) == 0 ? 0 : 0.5;
    std::vector<float> out(static_cast<std::size_t>(m * stride), beta == 0 ? NAN : 3);
    cpu::onednn_gemm({DType::kBF16, m, n, k, a, b, beta, out.data(), stride});
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < stride; ++j) {
        const float found = out[static_cast<std::size_t>(i * stride + j)];
        if (j >= n) {
          ASSERT_TRUE(beta == 0 ? std::isnan(found) : found == 3) << "written beside the result";
          continue;
        }
        double sum = beta * 3;
        for (std::int64_t l = 0; l < k; ++l)
          sum += static_cast<double>(at(left, a, i, l)) * static_cast<double>(at(right, b, l, j));
        ASSERT_EQ(found, sum) << "seed 11, round " << round << ": " << m << " x " << k << " x " << n
                              << ", element " << i << ", " << j;
      }
  }
}

TEST_F(OneDnnGemm, InfinityAndNanGoThrough) {
  const Tensor left = to(tensor<float>({INFINITY, 1, NAN, 1}), DType::kBF16);
  const Tensor right = to(tensor<float>({1, 2}), DType::kBF16);
  float out[2] = {};
  const Matrix a{left.const_data_ptr(), 2, false}, b{right.const_data_ptr(), 1, false};
  cpu::onednn_gemm({DType::kBF16, 2, 1, 2, a, b, 0, out, 1});
  EXPECT_EQ(out[0], INFINITY);
  EXPECT_TRUE(std::isnan(out[1]));
}

// Small whole numbers, whose products are exact before they are rounded.
TEST(BF16Product, IsTheExactProductRoundedOnAnyNumberOfThreads) {
  Random random(13);
  const auto whole = [&](IntList sizes) {
    return to(round(mul(testing::random_floats(random, sizes, DType::kF64), 16)), DType::kBF16);
  };
  const Tensor a = whole({2, 300, 70}), b = whole({70, 610}), bias = whole({610});
  const Tensor exact = matmul(to(a, DType::kF64), to(b, DType::kF64));
  const Tensor with_bias = to(add(exact, to(bias, DType::kF64)), DType::kBF16);
  const int before = num_threads();
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    EXPECT_EQ(testing::values(matmul(a, b)), testing::values(to(exact, DType::kBF16)));
    EXPECT_EQ(testing::values(linear(a, b.t(), bias)), testing::values(with_bias));
  }
  set_num_threads(before);
}

// oneDNN reads these variables before its first product, so another process has them.
TEST(BF16Product, IsTheSameWithoutAvx512) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "DNNL_MAX_CPU_ISA=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 '" + program +
                              "' --gtest_filter='BF16Product.IsTheExact*' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace tenon::ops
