// Operators of sparse tensors, beside the same ones of dense tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/base/random.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/sparse.h"

namespace tenon {
namespace {

// Small whole numbers: every order of summing gives the same.
Tensor whole_numbers(IntList sizes, int one_in, std::uint64_t seed) {
  Tensor t = zeros(sizes, DType::kF32);
  Random random(seed);
  float* data = t.data_ptr<float>();
  for (std::int64_t i = 0; i < t.numel(); ++i)
    if (random.next() % static_cast<std::uint64_t>(one_in) == 0)
      data[i] = static_cast<float>(random.next() % 7) - 3;
  return t;
}

void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  ASSERT_EQ(a.dtype(), b.dtype());
  const Tensor left = to(contiguous(a), DType::kF64), right = to(contiguous(b), DType::kF64);
  for (std::int64_t i = 0; i < left.numel(); ++i)
    ASSERT_EQ(left.const_data_ptr<double>()[i], right.const_data_ptr<double>()[i]) << "at " << i;
}

TEST(SparseTensor, ItsPartsGoWithTheLastHandle) {
  Tensor values = ones({3});
  const Storage bytes = values.storage();
  Tensor sparse = sparse_coo_tensor(arange(3).view({1, 3}), values, {3});
  values = Tensor();
  const WeakIntrusivePtr<TensorImpl> weak(sparse.impl_ptr());
  EXPECT_FALSE(bytes.unique());
  sparse = Tensor();
  EXPECT_TRUE(bytes.unique()) << "while weak ones remain";
}

TEST(SparseProduct, EqualsTheDenseOne) {
  std::uint64_t seed = 1;
  for (const auto& [m, k, n] : std::vector<std::array<std::int64_t, 3>>{
           {3, 4, 5}, {1, 1, 1}, {0, 3, 2}, {3, 0, 2}, {2, 3, 0}, {300, 200, 70}})
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI32, DType::kC64}) {
      const Tensor a = to(whole_numbers({m, k}, 4, seed++), dtype);
      const Tensor b = to(whole_numbers({k, n}, 1, seed++), dtype);
      const Tensor expected = ops::matmul(a, b);
      expect_equal(ops::matmul(to_sparse_csr(a), b), expected);
      expect_equal(ops::matmul(to_sparse_coo(a), b), expected);
      expect_equal(ops::matmul(to_sparse_csc(a), b), expected);
      expect_equal(ops::matmul(to_sparse_bsr(a, 1, 1), b), expected);
      if (m % 3 == 0 && k % 2 == 0)
        expect_equal(ops::matmul(to_sparse_bsc(a, 3, 2), b), expected);
    }
}

TEST(SparseProduct, TakesVectorsTransposesAndStridedOperands) {
  const Tensor a = whole_numbers({20, 30}, 3, 7);
  const Tensor x = whole_numbers({30}, 1, 8);
  expect_equal(ops::matmul(to_sparse_csr(a), x), ops::matmul(a, x));
  const Tensor b = whole_numbers({8, 20}, 1, 9);
  expect_equal(ops::matmul(to_sparse_csr(a).t(), b.t()), ops::matmul(a.t(), b.t()));
}

TEST(SparseProduct, TheSameOnAnyNumberOfThreads) {
  const Tensor a = to_sparse_csr(whole_numbers({500, 400}, 5, 3));
  const Tensor b = whole_numbers({400, 64}, 1, 4);
  const int threads = num_threads();
  set_num_threads(1);
  const Tensor one = ops::matmul(a, b);
  set_num_threads(4);
  const Tensor four = ops::matmul(a, b);
  set_num_threads(threads);
  expect_equal(one, four);
}

