// The graph, the walk, and what programs see of both.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "autograd/leaves.h"
#include "support/refusal.h"
#include "tenon/autograd/autograd.h"
#include "tenon/autograd/gradcheck.h"
#include "tenon/autograd/forward_mode.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/growable_tensor.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/inference_mode.h"
#include "tenon/tensor/interop/dlpack.h"
#include "tenon/tensor/interop/dlpack_abi.h"
#include "tenon/tensor/random.h"

namespace tenon::autograd {
namespace {

using testing::refusal;
using testing::leaf;
using testing::values;

using Values = std::vector<double>;

TEST(BackwardTest, StepsThatAreWrittenEndTheHistory) {
  for (const auto step : {&ops::isnan_, &ops::isinf_, &ops::isfinite_, &ops::logical_not_}) {
    const Tensor x = ones({3}, DType::kF64).set_requires_grad(true);
    EXPECT_THROW(step(x), InvalidArgument) << "a leaf that requires a gradient";
    const Tensor y = ops::mul(x, 2);
    step(y);
    backward(ops::sum(y));
    EXPECT_EQ(values(x.grad()), Values(3, 0));
  }
  const Tensor x = ones({3}).set_requires_grad(true), found = empty({3}, DType::kBool);
  ops::eq_out(found, x, x);
  EXPECT_FALSE(found.requires_grad());
}

TEST(BackwardTest, ATargetThatIsLargerThanItsLogitsHasAGradient) {
  for (const auto reduction :
       {ops::Reduction::kNone, ops::Reduction::kMean, ops::Reduction::kSum}) {
    const Tensor x = randn({5}, DType::kF64).set_requires_grad(true);
    const Tensor y = rand({4, 5}, DType::kF64).set_requires_grad(true);
    EXPECT_EQ(gradcheck(
                  [&](std::span<const Tensor> in) {
                    return std::vector<Tensor>{
                        ops::binary_cross_entropy_with_logits(in[0], in[1], reduction)};
                  },
                  std::vector<Tensor>{x, y}),
              "");
  }
}

TEST(UndefinedTensorTest, FunctionsOfGradientsRefuseThemByName) {
  const Tensor none, one = leaf({1, 2});
  const ForwardLevel level;
  const auto same = [](std::span<const Tensor> in) { return std::vector(in.begin(), in.end()); };
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"grad_fn", [&] { grad_fn(none); }},
      {"is_leaf", [&] { is_leaf(none); }},
      {"output_nr", [&] { output_nr(none); }},
      {"retains_grad", [&] { retains_grad(none); }},
      {"set_grad", [&] { set_grad(none, one); }},
      {"set_grad", [&] { set_grad(none, none); }},
      {"watch_views", [&] { watch_views(none); }},
      {"make_dual", [&] { make_dual(none, one, level); }},
      {"make_dual", [&] { make_dual(one, none, level); }},
      {"jvp", [&] { jvp(same, {&none, 1}, {&one, 1}); }},
  };
  for (const auto& [name, call] : calls)
    EXPECT_EQ(refusal(call),
              std::string(name) + ": an undefined tensor; give it one that was made");
  EXPECT_FALSE(fw_grad(none, level).defined());
}

TEST(BackwardTest, AGrowableTensorsRoomHasNoGradient) {
  EXPECT_EQ(refusal([&] { GrowableTensor cache(leaf({1, 2})); }),
            "growable tensor: its room of shape [2] requires a gradient; give it detach()");
}

TEST(BackwardTest, ALeafTakesNoInferenceTensor) {
  const Tensor made = [] {
    const InferenceMode guard;
    return ones({2});
  }();
  const Tensor a = leaf({1, 2});
  EXPECT_NE(refusal([&] { a.set_data(made); }).find("set_data: the tensor requires a gradient"),
            std::string::npos);
  EXPECT_TRUE((a * 3.0).requires_grad());
  a.set_data(clone(made));
  EXPECT_TRUE((a * 3.0).requires_grad());
}

TEST(BackwardTest, GradientsReachLeavesAndAddUp) {
  const Tensor a = leaf({1, 2, 3}), b = leaf({4, 5, 6});
  const Tensor y = ops::sum(a * b + a);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_FALSE(is_leaf(y));
  EXPECT_STREQ(node_name(grad_fn(y)), "sum");
  backward(y);
  EXPECT_EQ(values(a.grad()), (Values{5, 6, 7}));
  EXPECT_EQ(values(b.grad()), (Values{1, 2, 3}));
  backward(ops::sum(a * 2));
  EXPECT_EQ(values(a.grad()), (Values{7, 8, 9}));
}

