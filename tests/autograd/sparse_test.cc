// Gradients through sparse tensors: an element for each value, and none besides.
#include "tenon/tensor/sparse.h"

#include <gtest/gtest.h>

#include "autograd/leaves.h"
#include "tenon/autograd/autograd.h"
#include "tenon/autograd/gradcheck.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::autograd {
namespace {

using testing::leaf;

using In = std::span<const Tensor>;

Tensor i64(std::initializer_list<std::int64_t> values) { return tensor<std::int64_t>(values); }

// A matrix [4, 6] of each layout, of given values.
Tensor coo(const Tensor& values) {  // an element comes twice
  return sparse_coo_tensor(i64({3, 0, 2, 0, 3, 1, 0, 5, 0, 1}).view({2, 5}), values, {4, 6});
}
Tensor csr(const Tensor& values) {
  return sparse_csr_tensor(i64({0, 2, 2, 3, 5}), i64({0, 4, 1, 0, 5}), values, {4, 6});
}
Tensor csc(const Tensor& values) {
  return sparse_csc_tensor(i64({0, 1, 1, 3, 3, 4, 5}), i64({2, 0, 3, 1, 1}), values, {4, 6});
}
Tensor bsr(const Tensor& values) {
  return sparse_bsr_tensor(i64({0, 1, 3}), i64({1, 0, 1}), values, {4, 6});
}
Tensor bsc(const Tensor& values) {
  return sparse_bsc_tensor(i64({0, 2, 3}), i64({0, 1, 1}), values, {4, 6});
}

struct Layouts {
  const char* name;
  Tensor (*make)(const Tensor&);
  std::vector<std::int64_t> values;
};
const std::vector<Layouts>& layouts() {
  static const std::vector<Layouts> all = {
      {"coo", coo, {5}}, {"csr", csr, {5}}, {"csc", csc, {5}}, {"bsr", bsr, {3, 2, 3}},
      {"bsc", bsc, {3, 2, 3}}};
  return all;
}

void check(const char* name, const std::function<Tensor(In)>& f, const std::vector<Tensor>& in) {
  const auto many = [&](In x) { return std::vector<Tensor>{f(x)}; };
  EXPECT_EQ(gradcheck(many, in), "") << name;
  EXPECT_EQ(gradgradcheck(many, in), "") << name << ", twice";
}

TEST(SparseGradientTest, ProductsGiveOneToBothOperands) {
  for (const DType dtype : {DType::kF64, DType::kC128})
    for (const Layouts& layout : layouts()) {
      const auto product = [&](In x) { return ops::matmul(layout.make(x[0]), x[1]); };
      check(layout.name, product, {leaf(layout.values, 1, dtype), leaf({6, 2}, 2, dtype)});
      check(layout.name, product, {leaf(layout.values, 3, dtype), leaf({6}, 4, dtype)});
    }
}

TEST(SparseGradientTest, TransposesSumsAndScalesToo) {
  for (const Layouts& layout : layouts()) {
    const std::vector<Tensor> in = {leaf(layout.values, 5), leaf({4, 2}, 6), leaf({}, 7)};
    check(layout.name,
          [&](In x) {
            const Tensor s = layout.make(x[0]);
            return ops::matmul((s * x[2] + s).t(), x[1]);
          },
          in);
    check(layout.name,
          [&](In x) {
            const Tensor s = layout.make(x[0]);
            return ops::square(ops::sum(s, 1)) + ops::sum(-s);
          },
          {in[0]});
    check(layout.name, [&](In x) { return ops::square(to_dense(layout.make(x[0]))); }, {in[0]});
  }
}

// The gradient of the dense matrix at the places of the values: no others exist.
TEST(SparseGradientTest, TheGradientHasThePatternOfTheMatrix) {
  const Tensor values = leaf({5}, 8), b = leaf({6, 3}, 9);
  const Tensor dense = to_dense(csr(values.detach())).set_requires_grad(true);
  backward(ops::sum(ops::square(ops::matmul(csr(values), b))));
  const Tensor of_values = values.grad(), of_b = b.grad();
  clear_grad(b);
  backward(ops::sum(ops::square(ops::matmul(dense, b))));
  const Tensor at = i64({0, 0, 2, 3, 3}) * 6 + i64({0, 4, 1, 0, 5});
  const Tensor wanted = ops::index_select(dense.grad().reshape({-1}), 0, at);
  EXPECT_LT(ops::amax(ops::abs(of_values - wanted)).item<double>(), 1e-12);
  EXPECT_LT(ops::amax(ops::abs(of_b - b.grad())).item<double>(), 1e-12);
}

// From strided to sparse and back: zeros that were left out get none.
TEST(SparseGradientTest, ConversionsFromStridedOnesAreFollowed) {
  const Tensor dense = tensor<double>({0, 2, 3, 0, 0, 4}, {2, 3}).set_requires_grad(true);
  for (const auto& convert : std::vector<std::function<Tensor(const Tensor&)>>{
           [](const Tensor& t) { return to_sparse_coo(t); }, to_sparse_csr, to_sparse_csc}) {
    backward(ops::sum(ops::square(to_dense(convert(dense)))));
    const Tensor wanted = dense.detach() * 2;
    EXPECT_LT(ops::amax(ops::abs(dense.grad() - wanted)).item<double>(), 1e-12);
    clear_grad(dense);
  }
}

TEST(SparseGradientTest, DetachedOnesHaveNone) {
  const Tensor values = leaf({5}, 10);
  EXPECT_TRUE(sparse_values(csr(values)).requires_grad());
  EXPECT_FALSE(sparse_values(csr(values).detach()).requires_grad());
  EXPECT_FALSE(ops::matmul(csr(values).detach(), ones({6}, DType::kF64)).requires_grad());
}

}  // namespace
}  // namespace tenon::autograd
