// Functions with several results, each differentiable by itself.
#include "tenon/autograd/custom_function.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autograd/leaves.h"
#include "support/refusal.h"
#include "tenon/autograd/autograd.h"
#include "tenon/autograd/gradcheck.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::autograd {
namespace {

using ::testing::HasSubstr;
using testing::leaf;

// (a, b) -> (a * b, a + b, sin a), and backward from what it saved.
class ThreeOfTwo : public CustomFunction {
 public:
  const char* name() const override { return "three_of_two"; }
  std::vector<Tensor> forward(FunctionContext& context, std::span<const Tensor> in) override {
    context.save_for_backward({in[0], in[1]});
    return {ops::mul(in[0], in[1]), ops::add(in[0], in[1]), ops::sin(in[0])};
  }
  std::vector<Tensor> backward(FunctionContext& context, std::span<const Tensor> g) override {
    ++calls;
    const Tensor &a = context.saved()[0], &b = context.saved()[1];
    Tensor of_a, of_b;
    if (context.needs_input_grad(0))
      of_a = ops::add(ops::add(ops::mul(g[0], b), g[1]), ops::mul(g[2], ops::cos(a)));
    if (context.needs_input_grad(1)) of_b = ops::add(ops::mul(g[0], a), g[1]);
    return {of_a, of_b};
  }
  int calls = 0;
};

TEST(CustomFunctionTest, EveryResultHasItsNumberOfOneNode) {
  const auto function = std::make_shared<ThreeOfTwo>();
  const std::vector<Tensor> out = apply_function(function, {leaf({3}, 1), leaf({3}, 2)});
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(output_nr(out[i]), i);
  const Tensor plain = ones({3}, DType::kF64);
  EXPECT_FALSE(apply_function(function, {plain, plain})[1].requires_grad());
}

TEST(CustomFunctionTest, GradientsOfAllResultsMeetInOneCall) {
  const auto function = std::make_shared<ThreeOfTwo>();
  const Tensor a = leaf({2, 3}, 3), b = leaf({2, 3}, 4);
  const std::vector<Tensor> out = apply_function(function, {a, b});
  backward(ops::sum(ops::add(ops::mul(out[0], 2), ops::add(out[1], out[2]))));
  EXPECT_EQ(function->calls, 1);
  const Tensor expected = ops::add(ops::add(ops::mul(b.detach(), 2), 1), ops::cos(a.detach()));
  EXPECT_LT(ops::amax(ops::abs(ops::sub(a.grad(), expected))).item<double>(), 1e-12);
}

// Of the last alone: the others' gradients are zeros, however many outputs come before.
TEST(CustomFunctionTest, OneResultIsEnough) {
  const Tensor a = leaf({4}, 5), b = leaf({4}, 6);
  for (int i = 0; i < 3; ++i) {
    const std::vector<Tensor> out = apply_function(std::make_shared<ThreeOfTwo>(), {a, b});
    const Tensor g = grad({ops::sum(out[static_cast<std::size_t>(i)])}, {a})[0];
    const Tensor expected = i == 0   ? b.detach()
                            : i == 1 ? ones({4}, DType::kF64)
                                     : ops::cos(a.detach());
    EXPECT_LT(ops::amax(ops::abs(ops::sub(g, expected))).item<double>(), 1e-12) << i;
  }
}

TEST(CustomFunctionTest, DerivativesAreRightTwice) {
  const std::vector<Tensor> inputs = {leaf({2, 2}, 7), leaf({2, 2}, 8)};
  const auto f = [](std::span<const Tensor> in) {
    return apply_function(std::make_shared<ThreeOfTwo>(), in);
  };
  GradcheckOptions options;
  options.check_forward = false;
  EXPECT_EQ(gradcheck(f, inputs, options), "");
  EXPECT_EQ(gradgradcheck(f, inputs, options), "");
}

// Results may be saved, and results may have no gradient.
class SortedExp : public CustomFunction {
 public:
  const char* name() const override { return "sorted_exp"; }
  std::vector<Tensor> forward(FunctionContext& context, std::span<const Tensor> in) override {
    const Tensor e = ops::exp(in[0]);
    context.save_for_backward({e});
    context.mark_non_differentiable(1);
    return {e, ops::floor(in[0])};
  }
  std::vector<Tensor> backward(FunctionContext& context, std::span<const Tensor> g) override {
    return {ops::mul(g[0], context.saved()[0])};
  }
};

TEST(CustomFunctionTest, ResultsMayBeSavedAndMayHaveNoGradient) {
  const std::vector<Tensor> inputs = {leaf({3}, 9)};
  const std::vector<Tensor> out = apply_function(std::make_shared<SortedExp>(), inputs);
  EXPECT_TRUE(out[0].requires_grad());
  EXPECT_FALSE(out[1].requires_grad());
  const auto f = [](std::span<const Tensor> in) {
    return apply_function(std::make_shared<SortedExp>(), in);
  };
  GradcheckOptions options;
  options.check_forward = false;
  EXPECT_EQ(gradcheck(f, inputs, options), "");
  EXPECT_EQ(gradgradcheck(f, inputs, options), "");
}

class Wrong : public CustomFunction {
 public:
  const char* name() const override { return "wrong"; }
  std::vector<Tensor> forward(FunctionContext& context, std::span<const Tensor> in) override {
    context.save_for_backward({in[0]});
    if (in.size() == 2) return {in[0], Tensor()};
    return {ops::mul(in[0], 2)};
  }
  std::vector<Tensor> backward(FunctionContext&, std::span<const Tensor> g) override {
    return {g[0], g[0]};
  }
};

TEST(CustomFunctionTest, MisuseIsNamed) {
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no InvalidArgument";
  };
  const auto wrong = std::make_shared<Wrong>();
  const Tensor a = leaf({2}, 10);
  EXPECT_THAT(message([&] { apply_function(wrong, {Tensor()}); }), HasSubstr("undefined"));
  EXPECT_THAT(message([&] { apply_function(wrong, {a, a}); }),
              HasSubstr("wrong: forward returned an undefined tensor as result 1"));
  const Tensor out = apply_function(wrong, {a})[0];
  EXPECT_THAT(message([&] { backward(ops::sum(out)); }),
              HasSubstr("wrong: backward gave 2 gradients for 1 inputs"));
}