TEST(BackwardTest, AGraphIsPassedOnceUnlessRetained) {
  const Tensor a = leaf({1, 2});
  const Tensor y = ops::sum(a * a);
  backward(y, {}, {.retain_graph = true});
  backward(y);
  EXPECT_EQ(values(a.grad()), (Values{4, 8}));
  EXPECT_NE(refusal([&] { backward(y); }).find("retain_graph"), std::string::npos);
}

TEST(BackwardTest, NothingIsRecordedWithoutGradMode) {
  const Tensor a = leaf({1, 2});
  {
    const NoGradGuard no_grad;
    EXPECT_FALSE((a * a).requires_grad());
    const EnableGradGuard enable;
    EXPECT_TRUE((a * a).requires_grad());
  }
  const InferenceMode inference;
  EXPECT_FALSE(grad_enabled());
  EXPECT_FALSE((a * a).requires_grad());
}

TEST(BackwardTest, GradientsOfGradients) {
  const Tensor x = leaf({2, 3});
  const Tensor y = ops::sum(x * x * x);
  GradOptions create;
  create.create_graph = true;
  const Tensor first = grad({y}, {x}, {}, create)[0];
  EXPECT_EQ(values(first), (Values{12, 27}));
  const Tensor second = grad({ops::sum(first)}, {x}, {}, create)[0];
  EXPECT_EQ(values(second), (Values{12, 18}));
  EXPECT_EQ(values(grad({ops::sum(second)}, {x})[0]), (Values{6, 6}));
  EXPECT_FALSE(x.grad().defined());
}

TEST(BackwardTest, GradRunsOnlyWhatLeadsToItsInputs) {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  const Tensor left = a * 2;
  const Tensor right = b * 3;
  bool ran = false;
  register_pre_hook(grad_fn(right), [&](std::span<Tensor>) { ran = true; });
  const Tensor y = ops::sum(left * right);
  GradOptions keep;
  keep.retain_graph = true;
  EXPECT_EQ(values(grad({y}, {left}, {}, keep)[0]), (Values{9, 12}));
  EXPECT_EQ(values(grad({y}, {a}, {}, keep)[0]), (Values{18, 24}));
  EXPECT_FALSE(ran);
  const Tensor apart = leaf({1});
  EXPECT_NE(refusal([&] { grad({y}, {apart}, {}, keep); }).find("allow_unused"), std::string::npos);
}