TEST(SparseProduct, WhatDoesNotFitIsRefusedWithTheShapes) {
  const Tensor a = to_sparse_csr(whole_numbers({3, 4}, 2, 1));
  const auto message = [&](const Tensor& left, const Tensor& right) -> std::string {
    try {
      ops::matmul(left, right);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(a, zeros({3, 4})), ::testing::HasSubstr("[3, 4]"));
  EXPECT_THAT(message(a, zeros({4, 2}, DType::kF64)), ::testing::HasSubstr("float64"));
  EXPECT_THAT(message(a, a), ::testing::HasSubstr("sparse_csr"));
  EXPECT_THAT(message(zeros({4, 3}), a), ::testing::HasSubstr("to_dense()"));
  EXPECT_THROW(ops::relu(a), InvalidArgument);
}

std::vector<Tensor> all_layouts(const Tensor& a) {
  return {to_sparse_coo(a), to_sparse_csr(a), to_sparse_csc(a), to_sparse_bsr(a, 2, 3),
          to_sparse_bsc(a, 3, 2)};
}

TEST(SparseOperators, AddScaleAndSumAsDenseOnesDo) {
  for (const DType dtype : {DType::kF32, DType::kI32, DType::kC128}) {
    const Tensor a = to(whole_numbers({6, 12}, 3, 1), dtype);
    const Tensor b = to(whole_numbers({6, 12}, 3, 2), dtype);
    for (const Tensor& x : all_layouts(a)) {
      for (const Tensor& y : all_layouts(b)) {
        EXPECT_EQ((x + y).layout(), x.layout());
        expect_equal(to_dense(x + y), a + b);
        expect_equal(to_dense(x - y), a - b);
      }
      expect_equal(x + b, a + b);
      expect_equal(b - x, b - a);
      EXPECT_EQ((x * 3).layout(), x.layout());
      expect_equal(to_dense(x * 3), a * 3);
      expect_equal(to_dense(scalar_tensor(2, dtype) * x), a * 2);
      expect_equal(to_dense(x / 2), a / 2);
      expect_equal(to_dense(-x), -a);
      expect_equal(to_dense(ops::add(x, x, 2)), a * 3);
      expect_equal(ops::sum(x), ops::sum(a));
      expect_equal(ops::sum(x, 0), ops::sum(a, 0));
      expect_equal(ops::sum(x, 1, true), ops::sum(a, 1, true));
      expect_equal(ops::sum(x, IntList{0}, true), ops::sum(a, 0, true));
      expect_equal(ops::sum(x, IntList{0, 1}, true), ops::sum(a, IntList{0, 1}, true));
    }
  }
}

TEST(SparseOperators, OfMoreDimensionsToo) {
  const Tensor a = whole_numbers({3, 4, 5}, 3, 5), b = whole_numbers({3, 4, 5}, 3, 6);
  expect_equal(to_dense(to_sparse_coo(a) + to_sparse_coo(b)), a + b);
  expect_equal(to_dense(to_sparse_coo(a, 2) - to_sparse_coo(b, 2)), a - b);
  expect_equal(ops::sum(to_sparse_coo(a), 1), ops::sum(a, 1));
}

TEST(SparseOperators, PromoteAsDenseOnesDo) {
  const Tensor a = to(whole_numbers({2, 3}, 2, 7), DType::kI32), b = whole_numbers({2, 3}, 2, 8);
  EXPECT_EQ((to_sparse_csr(a) + to_sparse_csr(b)).dtype(), DType::kF32);
  EXPECT_EQ((to_sparse_csr(a) * 1.5).dtype(), DType::kF32);
  EXPECT_EQ(ops::sum(to_sparse_csr(a), 0).dtype(), DType::kI64);
}

TEST(SparseOperators, WhatTheyCannotIsRefused) {
  const Tensor a = to_sparse_csr(whole_numbers({2, 3}, 2, 9));
  EXPECT_THROW(a * a, InvalidArgument);
  EXPECT_THROW(a * ones({2, 3}), InvalidArgument);
  EXPECT_THROW(2 / a, InvalidArgument);
  EXPECT_THROW(a + to_sparse_csr(whole_numbers({3, 3}, 2, 9)), InvalidArgument);
  EXPECT_THROW(ops::add_(a, a), InvalidArgument);
  EXPECT_THROW(ops::exp(a), InvalidArgument);
  EXPECT_THROW(ops::mean(a), InvalidArgument);
}

}  // namespace
}  // namespace tenon
