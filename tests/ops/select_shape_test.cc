#include <gtest/gtest.h>

#include <cmath>

#include "ops/reference.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"

namespace tenon {
namespace {

using testing::element;
using testing::for_each_index;
using testing::Index;
using testing::values;
using Values = std::vector<double>;

Tensor grid(IntList sizes) { return arange(numel_of(sizes)).view(sizes); }
Tensor i64(std::initializer_list<std::int64_t> list) { return tensor<std::int64_t>(list); }

TEST(SelectTest, WhereAndMaskedFillBroadcast) {
  const Tensor condition = tensor<bool>({true, false});
  EXPECT_EQ(values(ops::where(condition, grid({2, 2}), full({}, -1, DType::kI64))),
            (Values{0, -1, 2, -1}));
  EXPECT_EQ(ops::where(condition, i64({1, 2}), full({2}, 0.5)).dtype(), DType::kF32);
  EXPECT_EQ(values(ops::masked_fill(grid({2, 2}), condition, 9)), (Values{9, 1, 9, 3}));
  EXPECT_EQ(ops::masked_fill(grid({2, 2}), condition, 9).dtype(), DType::kI64);
  EXPECT_THROW(ops::where(i64({1, 0}), i64({1, 2}), i64({1, 2})), InvalidArgument);
  EXPECT_THROW(ops::masked_fill(grid({2}), condition, 0.5), InvalidArgument);
}

TEST(SelectTest, GatherAndIndexSelectReadWhereTheIndexSays) {
  const Tensor a = grid({3, 4}).t();  // strided: [4, 3]
  EXPECT_EQ(values(ops::index_select(a, 0, i64({3, 1}))), (Values{3, 7, 11, 1, 5, 9}));
  EXPECT_EQ(values(ops::index_select(a, 1, i64({2}))), (Values{8, 9, 10, 11}));
  const Tensor index = tensor<std::int64_t>({0, 3, 2, 1}, {2, 2});
  const Tensor gathered = ops::gather(a, 0, index);
  for_each_index(index.sizes(), [&](const Index& i) {
    EXPECT_EQ(element(gathered, i),
              element(a, {static_cast<std::int64_t>(element(index, i)), i[1]}));
  });
  EXPECT_THROW(ops::gather(a, 1, full({4, 1}, 3, DType::kI64)), InvalidArgument);
  EXPECT_THROW(ops::gather(a, 1, full({4, 1}, -1, DType::kI64)), InvalidArgument);
  EXPECT_THROW(ops::gather(a, 0, zeros({1, 4}, DType::kI64)), InvalidArgument);
  EXPECT_THROW(ops::gather(a, 0, zeros({1, 1})), InvalidArgument);
  EXPECT_THROW(ops::index_select(a, 0, zeros({1, 1}, DType::kI64)), InvalidArgument);
  EXPECT_EQ(ops::index_select(full({}, 5), 0, i64({0})).item<float>(), 5);
}

TEST(SelectTest, AdditionsToOnePlaceAddUp) {
  const Tensor zero = zeros({2, 3});
  const Tensor index = tensor<std::int64_t>({0, 0, 2, 1}, {2, 2});
  EXPECT_EQ(values(ops::scatter_add(zero, 1, index, ones({2, 2}))), (Values{2, 0, 0, 0, 1, 1}));
  EXPECT_EQ(values(ops::index_add(zero, 0, i64({1, 1}), ones({2, 3}))), (Values{0, 0, 0, 2, 2, 2}));
  EXPECT_EQ(values(zero), Values(6, 0));
  EXPECT_THROW(ops::scatter_add(zero, 1, index, ones({1, 2})), InvalidArgument);
  EXPECT_THROW(ops::index_add(zero, 0, i64({1}), ones({2, 3})), InvalidArgument);
  EXPECT_THROW(ops::index_add(zero, 0, i64({1}), ones({1, 3}, DType::kF64)), InvalidArgument);
}

// One by one, no bf16 grows beyond 256 by adding 1.
TEST(SelectTest, SumsOf16BitsAreRoundedOnce) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const std::int64_t width : {1, 2}) {
      const Tensor ones = ops::mul(to(full({4096, width}, 1), dtype), 1);
      const Tensor none = zeros({3, width}, dtype), places = full({4096}, 1, DType::kI64);
      const Tensor sums = ops::index_add(none, 0, places, ones);
      const Tensor scattered = ops::scatter_add(
          none, 0, contiguous(places.view({4096, 1}).expand({4096, width})), ones);
      EXPECT_EQ(sums.dtype(), dtype);
      EXPECT_EQ(element(sums, {1, 0}), 4096);
      EXPECT_EQ(values(scattered), values(sums));
    }
}