TEST(BackwardTest, AMillionNodesOverflowNoStack) {
  const Tensor a = leaf({1});
  {
    Tensor x = a;
    for (int i = 0; i < 1'000'000; ++i) x = x + a;
    backward(x);
  }
  EXPECT_EQ(values(a.grad()), (Values{1'000'001}));
  Tensor y = a;
  for (int i = 0; i < 300'000; ++i) y = y * a;  // dropped without backward; saves its inputs
}

TEST(BackwardTest, AChangedSavedTensorIsNamedWithBothVersions) {
  const Tensor a = leaf({1, 2});
  const Tensor b = a * 2;
  const Tensor y = ops::sum(b * b);
  ops::add_(b, 1);
  const std::string message = refusal([&] { backward(y); });
  EXPECT_NE(message.find("mul"), std::string::npos) << message;
  EXPECT_NE(message.find("version 1"), std::string::npos) << message;
  EXPECT_NE(message.find("version 0"), std::string::npos) << message;
}

TEST(BackwardTest, InPlaceChangesBecomeHistory) {
  const Tensor a = leaf({1, 2, 3});
  const Tensor b = a * 2;
  ops::mul_(b, b.detach() * 0 + 3);
  ops::exp_(b);
  backward(ops::sum(b));
  const Values g = values(a.grad());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(g[i], 6 * std::exp(6.0 * (i + 1)), 1e-6 * g[i]);
}

TEST(BackwardTest, AChangeThroughAViewReachesTheBaseAndOtherViews) {
  const Tensor a = leaf({1, 2, 3, 4});
  const Tensor base = a * 1;
  const Tensor other = base.slice(0, 0, 2);
  const Tensor view = base.select(0, 1);
  const Tensor factor = leaf({5});
  ops::mul_(view, factor.select(0, 0));
  backward(ops::sum(base) + ops::sum(other));
  EXPECT_EQ(values(a.grad()), (Values{2, 10, 1, 1}));
  EXPECT_EQ(values(factor.grad()), (Values{4}));
}

TEST(BackwardTest, AChangedViewGoesOnByItself) {
  const Tensor a = leaf({1, 2, 3, 4});
  const Tensor base = a * 1;
  const Tensor view = base.slice(0, 0, 2);
  ops::mul_(view, 3);
  ops::mul_(base, 2);
  EXPECT_EQ(values(view), (Values{6, 12}));
  backward(ops::sum(view));
  EXPECT_EQ(values(a.grad()), (Values{6, 6, 0, 0}));
}

TEST(BackwardTest, LeavesAndStrayViewsAreNotChangedInPlace) {
  const Tensor a = leaf({1, 2});
  EXPECT_NE(refusal([&] { ops::add_(a, 1); }).find("leaf"), std::string::npos);
  EXPECT_NE(refusal([&] { fill_(a, 1); }).find("leaf"), std::string::npos);
  EXPECT_NE(refusal([&] { ops::add_(a.select(0, 0), 1); }).find("leaf"), std::string::npos);
  EXPECT_EQ(values(a), (Values{1, 2}));
  const Tensor b = a * 1;
  const Tensor row = tensor<std::int64_t>({0});
  EXPECT_NE(refusal([&] { b.expand({2, 2}).index_put_({row}, a); }).find("share memory"),
            std::string::npos);
  Tensor quiet;
  {
    const NoGradGuard no_grad;
    quiet = b.select(0, 0);
    ops::add_(a, 1);  // an optimiser's step
  }
  EXPECT_NE(refusal([&] { ops::mul_(quiet, 2); }).find("NoGradGuard"), std::string::npos);
}

TEST(BackwardTest, BuffersTakeValuesThatNeedGradients) {
  const Tensor x = leaf({1, 2});
  const Tensor plain = zeros({2, 2}, DType::kF64);
  const Tensor stray = plain.select(0, 0);
  EXPECT_NE(refusal([&] { copy_(stray, x); }).find("watch_views"), std::string::npos);
  EXPECT_NE(refusal([&] { plain.index_put_({1}, x); }).find("watch_views"), std::string::npos);
  EXPECT_NE(refusal([&] { plain.index_put_({tensor<std::int64_t>({1})}, x); }).find("watch_views"),
            std::string::npos);
  EXPECT_EQ(values(plain), (Values{0, 0, 0, 0}));
  const Tensor watched = zeros({2, 2}, DType::kF64);
  watch_views(watched);
  copy_(watched.select(0, 1), x * 3);
  backward(ops::sum(watched * watched));
  EXPECT_EQ(values(x.grad()), (Values{18, 36}));
  const Tensor put = zeros({2, 2}, DType::kF64);
  put.index_put_({0}, x);
  clear_grad(x);
  backward(ops::sum(put * 2));
  EXPECT_EQ(values(x.grad()), (Values{2, 2}));
}

TEST(BackwardTest, IndexingByTensors) {
  const Tensor x = leaf({1, 2, 3});
  const Tensor rows = tensor<std::int64_t>({2, 2, 0});
  backward(ops::sum(x[{rows}] * tensor<double>({1, 10, 100})));
  EXPECT_EQ(values(x.grad()), (Values{100, 0, 11}));
  clear_grad(x);
  const Tensor y = x * 1;
  const Tensor v = leaf({7, 8});
  y.index_put_({tensor<std::int64_t>({0, 1})}, v * 2);
  backward(ops::sum(y * y));
  EXPECT_EQ(values(x.grad()), (Values{0, 0, 6}));
  EXPECT_EQ(values(v.grad()), (Values{56, 64}));
}

TEST(BackwardTest, DLPackTakesNoTensorThatNeedsAGradient) {
  const Tensor x = ones({2}).set_requires_grad(true);
  EXPECT_THROW(to_dlpack(x), InvalidArgument);
  DLManagedTensor* const managed = to_dlpack(x.detach());
  managed->deleter(managed);
}

TEST(BackwardTest, HooksSeeAndChangeGradients) {
  const Tensor a = leaf({1, 2});
  const Tensor b = a * 2;
  retain_grad(b);
  HookHandle twice = register_hook(b, [](const Tensor& g) { return g * 2; });
  int accumulated = 0;
  register_post_accumulate_hook(a, [&](const Tensor& t) { accumulated += t.grad().defined(); });
  std::string order;
  register_pre_hook(grad_fn(b), [&](std::span<Tensor>) { order += "before "; });
  register_post_hook(grad_fn(b), [&](std::span<Tensor> in, std::span<const Tensor> out) {
    order += "after";
    EXPECT_EQ(values(in[0]), (Values{12, 12}));
    EXPECT_EQ(values(out[0]), (Values{6, 6}));
  });
  backward(ops::sum(b * 3), {}, {.retain_graph = true});
  EXPECT_EQ(values(b.grad()), (Values{6, 6}));
  EXPECT_EQ(values(a.grad()), (Values{12, 12}));
  EXPECT_EQ(order, "before after");
  EXPECT_EQ(accumulated, 1);
  twice.remove();
  register_hook(a, [](const Tensor& g) { return g * 0; });
  clear_grad(a);
  backward(ops::sum(a * 3));
  EXPECT_EQ(values(a.grad()), (Values{0, 0}));
  EXPECT_EQ(accumulated, 2);
}

TEST(BackwardTest, SlopesAtZeroAreThere) {
  const Tensor x = leaf({0, -0.0, 2});
  const Tensor y = tensor<double>({1, 0.25, 0});
  const Tensor loss = ops::binary_cross_entropy_with_logits(x, y, ops::Reduction::kSum);
  const Tensor slope = grad({loss}, {x}, {}, {.create_graph = true})[0];
  const double sigma = 1 / (1 + std::exp(-2.0));
  const Values slopes = values(slope);
  EXPECT_DOUBLE_EQ(slopes[0], -0.5);
  EXPECT_DOUBLE_EQ(slopes[1], 0.25);
  EXPECT_NEAR(slopes[2], sigma, 1e-15);
  backward(ops::sum(slope));
  EXPECT_DOUBLE_EQ(values(x.grad())[0], 0.25);

  const Tensor a = leaf({0, 3}), b = leaf({0, 4});
  backward(ops::sum(ops::atan2(a, b)));
  EXPECT_EQ(values(a.grad()), (Values{0, 0.16}));
  EXPECT_EQ(values(b.grad()), (Values{0, -0.12}));
}

TEST(BackwardTest, RefusalsSayWhatToDo) {
  const Tensor plain = tensor<double>({1});
  EXPECT_NE(refusal([&] { backward(plain); }).find("set_requires_grad"), std::string::npos);
  const Tensor a = leaf({1, 2});
  EXPECT_NE(refusal([&] { backward(a * 2); }).find("[2]"), std::string::npos);
  EXPECT_NE(refusal([&] { backward(a * 2, ones({3}, DType::kF64)); }).find("[3]"),
            std::string::npos);
  EXPECT_NE(refusal([&] { (a * 2).set_requires_grad(false); }).find("detach"), std::string::npos);
  EXPECT_NE(refusal([&] { set_grad(a, ones({3}, DType::kF64)); }).find("[3]"), std::string::npos);
  const NodePtr none = grad_fn(a);
  EXPECT_NE(refusal([&] { register_pre_hook(none, {}); }).find("null"), std::string::npos);
  EXPECT_NE(refusal([&] { register_post_hook(none, {}); }).find("null"), std::string::npos);
  EXPECT_NE(refusal([&] { node_name(none); }).find("null"), std::string::npos);
  EXPECT_NE(refusal([&] { next_nodes(none); }).find("null"), std::string::npos);
}

TEST(BackwardTest, ThreadsMayPassSharedGraphsAtOnce) {
  const Tensor w = leaf({1, 2});
  const Tensor shared = w * w;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) backward(ops::sum(shared * 2), {}, {.retain_graph = true});
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(values(w.grad()), (Values{3200, 6400}));
}