// Returns its input in one of several ways; the gradient is three times what arrives.
class ReturnsInput : public CustomFunction {
 public:
  using Way = std::vector<Tensor> (*)(const Tensor&);
  explicit ReturnsInput(Way way) : way_(way) {}
  const char* name() const override { return "returns_input"; }
  std::vector<Tensor> forward(FunctionContext&, std::span<const Tensor> in) override {
    return way_(in[0]);
  }
  std::vector<Tensor> backward(FunctionContext&, std::span<const Tensor> g) override {
    Tensor sum = ops::mul(g[0].reshape({4}), 3.0);
    if (g.size() == 2) sum = ops::add(sum, ops::mul(g[1].reshape({4}), 30.0));
    return {sum, ones({1}, DType::kF64)};
  }

 private:
  const Way way_;
};

constexpr ReturnsInput::Way kWays[] = {
    [](const Tensor& t) { return std::vector{t}; },
    [](const Tensor& t) { return std::vector{t, t}; },
    [](const Tensor& t) { return std::vector{t.view({2, 2})}; },
    [](const Tensor& t) { return std::vector{t.detach()}; },
    [](const Tensor& t) { return std::vector<Tensor>(2, t.view({2, 2})); },
};

// By the function's derivative, and not by that of a view; the input keeps its own history.
TEST(CustomFunctionTest, AnInputMayComeBackAsItIsOrAsAView) {
  for (const ReturnsInput::Way way : kWays) {
    const Tensor a = leaf({4}, 20), x = ops::mul(a, 2.0), other = leaf({1}, 21);
    const auto function = std::make_shared<ReturnsInput>(way);
    const std::vector<Tensor> out = apply_function(function, {x, other});
    EXPECT_STREQ(node_name(grad_fn(out[0])), "returns_input");
    EXPECT_STREQ(node_name(grad_fn(x)), "mul");
    EXPECT_TRUE(out[0].is_alias_of(x)) << "no copy";
    Tensor loss = ops::sum(out[0]);
    if (out.size() == 2) loss = ops::add(loss, ops::sum(out[1]));
    backward(loss);
    EXPECT_EQ(a.grad().const_data_ptr<double>()[3], out.size() == 2 ? 66 : 6);
    EXPECT_EQ(other.grad().item<double>(), 1);
  }
}

TEST(CustomFunctionTest, ALeafThatComesBackStaysALeaf) {
  const Tensor a = leaf({4}, 22);
  const Tensor out = apply_function(std::make_shared<ReturnsInput>(kWays[0]), {a})[0];
  EXPECT_TRUE(is_leaf(a));
  EXPECT_FALSE(is_leaf(out));
  const NoGradGuard no_grad;
  const Tensor free = apply_function(std::make_shared<ReturnsInput>(kWays[0]), {a})[0];
  EXPECT_FALSE(free.requires_grad());
}

// Returns a tensor of its own, with what history it has; perhaps without a gradient.
class ReturnsCaptured : public CustomFunction {
 public:
  ReturnsCaptured(Tensor captured, bool is_differentiable)
      : captured_(std::move(captured)), is_differentiable_(is_differentiable) {}
  const char* name() const override { return "returns_captured"; }
  std::vector<Tensor> forward(FunctionContext& context, std::span<const Tensor>) override {
    if (!is_differentiable_) context.mark_non_differentiable(0);
    return {captured_};
  }
  std::vector<Tensor> backward(FunctionContext&, std::span<const Tensor> g) override {
    return {g[0]};
  }

