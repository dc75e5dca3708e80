// Derivatives by kernels of their own (f32) beside those by formulas (f64).
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/nn/packed_attention.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

using Inputs = std::vector<Tensor>;
using Function = std::function<Tensor(const Inputs&)>;

// The gradients of <f(inputs), weights> for fixed random weights, in a dtype.
Inputs gradients(const Function& f, const Inputs& inputs, DType dtype) {
  Inputs leaves;
  for (const Tensor& input : inputs) {
    Tensor leaf = is_floating(input.dtype()) ? clone(to(input, dtype)) : input;
    if (is_floating(leaf.dtype())) leaf.set_requires_grad(true);
    leaves.push_back(leaf);
  }
  const Tensor out = f(leaves);
  Generator generator(77);
  const Tensor weights = to(randn(out.sizes(), DType::kF32, generator), dtype);
  autograd::backward(out, weights);
  Inputs result;
  for (const Tensor& leaf : leaves)
    if (leaf.requires_grad()) result.push_back(leaf.grad());
  return result;
}

void compare(const Function& f, const Inputs& inputs, double tolerance = 2e-5) {
  const Inputs fast = gradients(f, inputs, DType::kF32);
  const Inputs exact = gradients(f, inputs, DType::kF64);
  ASSERT_EQ(fast.size(), exact.size());
  for (std::size_t i = 0; i < fast.size(); ++i) {
    ASSERT_EQ(fast[i].sizes(), exact[i].sizes());
    const double scale = 1 + ops::amax(ops::abs(exact[i])).item<double>();
    const double error =
        ops::amax(ops::abs(ops::sub(to(fast[i], DType::kF64), exact[i]))).item<double>();
    EXPECT_LE(error, tolerance * scale) << "input " << i;
  }
}

TEST(DirectDerivatives, OfConvolutions) {
  for (const std::int64_t images : {1, 3, 17})
    for (const ops::ConvOptions& o :
         {ops::ConvOptions{}, ops::ConvOptions{2, 1, 1, 1, 0}, ops::ConvOptions{1, 1, 1, 2, 0}})
      compare([&](const Inputs& in) { return ops::conv2d(in[0], in[1], in[2], o); },
              {randn({images, 16, 9, 10}), randn({16, 16 / o.groups, 3, 3}), randn({16})});
}

TEST(DirectDerivatives, OfMaxPooling) {
  Tensor ties = to(randint(0, 3, {2, 3, 9, 8}), DType::kF32);
  for (const ops::PoolOptions& o :
       {ops::PoolOptions{2, 0, 0, true}, ops::PoolOptions{3, 2, 0, true},
        ops::PoolOptions{{2, 3}, {1, 2}, 0, true}, ops::PoolOptions{3, 2, 1, true}}) {
    const Function pool = [&](const Inputs& in) { return ops::max_pool2d(in[0], o); };
    compare(pool, {randn({2, 3, 9, 8})});
    compare(pool, {ties});
    const Tensor out = ops::max_pool2d(ties, o);
    const Tensor wide = ops::max_pool2d(to(ties, DType::kF64), o);
    EXPECT_TRUE(ops::all(ops::eq(out, wide)).item<bool>());
  }
  fill_(ties[0][0].narrow(0, 3, 1), NAN);
  const Tensor out = ops::max_pool2d(ties, {2, 0, 0, true});
  EXPECT_TRUE(ops::all(ops::isnan(out[0][0][1])).item<bool>());
  EXPECT_FALSE(ops::any(ops::isnan(out[0][1])).item<bool>());
}

// Vectors of every length, whole and in part.
TEST(DirectDerivatives, OfMaxPoolingOfAnyWidth) {
  const ops::PoolOptions halves{2, 0, 0, true};
  const Function pool = [&](const Inputs& in) { return ops::max_pool2d(in[0], halves); };
  for (std::int64_t width = 2; width <= 71; ++width) {
    SCOPED_TRACE(width);
    const Tensor ties = to(randint(0, 3, {2, 5, width}), DType::kF32);
    compare(pool, {ties});
    const Tensor wide = ops::max_pool2d(to(ties, DType::kF64), halves);
    EXPECT_TRUE(ops::all(ops::eq(ops::max_pool2d(ties, halves), wide)).item<bool>());
    fill_(ties[1].narrow(1, width - 2, 1), NAN);
    const Tensor largest = ops::max_pool2d(ties, halves);
    const Tensor is_nan = ops::isnan(largest[1].narrow(1, (width - 2) / 2, 1));
    EXPECT_TRUE(ops::all(is_nan).item<bool>());
    EXPECT_EQ(ops::sum(to(ops::isnan(largest), DType::kF32)).item<double>(), 2);
  }
}