TEST(BackwardTest, ABackwardInsideAnotherPassesTheSameGraph) {
  const Tensor w = leaf({1, 2});
  const Tensor shared = w * w;
  const Tensor tripled = shared * 3, inner = ops::sum(shared * 2);
  const HookHandle hook = register_hook(tripled, [&](const Tensor&) {
    backward(inner, {}, {.retain_graph = true});
    return Tensor();
  });
  backward(ops::sum(tripled + shared), {}, {.retain_graph = true});
  EXPECT_EQ(values(w.grad()), (Values{12, 24})) << "3 + 1 by the outer, 2 by the inner";
}

TEST(BackwardTest, AnomalyModeNamesTheForwardCall) {
  const Tensor a = leaf({-1});
  std::string message = refusal([&] {
    const AnomalyMode anomaly;
    backward(ops::sum(ops::sqrt(a)));
  });
  EXPECT_NE(message.find("sqrt"), std::string::npos) << message;
  EXPECT_NE(message.find("forward call"), std::string::npos) << message;
  message = refusal([&] {
    const AnomalyMode anomaly(true);
    ops::log(a);
  });
  EXPECT_NE(message.find("log made a result with NaN"), std::string::npos) << message;
}

TEST(BackwardTest, MixedDtypesAndBroadcastingComeBack) {
  const Tensor a = tensor<float>({1, 2}, {2, 1}).set_requires_grad(true);
  const Tensor b = leaf({3, 4, 5});
  const Tensor y = a * b;
  EXPECT_EQ(y.dtype(), DType::kF64);
  backward(ops::sum(y));
  EXPECT_EQ(a.grad().dtype(), DType::kF32);
  EXPECT_EQ(values(to(a.grad(), DType::kF64)), (Values{12, 12}));
  EXPECT_EQ(values(b.grad()), (Values{3, 3, 3}));
}

}  // namespace
}  // namespace tenon::autograd
