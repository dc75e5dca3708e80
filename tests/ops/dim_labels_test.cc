// Names and symbolic sizes through operators.
#include "tenon/tensor/dim_labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/refusal.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/factories.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal;

Tensor with_names(IntList sizes, std::vector<std::string> names) {
  const Tensor t = ones(sizes);
  t.set_names(std::move(names));
  return t;
}

TEST(NamedOperatorTest, ElementWiseResultsUnifyFromTheRight) {
  const Tensor a = with_names({2, 3}, {"n", "c"}), b = with_names({3}, {"c"}), c = ones({2, 3});
  EXPECT_THAT(ops::exp(a).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::add(a, b).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::add(b, a).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::mul(a, c).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::mul(a, 2).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::add(c, b).names(), ElementsAre("", "c"));
}

TEST(NamedOperatorTest, MismatchesAreRefused) {
  const Tensor a = with_names({2, 2}, {"n", "c"}), b = with_names({2, 2}, {"c", "n"});
  EXPECT_THAT(refusal([&] { ops::add(a, b); }), HasSubstr("add: dimensions named [n, c]"));
  EXPECT_THAT(refusal([&] { ops::add_(a, b); }), HasSubstr("do not go with [c, n]"));
  // The same name at another place from the right.
  EXPECT_THAT(refusal([&] { ops::add(a, with_names({2}, {"n"})); }), HasSubstr("[n, c]"));
}

TEST(NamedOperatorTest, InPlaceOutputsTakeNames) {
  const Tensor a = ones({2, 3}), b = with_names({2, 3}, {"n", "c"});
  ops::add_(a, b);
  EXPECT_THAT(a.names(), ElementsAre("n", "c"));
  EXPECT_THAT(refusal([&] { ops::add_out(with_names({2, 3}, {"x", "c"}), b, b); }),
              HasSubstr("do not go with"));
}

TEST(NamedOperatorTest, ReductionsKeepTheRest) {
  const Tensor a = with_names({2, 3, 4}, {"n", "c", "w"});
  EXPECT_THAT(ops::sum(a, 1).names(), ElementsAre("n", "w"));
  EXPECT_THAT(ops::mean(a, {0, 2}, true).names(), ElementsAre("n", "c", "w"));
  EXPECT_THAT(ops::amax(a, 2).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::var(a, {0}).names(), ElementsAre("c", "w"));
  EXPECT_EQ(ops::sum(a).names().size(), 0u);
}

TEST(NamedOperatorTest, ProductsTakeRowsAndColumns) {
  const Tensor a = with_names({5, 2, 3}, {"b", "row", "k"}), b = with_names({3, 4}, {"k", "col"});
  EXPECT_THAT(ops::matmul(a, b).names(), ElementsAre("b", "row", "col"));
  EXPECT_THAT(ops::matmul(a, with_names({3}, {"k"})).names(), ElementsAre("b", "row"));
  EXPECT_THAT(ops::matmul(ones({2, 3}), b).names(), ElementsAre("", "col"));
  EXPECT_THAT(refusal([&] { ops::matmul(a, with_names({3, 4}, {"k", "row"})); }),
              HasSubstr("two dimensions named \"row\""));
}

TEST(NamedOperatorTest, WhatKeepsTheShapeKeepsThem) {
  const Tensor a = with_names({2, 3}, {"n", "c"});
  EXPECT_THAT(ops::softmax(a, 1).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::cumsum(a, 0).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::layer_norm(a, {3}).names(), ElementsAre("n", "c"));
  const ops::SortResult sorted = ops::sort(a, 1);
  EXPECT_THAT(sorted.first.names(), ElementsAre("n", "c"));
  EXPECT_THAT(sorted.second.names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::topk(a, 2, 1).second.names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::relu_(a).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::clamp(a, 0).names(), ElementsAre("n", "c"));
}

TEST(NamedOperatorTest, IndicesOfExtremesKeepTheRest) {
  const Tensor a = with_names({2, 3, 4}, {"n", "c", "w"});
  EXPECT_THAT(ops::argmax(a, 1).names(), ElementsAre("n", "w"));
  EXPECT_THAT(ops::argmin(a, -1, true).names(), ElementsAre("n", "c", "w"));
  EXPECT_EQ(ops::argmax(a).names().size(), 0u);
}