TEST(SelectTest, EmbeddingAndOneHot) {
  const Tensor weight = grid({4, 2});
  EXPECT_EQ(values(ops::embedding(tensor<std::int64_t>({3, 0}, {2, 1}), weight)),
            (Values{6, 7, 0, 1}));
  EXPECT_EQ(ops::embedding(zeros({2, 3}, DType::kI64), weight).sizes(), (IntList{2, 3, 2}));
  EXPECT_THROW(ops::embedding(i64({4}), weight), InvalidArgument);
  EXPECT_EQ(values(ops::one_hot(i64({1, 0}))), (Values{0, 1, 1, 0}));
  EXPECT_EQ(ops::one_hot(i64({1, 0}), 5).sizes(), (IntList{2, 5}));
  EXPECT_THROW(ops::one_hot(i64({5}), 5), InvalidArgument);
}

TEST(ShapeTest, CatAndStackJoin) {
  const Tensor a = grid({2, 2}), b = grid({1, 2});
  EXPECT_EQ(values(ops::cat({a, b.expand({1, 2})})), (Values{0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(values(ops::cat({a.t(), a}, 1)), (Values{0, 2, 0, 1, 1, 3, 2, 3}));
  EXPECT_EQ(ops::cat({a, ones({1, 2})}).dtype(), DType::kF32);
  EXPECT_EQ(ops::cat({zeros({0}), ones({2, 2})}).sizes(), (IntList{2, 2}));
  EXPECT_EQ(values(ops::stack({i64({1, 2}), i64({3, 4})}, 1)), (Values{1, 3, 2, 4}));
  EXPECT_THROW(ops::cat({a, grid({1, 3})}), InvalidArgument);
  EXPECT_THROW(ops::cat({full({}, 1)}), InvalidArgument);
  EXPECT_THROW(ops::cat(std::span<const Tensor>()), InvalidArgument);
  EXPECT_THROW(ops::stack({a, b}), InvalidArgument);
}

TEST(ShapeTest, FlipRollRepeatAndPadMoveElements) {
  const Tensor a = grid({2, 3});
  EXPECT_EQ(values(ops::flip(a, {0, 1})), (Values{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(values(ops::flip(a.t(), {-1})), (Values{3, 0, 4, 1, 5, 2}));
  EXPECT_FALSE(ops::flip(a, {}).is_alias_of(a));
  const Tensor cube = arange(60).view({3, 4, 5}).transpose(0, 2);
  const Tensor flipped = ops::flip(cube, {0, 2});
  for_each_index(cube.sizes(), [&](const Index& i) {
    EXPECT_EQ(element(flipped, i), element(cube, {4 - i[0], i[1], 2 - i[2]}));
  });
  EXPECT_THROW(ops::flip(a, {0, -2}), InvalidArgument);
  EXPECT_EQ(values(ops::roll(a, {1}, {1})), (Values{2, 0, 1, 5, 3, 4}));
  EXPECT_EQ(values(ops::roll(a, {-1})), (Values{1, 2, 3, 4, 5, 0}));
  EXPECT_EQ(values(ops::roll(a, {1, 4}, {0, 1})), (Values{5, 3, 4, 2, 0, 1}));
  EXPECT_EQ(values(ops::repeat(i64({1, 2}), {2, 2})), (Values{1, 2, 1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(ops::repeat(a, {0, 2}).sizes(), (IntList{0, 6}));
  EXPECT_THROW(ops::repeat(a, {2}), InvalidArgument);
  EXPECT_EQ(values(ops::pad(a, {1, 0}, 9)), (Values{9, 0, 1, 2, 9, 3, 4, 5}));
  EXPECT_EQ(values(ops::pad(a, {-1, 1, 0, -1})), (Values{1, 2, 0}));
  EXPECT_EQ(values(ops::pad(a, {-5, 5})), Values(6, 0));
  EXPECT_THROW(ops::pad(a, {1}), InvalidArgument);
  EXPECT_THROW(ops::pad(a, {-2, -2}), InvalidArgument);
}

TEST(ShapeTest, TrianglesOfEveryShape) {
  for (const std::int64_t diagonal : {-4, -1, 0, 2, 5}) {
    const Tensor a = ops::add(grid({2, 3, 4}), 1);
    const Tensor low = ops::tril(a, diagonal), high = ops::triu(a, diagonal);
    for_each_index(a.sizes(), [&](const Index& i) {
      EXPECT_EQ(element(low, i), i[2] - i[1] <= diagonal ? element(a, i) : 0);
      EXPECT_EQ(element(high, i), i[2] - i[1] >= diagonal ? element(a, i) : 0);
    });
  }
  EXPECT_THROW(ops::tril(i64({1})), InvalidArgument);
}

TEST(LossTest, IgnoredTargetsCountForNothing) {
  const Tensor logits = tensor<float>({1, 2, 3, 3, 2, 1}, {2, 3});
  const Tensor target = i64({2, -100});
  const double first = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0)) - 3;
  EXPECT_NEAR(ops::cross_entropy(logits, target).item<double>(), first, 1e-6);
  EXPECT_EQ(values(ops::cross_entropy(logits, target, ops::Reduction::kNone))[1], 0);
  EXPECT_THROW(ops::cross_entropy(logits, i64({3, 0})), InvalidArgument);
  EXPECT_THROW(ops::cross_entropy(logits, i64({1})), InvalidArgument);
  EXPECT_THROW(ops::cross_entropy(logits, target, ops::Reduction::kMean, -100, 2), InvalidArgument);
  // Many rows go to several threads; the first wrong class is named.
  Tensor many = zeros({5000}, DType::kI64);
  EXPECT_NEAR(ops::cross_entropy(zeros({5000, 4}), many).item<double>(), std::log(4.0), 1e-6);
  fill_(many.narrow(0, 700, 2), 9);
  fill_(many.narrow(0, 4000, 1), 8);
  try {
    ops::cross_entropy(zeros({5000, 4}), many);
    FAIL();
  } catch (const InvalidArgument& wrong) {
    EXPECT_STREQ(wrong.what(), "cross_entropy: class 9 of 4");
  }
  const Tensor image = ops::cross_entropy(zeros({2, 3, 4, 5}), zeros({2, 4, 5}, DType::kI64));
  EXPECT_NEAR(image.item<double>(), std::log(3.0), 1e-6);
}

TEST(LossTest, PairLossesAgreeWithTheirFormulas) {
  const Tensor a = tensor<float>({0, 3, -50}), b = tensor<float>({1, 1, 1});
  EXPECT_NEAR(ops::mse_loss(a, b).item<double>(), (1 + 4 + 2601) / 3.0, 1e-3);
  EXPECT_NEAR(ops::l1_loss(a, b, ops::Reduction::kSum).item<double>(), 54, 1e-5);
  EXPECT_EQ(values(ops::huber_loss(a, b, ops::Reduction::kNone)), (Values{0.5, 1.5, 50.5}));
  EXPECT_NEAR(values(ops::binary_cross_entropy_with_logits(a, b, ops::Reduction::kNone))[2], 50,
              1e-5);
}

}  // namespace
}  // namespace tenon