 private:
  const Tensor captured_;
  const bool is_differentiable_;
};

TEST(CustomFunctionTest, WhatComesBackKeepsItsOwnHistory) {
  const Tensor a = leaf({4}, 25), x = ops::mul(a, 2.0), view = x.view({2, 2});
  const Tensor out = apply_function(std::make_shared<ReturnsCaptured>(view, true), {a})[0];
  EXPECT_STREQ(node_name(grad_fn(out)), "returns_captured");
  EXPECT_STREQ(node_name(grad_fn(view)), "reshape");
  for (const Tensor& input : {a, x, view}) {
    const auto constant = std::make_shared<ReturnsCaptured>(input, false);
    EXPECT_FALSE(apply_function(constant, {input})[0].requires_grad());
    EXPECT_TRUE(input.requires_grad());
  }
  const Tensor unrecorded = [&] {
    const NoGradGuard no_grad;
    return a.view({2, 2});
  }();
  static_cast<void>(apply_function(std::make_shared<ReturnsInput>(kWays[0]), {unrecorded, x}));
  EXPECT_FALSE(unrecorded.requires_grad());
}

// Whether the input needs a gradient itself or only its neighbour does.
TEST(CustomFunctionTest, WhatSharesMemoryWithAnInputIsNotChangedInPlace) {
  for (const ReturnsInput::Way way : kWays)
    for (const Tensor& x : {ops::mul(leaf({4}, 23), 2.0), ones({4}, DType::kF64)}) {
      const std::vector<Tensor> out =
          apply_function(std::make_shared<ReturnsInput>(way), {x, leaf({1}, 24)});
      for (const Tensor& result : out) {
        const std::uint32_t version = x.version();
        EXPECT_THAT(testing::refusal([&] { ops::add_(result, 1.0); }),
                    HasSubstr("was returned by returns_input and shares memory"));
        EXPECT_EQ(x.version(), version) << "nothing happened";
      }
      const NoGradGuard no_grad;
      ops::add_(out[0], 1.0);
    }
}

// Its gradient is whatever the test says.
class GivesGradient : public CustomFunction {
 public:
  explicit GivesGradient(Tensor gradient) : gradient_(std::move(gradient)) {}
  const char* name() const override { return "gives"; }
  std::vector<Tensor> forward(FunctionContext&, std::span<const Tensor> in) override {
    return {ops::mul(in[0], 2)};
  }
  std::vector<Tensor> backward(FunctionContext&, std::span<const Tensor>) override {
    return {gradient_};
  }

 private:
  const Tensor gradient_;
};

// By a leaf or by a tensor with a history.
Tensor gradient_given(const Tensor& gradient, bool is_leaf) {
  const Tensor a = leaf({3}, 13);
  const Tensor input = is_leaf ? a : ops::mul(a, 1.0);
  backward(ops::sum(apply_function(std::make_shared<GivesGradient>(gradient), {input})[0]));
  return a.grad();
}

TEST(CustomFunctionTest, AGradientIsMadeLikeItsInput) {
  for (const bool is_leaf : {true, false}) {
    const Tensor summed = gradient_given(ones({2, 3}, DType::kF32), is_leaf);
    EXPECT_EQ(summed.sizes(), IntList({3}));
    EXPECT_EQ(summed.dtype(), DType::kF64);
    EXPECT_EQ(summed.const_data_ptr<double>()[1], 2);
    const Tensor real = gradient_given(full({3}, Complex128(5, 7), DType::kC128), is_leaf);
    EXPECT_EQ(real.dtype(), DType::kF64);
    EXPECT_EQ(real.const_data_ptr<double>()[2], 5);
  }
}

TEST(CustomFunctionTest, AGradientThatFitsNoInputIsRefused) {
  for (const bool is_leaf : {true, false}) {
    for (const Tensor& wrong : {ones({99}, DType::kF64), ones({1}, DType::kF64)})
      EXPECT_THAT(testing::refusal([&] { gradient_given(wrong, is_leaf); }),
                  HasSubstr("gives: backward gave a gradient of shape"));
    const Tensor elsewhere = empty({3}, DType::kF64, Device{DeviceType::kMeta});
    EXPECT_THAT(testing::refusal([&] { gradient_given(elsewhere, is_leaf); }),
                HasSubstr("gives: backward gave a gradient on meta"));
  }
}

// What backward unpacks is the tensor that was saved, with its version.
TEST(CustomFunctionTest, SavedTensorsAreCheckedByVersion) {
  const Tensor a = ops::mul(leaf({2}, 11), 1.0), b = leaf({2}, 12);
  const std::vector<Tensor> out = apply_function(std::make_shared<ThreeOfTwo>(), {a, b});
  ops::add_(a, 1.0);
  EXPECT_THROW(backward(ops::sum(out[0])), InvalidArgument);
}

}  // namespace
}  // namespace tenon::autograd