TEST(NamedOperatorTest, ChoicesAndJoinsKeepThem) {
  const Tensor a = with_names({2, 3}, {"n", "c"}), b = ones({2, 3});
  const Tensor rows = zeros({5}, DType::kI64);
  EXPECT_THAT(ops::where(ops::gt(b, 0), b, a).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::masked_fill(a, ops::gt(b, 0), 1).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::index_select(a, 0, rows).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::gather(a, 1, zeros({2, 1}, DType::kI64)).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::cat({b, a}, 0).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::stack({a, b}, 1).names(), ElementsAre("n", "", "c"));
  EXPECT_THAT(ops::pad(a, {1, 1}).names(), ElementsAre("n", "c"));
  EXPECT_THAT(ops::repeat(a, {2, 1, 1}).names(), ElementsAre("", "n", "c"));
  EXPECT_THAT(refusal([&] { ops::cat({a, with_names({2, 3}, {"c", "n"})}, 0); }),
              HasSubstr("cat: dimensions named [n, c]"));
  const Tensor index = zeros({2, 2}, DType::kI64);
  index.set_names({"b", "t"});
  EXPECT_THAT(ops::embedding(index, a).names(), ElementsAre("b", "t", "c"));
  EXPECT_THAT(ops::one_hot(index).names(), ElementsAre("b", "t", ""));
}

TEST(NamedOperatorTest, ConvolutionsAndLayersNameTheirChannels) {
  const Tensor a = with_names({2, 3, 8, 8}, {"n", "c", "y", "x"});
  const Tensor filters = with_names({4, 3, 3, 3}, {"f", "", "", ""});
  EXPECT_THAT(ops::conv2d(a, filters).names(), ElementsAre("n", "f", "y", "x"));
  EXPECT_THAT(ops::max_pool2d(a, {2}).names(), ElementsAre("n", "c", "y", "x"));
  const Tensor weight = with_names({5, 8}, {"out", "in"});
  EXPECT_THAT(ops::linear(a, weight).names(), ElementsAre("n", "c", "y", "out"));
  EXPECT_THAT(ops::scaled_dot_product_attention(a, a, a).names(), ElementsAre("n", "c", "y", "x"));
  EXPECT_THAT(ops::mse_loss(a, a, ops::Reduction::kNone).names(), ElementsAre("n", "c", "y", "x"));
  EXPECT_EQ(ops::mse_loss(a, a).names().size(), 0u);
}

// What fails does so before anything is written.
TEST(NamedOperatorTest, RefusalsLeaveTheOutput) {
  const Tensor a = with_names({2}, {"n"}), b = with_names({2}, {"c"});
  const std::uint32_t version = a.version();
  EXPECT_THAT(refusal([&] { ops::mul_(a, b); }), HasSubstr("do not go with"));
  EXPECT_EQ(a.version(), version);
  EXPECT_EQ(a[0].item<float>(), 1);
}

// The memory of a small program on meta, as a formula in its batch size.
TEST(SymbolicProgramTest, BytesAreAFormulaInTheBatch) {
  const SymInt batch = SymInt::symbol("batch", 8);
  const SymInt sizes[] = {batch, 16};
  const Tensor x = empty_symbolic(sizes), w = empty({16, 32}, DType::kF32, x.device());
  const Tensor hidden = ops::relu(ops::matmul(x, w));
  EXPECT_EQ(to_string(hidden.sym_sizes()[0]), "batch");
  const Tensor sum = ops::sum(ops::add(hidden, hidden), 1);
  EXPECT_EQ(to_string(sum.sym_sizes()[0]), "batch");
  SymInt bytes(0);
  for (const Tensor& t : {x, hidden, sum}) bytes = bytes + t.storage().sym_nbytes();
  for (const std::int64_t n : {1, 8, 1000})
    EXPECT_EQ(bytes.evaluate({{"batch", n}}), 4 * n * (16 + 32 + 1)) << n;
  EXPECT_THAT(refusal([&] { static_cast<void>(bytes.evaluate({})); }), HasSubstr("\"batch\""));
}

}  // namespace
}  // namespace tenon