TEST(DirectDerivatives, OfSoftmaxAndNormsAndGelu) {
  for (const std::int64_t length : {1, 7, 64, 130}) {
    compare([](const Inputs& in) { return ops::softmax(in[0], -1); }, {randn({5, 3, length})});
    compare([&](const Inputs& in) { return ops::layer_norm(in[0], {length}, in[1], in[2]); },
            {randn({5, 3, length}), randn({length}), randn({length})}, 1e-4);
    compare([&](const Inputs& in) { return ops::layer_norm(in[0], {length}); },
            {randn({4, length})}, 1e-4);
    compare([](const Inputs& in) { return ops::gelu(ops::mul(in[0], 3.0), true); },
            {randn({3, length})});
  }
}

TEST(DirectDerivatives, OfCrossEntropy) {
  const Tensor logits = ops::mul(randn({37, 11}), 4.0);
  const Tensor target = randint(0, 11, {37});
  fill_(target.narrow(0, 5, 3), -100);
  for (const ops::Reduction reduction : {ops::Reduction::kMean, ops::Reduction::kSum})
    for (const double smoothing : {0.0, 0.1})
      compare(
          [&](const Inputs& in) {
            return ops::cross_entropy(in[0], in[1], reduction, ops::kIgnoreIndex, smoothing);
          },
          {logits, target});
  const Tensor one = ops::cross_entropy(logits, target);
  const Tensor wide = ops::cross_entropy(to(logits, DType::kF64), target);
  EXPECT_NEAR(one.item<double>(), wide.item<double>(), 1e-5);
  EXPECT_THROW(ops::cross_entropy(logits, full({37}, 11, DType::kI64)), InvalidArgument);
  EXPECT_TRUE(
      std::isnan(ops::cross_entropy(full({1, 3}, NAN), zeros({1}, DType::kI64)).item<double>()));
}

TEST(DirectDerivatives, OfPackedAttention) {
  for (const bool causal : {false, true})
    compare([&](const Inputs& in) { return nn::packed_attention(in[0], 2, causal); },
            {randn({3, 7, 3 * 2 * 5})});
  EXPECT_THROW(nn::packed_attention(zeros({3, 7, 10}), 2, true), InvalidArgument);
}

// Of 16-bit floats they are computed in f32 and rounded once.
TEST(DirectDerivatives, Of16BitFloats) {
  const auto differ = [](const Function& f, const Tensor& x, DType dtype) {
    const Tensor narrow = gradients(f, {to(x, dtype)}, dtype)[0];
    const Tensor exact = gradients(f, {to(to(x, dtype), DType::kF64)}, DType::kF64)[0];
    const Tensor error = ops::sub(to(narrow, DType::kF64), exact);
    return (ops::amax(ops::abs(error)).item<double>()) / ops::amax(ops::abs(exact)).item<double>();
  };
  const Function attention = [](const Inputs& in) { return nn::packed_attention(in[0], 2, true); };
  const Function gelu = [](const Inputs& in) { return ops::gelu(in[0], true); };
  for (const auto& [dtype, most] : {std::pair(DType::kBF16, 0.02), std::pair(DType::kF16, 0.003)}) {
    EXPECT_LE(differ(attention, randn({3, 7, 3 * 2 * 5}), dtype), most) << dtype_name(dtype);
    EXPECT_LE(differ(gelu, randn({3, 1500}), dtype), most) << dtype_name(dtype);
  }
}

TEST(DirectDerivatives, OfDerivativesComeFromTheFormulas) {
  const Tensor x = randn({2, 4, 12});
  x.set_requires_grad(true);
  const Tensor y = nn::packed_attention(x, 2, true);
  const Tensor first =
      autograd::grad({ops::sum(ops::square(y))}, {x}, {}, {.create_graph = true})[0];
  const Tensor second = autograd::grad({ops::sum(ops::square(first))}, {x})[0];
  EXPECT_EQ(second.sizes(), x.sizes());
  EXPECT_TRUE(ops::all(ops::isfinite(second)).item<bool>());
}

}  // namespace
}  // namespace tenon
