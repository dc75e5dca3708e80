// Every operator's derivatives against differences: backward, forward, and the gradients' own.
#include "tenon/autograd/gradcheck.h"

#include <gtest/gtest.h>

#include "tenon/memory/host/host_allocator.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/random.h"

namespace tenon::autograd {
namespace {

using In = std::span<const Tensor>;

struct GradientCase {
  const char* name;
  std::function<Tensor(In)> f;
  std::vector<Tensor> inputs;
  bool second = true;  // false: the second derivative is zero everywhere
};

// Values that keep away from kinks: none is near a multiple of 1/2, none equals another.
Tensor spread(IntList sizes, double low, double high, std::uint64_t seed) {
  Generator generator(seed);
  const Tensor t = rand(sizes, DType::kF64, generator);
  double* data = t.data_ptr<double>();
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    double value = low + (high - low) * data[i];
    const double from_half = value * 2 - std::round(value * 2);
    if (std::abs(from_half) < 0.1) value += 0.1;
    data[i] = value + 1e-3 * static_cast<double>(i);
  }
  return t;
}

Tensor in(IntList sizes, std::uint64_t seed = 1) {
  return spread(sizes, -2, 2, seed).set_requires_grad(true);
}
Tensor positive(IntList sizes, std::uint64_t seed = 2) {
  return spread(sizes, 0.3, 2, seed).set_requires_grad(true);
}
Tensor inside(IntList sizes, std::uint64_t seed = 3) {
  return spread(sizes, -0.8, 0.8, seed).set_requires_grad(true);
}
// A zero in each row, and two in the last.
Tensor with_zeros(IntList sizes) {
  const Tensor t = spread(sizes, 0.5, 2, 4);
  double* data = t.data_ptr<double>();
  for (std::int64_t i = 1; i < t.numel(); i += 3) data[i] = 0;
  data[t.numel() - 1] = 0;
  return t.set_requires_grad(true);
}
Tensor indices(std::initializer_list<std::int64_t> values, IntList sizes) {
  return tensor<std::int64_t>(values, sizes);
}

// Linear functions get a square in front, so that they have a second derivative.
#define TENON_LINEAR(name, expression, ...)   \
  {                                           \
    name,                                     \
        [](In x) {                            \
          const Tensor a = ops::square(x[0]); \
          return expression;                  \
        },                                    \
    {                                         \
      __VA_ARGS__                             \
    }                                         \
  }
#define TENON_CASE(name, expression, ...)                            \
  {                                                                  \
    name, [](In x) -> Tensor { return expression; }, { __VA_ARGS__ } \
  }
#define TENON_FLAT(name, expression, ...)                                 \
  {                                                                       \
    name, [](In x) -> Tensor { return expression; }, {__VA_ARGS__}, false \
  }

std::vector<GradientCase> elementwise_cases() {
  return {
      TENON_CASE("add", ops::square(x[0] + x[1]), in({2, 3}), in({3}, 5)),
      TENON_CASE("sub", ops::square(x[0] - x[1]), in({2, 1}), in({1, 3}, 5)),
      TENON_CASE("add alpha", ops::square(ops::add(x[0], x[1], 2.5)), in({3}), in({3}, 5)),
      TENON_CASE("mul", x[0] * x[1], in({2, 3}), in({2, 1}, 5)),
      TENON_CASE("div", x[0] / x[1], in({2, 3}), positive({3})),
      TENON_CASE("maximum", ops::square(ops::maximum(x[0], x[1])), in({5}), in({5}, 9)),
      TENON_CASE("minimum", ops::square(ops::minimum(x[0], x[1])), in({5}), in({5}, 9)),
      TENON_CASE("pow", ops::pow(x[0], x[1]), positive({4}), in({4}, 5)),
      TENON_CASE("pow of a number", ops::pow(x[0], 3.0), in({4})),
      TENON_CASE("atan2", ops::atan2(x[0], x[1]), in({4}), positive({4})),
      TENON_CASE("fmod", ops::square(ops::fmod(x[0], x[1])), in({4}), positive({4}, 6)),
      TENON_CASE("remainder", ops::square(ops::remainder(x[0], x[1])), in({4}), positive({4}, 6)),
      TENON_LINEAR("neg", -a, in({4})),
      TENON_CASE("abs", ops::square(ops::abs(x[0])), in({4})),
      TENON_CASE("square", ops::square(x[0]), in({4})),
      TENON_CASE("relu", ops::square(ops::relu(x[0])), in({6})),
      TENON_CASE("exp", ops::exp(x[0]), in({4})),
      TENON_CASE("exp2", ops::exp2(x[0]), in({4})),
      TENON_CASE("expm1", ops::expm1(x[0]), in({4})),
      TENON_CASE("log", ops::log(x[0]), positive({4})),
      TENON_CASE("log2", ops::log2(x[0]), positive({4})),
      TENON_CASE("log10", ops::log10(x[0]), positive({4})),
      TENON_CASE("log1p", ops::log1p(x[0]), positive({4})),
      TENON_CASE("sqrt", ops::sqrt(x[0]), positive({4})),
      TENON_CASE("rsqrt", ops::rsqrt(x[0]), positive({4})),
      TENON_CASE("reciprocal", ops::reciprocal(x[0]), positive({4})),
      TENON_CASE("sin", ops::sin(x[0]), in({4})),
      TENON_CASE("cos", ops::cos(x[0]), in({4})),
      TENON_CASE("tan", ops::tan(x[0]), inside({4})),
      TENON_CASE("asin", ops::asin(x[0]), inside({4})),
      TENON_CASE("acos", ops::acos(x[0]), inside({4})),
      TENON_CASE("atan", ops::atan(x[0]), in({4})),
      TENON_CASE("sinh", ops::sinh(x[0]), in({4})),
      TENON_CASE("cosh", ops::cosh(x[0]), in({4})),
      TENON_CASE("tanh", ops::tanh(x[0]), in({4})),
      TENON_CASE("erf", ops::erf(x[0]), in({4})),
      TENON_CASE("erfc", ops::erfc(x[0]), in({4})),
      TENON_CASE("sigmoid", ops::sigmoid(x[0]), in({4})),
      TENON_CASE("log_sigmoid", ops::log_sigmoid(x[0]), in({4})),
      TENON_CASE("silu", ops::silu(x[0]), in({4})),
      TENON_CASE("mish", ops::mish(x[0]), in({4})),
      TENON_CASE("gelu", ops::gelu(x[0]), in({4})),
      TENON_CASE("gelu tanh", ops::gelu(x[0], true), in({4})),
      TENON_CASE("hardsigmoid", ops::square(ops::hardsigmoid(x[0] * 2)), in({6})),
      TENON_CASE("hardswish", ops::square(ops::hardswish(x[0] * 2)), in({6})),
      TENON_CASE("leaky_relu", ops::square(ops::leaky_relu(x[0], 0.1)), in({6})),
      TENON_CASE("elu", ops::elu(x[0], 1.5), in({6})),
      TENON_CASE("softplus", ops::softplus(x[0], 2.0, 1.5), in({6})),
      TENON_CASE("hardtanh", ops::square(ops::hardtanh(x[0], -0.7, 1.2)), in({6})),
      TENON_CASE("clamp", ops::square(ops::clamp(x[0], -0.7, 1.2)), in({6})),
      TENON_FLAT("sign", ops::sign(x[0]), in({4})),
      TENON_FLAT("floor", ops::floor(x[0]), in({4})),
      TENON_FLAT("ceil", ops::ceil(x[0]), in({4})),
      TENON_FLAT("round", ops::round(x[0]), in({4})),
      TENON_FLAT("trunc", ops::trunc(x[0]), in({4})),
  };
}

std::vector<GradientCase> reduction_cases() {
  return {
      TENON_LINEAR("sum", ops::sum(a, {0, 2}), in({2, 3, 2})),
      TENON_LINEAR("sum of all", ops::sum(a), in({2, 3})),
      TENON_LINEAR("mean", ops::mean(a, 1, true), in({2, 3})),
      TENON_CASE("prod", ops::prod(x[0], 1), in({2, 3})),
      TENON_CASE("prod with zeros", ops::prod(x[0], 1), with_zeros({2, 3})),
      TENON_CASE("amax", ops::square(ops::amax(x[0], 1)), in({2, 3})),
      TENON_CASE("amin", ops::square(ops::amin(x[0], 0)), in({3, 2})),
      TENON_CASE("logsumexp", ops::logsumexp(x[0], 1), in({2, 3})),
      TENON_CASE("norm", ops::norm(x[0], 1), in({2, 3})),
      TENON_CASE("var", ops::var(x[0], {1}), in({2, 3})),
      TENON_CASE("std", ops::std(x[0], {0}, 0, true), in({3, 2})),
      TENON_LINEAR("cumsum", ops::cumsum(a, 1), in({2, 3})),
      TENON_CASE("cumprod", ops::cumprod(x[0], 0), in({3, 2})),
      TENON_CASE("cumprod with zeros", ops::cumprod(x[0], 1), with_zeros({2, 3})),
      TENON_LINEAR("sort", ops::sort(a, 1).first, in({2, 4})),
      TENON_LINEAR("topk", ops::topk(a, 2).first, in({2, 4})),
      TENON_CASE("softmax", ops::softmax(x[0], 1), in({2, 3})),
      TENON_CASE("log_softmax", ops::log_softmax(x[0], 0), in({3, 2})),
  };
}

std::vector<GradientCase> product_cases() {
  constexpr ops::Reduction kSum = ops::Reduction::kSum;
  static const ops::ConvOptions kConv{2, 1, 1, 2, 0};
  static const ops::ConvOptions kDilated{1, 1, 2, 1, 0};
  static const ops::ConvOptions kBack{2, 1, 1, 1, 1};
  static const Tensor classes = indices({1, 0, 2}, {3});
  return {
      TENON_CASE("matmul", ops::matmul(x[0], x[1]), in({2, 3}), in({3, 2}, 5)),
      TENON_CASE("matmul of vectors", ops::matmul(x[0], x[1]), in({3}), in({3}, 5)),
      TENON_CASE("matmul by a vector", ops::matmul(x[0], x[1]), in({2, 3}), in({3}, 5)),
      TENON_CASE("vector by matmul", ops::matmul(x[0], x[1]), in({3}), in({2, 3, 2}, 5)),
      TENON_CASE("matmul batch", ops::matmul(x[0], x[1]), in({2, 2, 3}), in({3, 2}, 5)),
      TENON_CASE("matmul broadcast", ops::matmul(x[0], x[1]), in({2, 1, 2, 3}), in({2, 3, 1}, 5)),
      TENON_CASE("bmm", ops::bmm(x[0], x[1]), in({2, 2, 3}), in({2, 3, 1}, 5)),
      TENON_CASE("outer", ops::outer(x[0], x[1]), in({2}), in({3}, 5)),
      TENON_CASE("addmm", ops::addmm(x[0], x[1], x[2]), in({3}), in({2, 2}, 5), in({2, 3}, 6)),
      TENON_CASE("linear", ops::linear(x[0], x[1], x[2]), in({2, 2, 3}), in({2, 3}, 5), in({2}, 6)),
      TENON_CASE("linear of a vector", ops::linear(x[0], x[1]), in({3}), in({2, 3}, 5)),
      TENON_CASE("conv2d", ops::conv2d(x[0], x[1], x[2], kConv), in({2, 2, 4, 3}),
                 in({2, 1, 2, 2}, 5), in({2}, 6)),
      TENON_CASE("conv2d dilated", ops::conv2d(x[0], x[1], {}, kDilated), in({1, 1, 5, 4}),
                 in({2, 1, 2, 2}, 5)),
      TENON_CASE("conv1d", ops::conv1d(x[0], x[1], x[2], kConv), in({1, 2, 5}), in({2, 1, 2}, 5),
                 in({2}, 6)),
      TENON_CASE("conv_transpose2d", ops::conv_transpose2d(x[0], x[1], x[2], kBack),
                 in({1, 2, 2, 3}), in({2, 1, 2, 2}, 5), in({1}, 6)),
      TENON_LINEAR("max_pool2d", ops::max_pool2d(a, {2, 1, 1}), in({1, 2, 3, 4})),
      TENON_LINEAR("avg_pool2d", ops::avg_pool2d(a, {2, 2, 1, false}), in({1, 2, 3, 4})),
      TENON_LINEAR("adaptive_avg_pool2d", ops::adaptive_avg_pool2d(a, {2, 3}), in({1, 1, 5, 4})),
      TENON_CASE("layer_norm", ops::layer_norm(x[0], {3}, x[1], x[2]), in({2, 3}), in({3}, 5),
                 in({3}, 6)),
      TENON_CASE("rms_norm", ops::rms_norm(x[0], {3}, x[1]), in({2, 3}), in({3}, 5)),
      TENON_CASE("group_norm", ops::group_norm(x[0], 2, x[1], x[2]), in({2, 4, 2}), in({4}, 5),
                 in({4}, 6)),
      TENON_CASE("batch_norm", ops::batch_norm(x[0], {}, {}, x[1], x[2], true), in({3, 2, 2}),
                 in({2}, 5), in({2}, 6)),
      TENON_CASE("batch_norm in use", ops::batch_norm(x[0], x[1], x[2], x[3], x[4]), in({2, 2}),
                 in({2}, 5), positive({2}), in({2}, 6), in({2}, 7)),
      TENON_CASE("attention", ops::scaled_dot_product_attention(x[0], x[1], x[2]), in({2, 3, 2}),
                 in({2, 2, 2}, 5), in({2, 2, 2}, 6)),
      TENON_CASE("attention, causal", ops::scaled_dot_product_attention(x[0], x[1], x[2], {}, true),
                 in({3, 2}), in({3, 2}, 5), in({3, 2}, 6)),
      TENON_CASE("cross_entropy", ops::cross_entropy(x[0], classes, ops::Reduction::kMean, 2, 0.1),
                 in({3, 3})),
      TENON_CASE("cross_entropy of each", ops::cross_entropy(x[0], classes, ops::Reduction::kNone),
                 in({3, 3})),
      TENON_CASE("nll_loss", ops::nll_loss(ops::log_softmax(x[0], 1), classes, kSum), in({3, 3})),
      TENON_CASE("mse_loss", ops::mse_loss(x[0], x[1]), in({2, 3}), in({3}, 5)),
      TENON_CASE("l1_loss", ops::l1_loss(ops::square(x[0]), x[1], kSum), in({4}), in({4}, 5)),
      TENON_CASE("huber_loss", ops::huber_loss(x[0], x[1], kSum, 0.8), in({6}), in({6}, 5)),
      TENON_CASE("binary_cross_entropy_with_logits",
                 ops::binary_cross_entropy_with_logits(x[0], x[1]), in({4}), positive({4})),
  };
}

std::vector<GradientCase> moving_cases() {
  static const Tensor condition = tensor<std::int64_t>({1, 0, 1}) == tensor<std::int64_t>({1});
  static const Tensor rows = indices({2, 0, 2}, {3});
  static const Tensor places = indices({1, 0, 0, 1, 1, 0}, {3, 2});
  return {
      TENON_LINEAR("where", ops::where(condition, a, x[1]), in({2, 3}), in({3}, 5)),
      TENON_LINEAR("masked_fill", ops::masked_fill(a, condition, 3), in({2, 3})),
      TENON_LINEAR("index_select", ops::index_select(a, 0, rows), in({3, 2})),
      TENON_LINEAR("gather", ops::gather(a, 1, places), in({3, 2})),
      TENON_LINEAR("scatter_add", ops::scatter_add(a, 1, places, x[1]), in({3, 2}), in({3, 2}, 5)),
      TENON_LINEAR("scatter_add of more", ops::scatter_add(a, 1, places, x[1]), in({3, 2}),
                   in({4, 2}, 5)),
      TENON_LINEAR("index_add", ops::index_add(a, 0, rows, x[1]), in({3, 2}), in({3, 2}, 5)),
      TENON_LINEAR("embedding", ops::embedding(places, a), in({2, 3})),
      TENON_LINEAR("cat", ops::cat({a, x[1]}, 1), in({2, 3}), in({2, 1}, 5)),
      TENON_LINEAR("stack", ops::stack({a, x[1]}, -1), in({2, 3}), in({2, 3}, 5)),
      TENON_LINEAR("flip", ops::flip(a, {0, 1}), in({2, 3})),
      TENON_LINEAR("roll", ops::roll(a, {1, 2}, {0, 1}), in({2, 3})),
      TENON_LINEAR("repeat", ops::repeat(a, {2, 1, 3}), in({2, 2})),
      TENON_LINEAR("pad", ops::pad(a, {1, -1, 2, 0}, 5), in({2, 3})),
      TENON_LINEAR("tril", ops::tril(a, -1), in({3, 3})),
      TENON_LINEAR("triu", ops::triu(a, 1), in({3, 3})),
      TENON_LINEAR("slice", a.slice(1, 0, 4, 2), in({2, 5})),
      TENON_LINEAR("select", a.select(1, 2), in({2, 3})),
      TENON_LINEAR("permute", a.permute({2, 0, 1}), in({2, 1, 3})),
      TENON_LINEAR("transpose", a.transpose(0, 1), in({2, 3})),
      TENON_LINEAR("reshape", a.transpose(0, 1).reshape({2, 3}), in({2, 3})),
      TENON_LINEAR("view", a.view({3, 2}), in({2, 3})),
      TENON_LINEAR("expand", a.expand({2, 2, 3}), in({2, 1})),
      TENON_LINEAR("squeeze", a.squeeze(1), in({2, 1, 3})),
      TENON_LINEAR("unsqueeze", a.unsqueeze(1), in({2, 3})),
      TENON_LINEAR("diagonal", a.diagonal(1), in({3, 4})),
      TENON_LINEAR("unfold", a.unfold(0, 3, 2), in({7})),
      TENON_LINEAR("as_strided", a.as_strided({2, 2}, {1, 1}, 1), in({6})),
      TENON_LINEAR("alias", a.alias(), in({3})),
      TENON_LINEAR("clone", clone(a), in({2, 3})),
      TENON_LINEAR("index", (a[{Slice(), rows}]), in({2, 3})),
  };
}

std::vector<GradientCase> in_place_cases() {
  return {
      {"in place",
       [](In x) {
         const Tensor y = x[0] * 1.0;
         ops::mul_(y, x[1]);
         ops::add_(y, x[0]);
         ops::tanh_(y);
         return y;
       },
       {in({2, 3}), in({3}, 5)}},
      {"through a view",
       [](In x) {
         const Tensor y = x[0] * 1.0;
         ops::mul_(y.select(0, 0), x[1]);
         copy_(y.slice(1, 0, 1), ops::square(x[1].slice(0, 1, 3).unsqueeze(1)));
         return y * y;
       },
       {in({2, 3}), in({3}, 5)}},
      {"through a view of columns",
       [](In x) {
         const Tensor y = clone(x[0].t());
         ops::mul_(y.select(0, 0), x[1]);
         return y * y;
       },
       {in({2, 3}), in({2}, 5)}},
      {"through a view of columns, by a product of rows",
       [](In x) {
         const Tensor y = clone(x[0].t()) * x[1].t();
         copy_(y.select(0, 0), x[1].select(1, 1) * 2.0);
         return y * y;
       },
       {in({2, 3}), in({2, 3}, 5)}},
      {"strides over an expanded tensor",
       [](In x) {
         const Tensor y = x[0].expand({2, 4}).as_strided({2, 2}, {2, 1});
         return y * y;
       },
       {in({4})}},
  };
}

void check(const std::vector<GradientCase>& cases) {
  for (const GradientCase& test : cases) {
    const CheckedFunction f = [&](In x) { return std::vector<Tensor>{test.f(x)}; };
    EXPECT_EQ(gradcheck(f, test.inputs), "") << test.name;
    if (!test.second) continue;
    EXPECT_EQ(gradgradcheck(f, test.inputs), "") << test.name << ", twice";
  }
}

TEST(GradcheckTest, ElementWise) { check(elementwise_cases()); }
TEST(GradcheckTest, Reductions) { check(reduction_cases()); }
TEST(GradcheckTest, ProductsNormsAndLosses) { check(product_cases()); }
TEST(GradcheckTest, WhatMovesElements) { check(moving_cases()); }
TEST(GradcheckTest, InPlace) {
  check(in_place_cases());  // also makes what is made once
  const auto held = [] { return host_allocator().stats().allocated_bytes[0].current; };
  const std::int64_t before = held();
  check(in_place_cases());
  EXPECT_EQ(held(), before) << "a graph holds itself";
}

TEST(GradcheckTest, AFunctionWhoseOutputsVaryIsRefused) {
  int calls = 0;
  const CheckedFunction f = [&](In x) {
    return std::vector<Tensor>(static_cast<std::size_t>(++calls), x[0] * 2.0);
  };
  const Tensor x[] = {in({2})};
  EXPECT_THROW(gradcheck(f, x), InvalidArgument);
  EXPECT_THROW(gradgradcheck(f, x), InvalidArgument);
}

// What a node saves is saved before the operator looks at its arguments.
TEST(GradcheckTest, PoolsThatMakeNoSenseAreRefusedWithGradientsToo) {
  const Tensor flat = ones({3}).set_requires_grad(true);
  const Tensor planes = ones({1, 4, 4}).set_requires_grad(true);
  EXPECT_THROW(ops::max_pool2d(flat, {.kernel = {1, 1}}), InvalidArgument);
  EXPECT_THROW(ops::max_pool2d(planes, {.kernel = {0, 0}}), InvalidArgument);
  EXPECT_THROW(ops::max_pool2d(planes, {.kernel = {2, 2}, .stride = {-1, 1}}), InvalidArgument);
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_THROW(ops::max_pool2d(planes, {.kernel = {2, 2}, .padding = {kHuge, kHuge}}),
               InvalidArgument);
}

TEST(GradcheckTest, WrongDerivativesAreFound) {
  // detach() hides a part of the derivative.
  const CheckedFunction f = [](In x) { return std::vector<Tensor>{x[0] * x[0].detach()}; };
  const Tensor x[] = {in({2})};
  EXPECT_NE(gradcheck(f, x).find("differences give"), std::string::npos);
}

}  // namespace
}  // namespace tenon::autograd
