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

TEST(NamedOperatorTest, TheRestDropsThem) {
  const Tensor a = with_names({2, 3}, {"n", "c"});
  EXPECT_THAT(ops::softmax(a, 1).names(), ElementsAre("", ""));
  EXPECT_THAT(ops::cumsum(a, 0).names(), ElementsAre("", ""));
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
