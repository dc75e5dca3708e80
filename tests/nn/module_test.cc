// Modules: names, shapes, what training does to them, files.
#include "tenon/nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>

#include "support/temporary.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/memory/tag.h"
#include "tenon/nn/init.h"
#include "tenon/nn/loss.h"
#include "tenon/nn/models.h"
#include "tenon/nn/nan_watch.h"
#include "tenon/nn/schedule.h"
#include "tenon/nn/state.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/interop/safetensors.h"

namespace tenon::nn {
namespace {

using tenon::testing::TemporaryFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> all;
  for (const NamedTensor& t : tensors) all.push_back(t.name);
  return all;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  return ops::amax(ops::abs(ops::sub(a.detach(), b.detach()))).item<double>();
}

TEST(Module, NamesItsParametersByPath) {
  const auto model = make_mlp({4, 4, 3});
  EXPECT_THAT(names(model->named_parameters()),
              ElementsAre("1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "5.bias"));
  EXPECT_EQ(model->parameter_count(), 16 * 256 + 256 + 256 * 256 + 256 + 256 * 3 + 3);
  for (const Tensor& p : model->parameters()) EXPECT_TRUE(p.requires_grad());
  const BatchNorm norm(4);
  EXPECT_THAT(names(norm.named_state()),
              ElementsAre("weight", "bias", "running_mean", "running_var"));
  EXPECT_THAT(names(norm.named_buffers()), ElementsAre("running_mean", "running_var"));
}

// A deferred fill gives the elements that the constructor would have made, in any order of calls.
TEST(DeferredFills, GiveTheSameElementsLater) {
  struct All : Module {
    explicit All(Generator& g) {
      register_module("cnn", make_cnn({8, 8, 3}, g));
      register_module("line", std::make_shared<Conv1d>(2, 3, 3, ops::ConvOptions{}, true, g));
      register_module("groups", std::make_shared<GroupNorm>(2, 4));
      register_module("root", std::make_shared<RMSNorm>(IntList{4}));
      register_module("batch", std::make_shared<BatchNorm>(4));
      GptOptions gpt;
      gpt.vocabulary = 5;
      gpt.layers = 2;
      gpt.width = 8;
      register_module("gpt", std::make_shared<CharGpt>(gpt, g));
      register_parameter("own", randn({3}, DType::kF32, g));
    }
    Tensor forward(const Tensor& x) override { return x; }
  };
  Generator first(5), second(5);
  const All made(first);
  const DeferredFills fills;
  const All deferred(second);
  EXPECT_EQ(second.offset(), first.offset());
  const auto wanted = made.named_parameters();
  const auto later = deferred.named_parameters();
  for (std::size_t i = wanted.size(); i-- > 0;) {
    const Tensor place = zeros(wanted[i].tensor.sizes());
    const bool own = wanted[i].name == "own";
    EXPECT_EQ(later[i].tensor.is_meta(), !own) << wanted[i].name;
    EXPECT_EQ(fills.fill(later[i].tensor, place), !own) << wanted[i].name;
    EXPECT_FALSE(fills.fill(wanted[i].tensor, place));
    const Tensor& result = own ? later[i].tensor : place;
    EXPECT_EQ(largest_difference(result, wanted[i].tensor), 0) << wanted[i].name;
  }
}

TEST(Module, RefusesNamesThatAreTaken) {
  struct Twice : Module {
    Twice(const char* first, const char* second) {
      register_buffer(first, zeros({1}));
      register_parameter(second, zeros({1}));
    }
    Tensor forward(const Tensor& x) override { return x; }
  };
  EXPECT_THROW(Twice("a", "a"), InvalidArgument);
  EXPECT_THROW(Twice("a", "b.c"), InvalidArgument);
  EXPECT_THROW(Twice("", "b"), InvalidArgument);
  EXPECT_NO_THROW(Twice("a", "b"));
}

TEST(Module, CallsHaveItsPathAsCallSite) {
  std::string seen;
  Sequential model;
  model.add(make_function([&](const Tensor& x) {
    seen = current_tag().call_site == nullptr ? "nothing" : current_tag().call_site;
    return x;
  }));
  model(zeros({1}));
  EXPECT_EQ(seen, "nothing");
  model.set_path("model");
  model(zeros({1}));
  EXPECT_EQ(seen, "model.0");
  EXPECT_EQ(current_tag().call_site, nullptr);
}

TEST(Layers, StartWithinTheBoundsOfTheirFan) {
  const Linear linear(100, 50);
  EXPECT_LE(ops::amax(ops::abs(linear.weight.detach())).item<double>(), 0.1);
  EXPECT_GT(ops::amax(ops::abs(linear.weight.detach())).item<double>(), 0.09);
  const Conv2d conv(4, 8, 5);
  EXPECT_LE(ops::amax(ops::abs(conv.weight.detach())).item<double>(), 0.1);
  EXPECT_EQ(fan_in(conv.weight), 100);
  EXPECT_THROW(fan_in(zeros({3})), InvalidArgument);
}

TEST(Layers, GiveTheShapesTheySay) {
  const auto shape = [](const Tensor& t) { return to_string(t.sizes()); };
  EXPECT_EQ(shape(Linear(6, 4)(zeros({2, 3, 6}))), "[2, 3, 4]");
  ops::ConvOptions same;
  same.padding = 1;
  EXPECT_EQ(shape(Conv2d(3, 8, 3, same)(zeros({2, 3, 9, 7}))), "[2, 8, 9, 7]");
  EXPECT_EQ(shape(Conv1d(3, 8, 4)(zeros({2, 3, 9}))), "[2, 8, 6]");
  EXPECT_EQ(shape(Embedding(10, 5)(zeros({2, 7}, DType::kI64))), "[2, 7, 5]");
  EXPECT_EQ(shape(LayerNorm({6})(zeros({2, 3, 6}))), "[2, 3, 6]");
  EXPECT_EQ(shape(RMSNorm({6})(zeros({2, 3, 6}))), "[2, 3, 6]");
  EXPECT_EQ(shape(GroupNorm(2, 4)(zeros({2, 4, 5}))), "[2, 4, 5]");
  EXPECT_EQ(shape(BatchNorm(4)(ones({2, 4, 5}))), "[2, 4, 5]");
  EXPECT_EQ(shape(SelfAttention({8, 2, true, 0})(ones({2, 5, 8}))), "[2, 5, 8]");
  EXPECT_EQ(shape(TransformerBlock({8, 2, true, 0})(ones({2, 5, 8}))), "[2, 5, 8]");
  EXPECT_EQ(shape((*make_cnn({8, 12, 7}))(zeros({2, 1, 8, 12}))), "[2, 7]");
  GptOptions gpt;
  gpt.vocabulary = 11;
  gpt.length = 6;
  gpt.width = 8;
  gpt.heads = 2;
  gpt.layers = 2;
  CharGpt model(gpt);
  EXPECT_EQ(shape(model(zeros({3, 5}, DType::kI64))), "[3, 5, 11]");
  EXPECT_THROW(model(zeros({3, 7}, DType::kI64)), InvalidArgument);
}

TEST(Layers, GeluIsByErf) {
  const double values[] = {-2, -0.5, 0, 1, 2.5};
  const Tensor y = (*gelu())(tensor<double>(values, {5}));
  for (std::int64_t i = 0; i < 5; ++i)
    EXPECT_NEAR(y.select(0, i).item<double>(),
                values[i] * (1 + std::erf(values[i] / std::sqrt(2.0))) / 2, 1e-12);
}

TEST(Layers, RefuseSizesThatMakeNoSense) {
  EXPECT_THROW(Linear(0, 4), InvalidArgument);
  EXPECT_THROW(Conv2d(3, 8, 3, {1, 0, 1, 2, 0}), InvalidArgument);
  EXPECT_THROW(Dropout(1), InvalidArgument);
  EXPECT_THROW(SelfAttention({9, 2, true, 0}), InvalidArgument);
  EXPECT_THROW(make_cnn({3, 3, 2}), InvalidArgument);
  EXPECT_THROW(Linear(4, 4)(zeros({2, 5})), InvalidArgument);
}

TEST(Attention, SeesOnlyThePast) {
  Generator generator(3);
  SelfAttention attention({16, 4, true, 0}, generator);
  const NoGradGuard no_grad;
  const Tensor x = randn({1, 6, 16}, DType::kF32, generator);
  const Tensor before = attention(x);
  const Tensor changed = clone(x);
  ops::add_(changed.narrow(1, 4, 2), 1.0);
  const Tensor after = attention(changed);
  EXPECT_EQ(largest_difference(before.narrow(1, 0, 4), after.narrow(1, 0, 4)), 0);
  EXPECT_GT(largest_difference(before.narrow(1, 4, 2), after.narrow(1, 4, 2)), 1e-3);
}

TEST(Dropout, ScalesWhatItKeepsInTrainingOnly) {
  Generator generator(5);
  Dropout dropout(0.25, generator);
  const Tensor x = ones({10000});
  const Tensor y = dropout(x);
  const double kept = ops::sum(ops::gt(y, 0)).item<double>() / 10000;
  EXPECT_NEAR(kept, 0.75, 0.02);
  EXPECT_FLOAT_EQ(ops::amax(y).item<float>(), 1 / 0.75f);
  dropout.eval();
  EXPECT_TRUE(dropout(x).is_same(x));
}

TEST(BatchNorm, LearnsRunningStatisticsAndUsesThemInEvaluation) {
  Generator generator(5);
  BatchNorm norm(3);
  for (int i = 0; i < 100; ++i) {
    const Tensor x = randn({64, 3}, DType::kF32, generator) * 2.0 + 5.0;
    norm(x);
  }
  EXPECT_NEAR(ops::mean(norm.running_mean).item<double>(), 5, 0.2);
  EXPECT_NEAR(ops::mean(norm.running_var).item<double>(), 4, 0.5);
  norm.eval();
  EXPECT_NEAR(ops::mean(norm(full({1, 3}, 5.0))).item<double>(), 0, 0.2);
}

// --- Training.

double train_step(Module& model, Optimizer& optimizer, const Tensor& x, const Tensor& y) {
  const Tensor loss = ops::cross_entropy(model(x), y);
  autograd::backward(loss);
  optimizer.step();
  optimizer.zero_grad();
  return loss.item<double>();
}

TEST(Training, EveryModelLearnsItsBatchByHeart) {
  Generator generator(9);
  const Tensor x = randn({16, 1, 8, 8}, DType::kF32, generator);
  const Tensor y = randint(0, 4, {16}, DType::kI64, generator);
  for (const auto& model : {make_mlp({8, 8, 4}, generator), make_cnn({8, 8, 4}, generator)}) {
    Adam adam(model->named_parameters(), {.learning_rate = 3e-3});
    const double first = train_step(*model, adam, x, y);
    double last = 0;
    for (int i = 0; i < 40; ++i) last = train_step(*model, adam, x, y);
    EXPECT_NEAR(first, std::log(4.0), 0.5);
    EXPECT_LT(last, 0.1);
  }
}

struct SmallGpt {
  SmallGpt() {
    options.vocabulary = 7;
    options.length = 8;
    options.layers = 4;
    options.width = 16;
    options.heads = 2;
    model = std::make_shared<CharGpt>(options, generator);
    x = randint(0, 7, {4, 8}, DType::kI64, generator);
    y = randint(0, 7, {4 * 8}, DType::kI64, generator);
  }
  Tensor loss() const { return ops::cross_entropy((*model)(x).view({-1, 7}), y); }
  Generator generator{21};
  GptOptions options;
  std::shared_ptr<CharGpt> model;
  Tensor x, y;
};

TEST(Training, CheckpointsChangeNoGradient) {
  const SmallGpt gpt;
  autograd::backward(gpt.loss());
  std::vector<Tensor> plain;
  for (const Tensor& p : gpt.model->parameters()) {
    ASSERT_TRUE(p.grad().defined());
    plain.push_back(clone(p.grad()));
  }
  gpt.model->zero_grad();
  gpt.model->set_checkpoints(2);
  autograd::backward(gpt.loss());
  const std::vector<Tensor> parameters = gpt.model->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    EXPECT_LE(largest_difference(parameters[i].grad(), plain[i]), 1e-6) << i;
}

TEST(Training, AGptLearnsItsBatchByHeart) {
  const SmallGpt gpt;
  AdamW adam(gpt.model->named_parameters(), {.learning_rate = 1e-2});
  double last = 0;
  for (int i = 0; i < 60; ++i) {
    const Tensor loss = gpt.loss();
    autograd::backward(loss);
    adam.step(clip_factor(gradient_norm(adam.parameters()), 1));
    adam.zero_grad();
    last = loss.item<double>();
  }
  EXPECT_LT(last, 0.3);
}

TEST(Training, UpdatesInBackwardAreTheSame) {
  const SmallGpt one, other;
  Adam after(one.model->named_parameters(), {});
  Adam during(other.model->named_parameters(), {});
  {
    const UpdatesInBackward updates(during);
    for (int i = 0; i < 3; ++i) {
      autograd::backward(one.loss());
      after.step();
      after.zero_grad();
      autograd::backward(other.loss());
      for (const Tensor& p : other.model->parameters()) EXPECT_FALSE(p.grad().defined());
    }
    EXPECT_EQ(state_hash(one.model->named_state()), state_hash(other.model->named_state()));
  }
  autograd::backward(other.loss());
  EXPECT_TRUE(other.model->parameters()[0].grad().defined()) << "the hooks are gone";
}

TEST(Training, GradientsAreThoseOfDifferences) {
  const SmallGpt gpt;
  autograd::backward(gpt.loss());
  const NoGradGuard no_grad;
  for (const NamedTensor& p : gpt.model->named_parameters()) {
    const Tensor flat = p.tensor.detach().view({-1});
    const std::int64_t at = flat.numel() / 2;
    auto* element = flat.data_ptr<float>() + at;
    const float kept = *element;
    constexpr float kStep = 1e-2f;
    *element = kept + kStep;
    const double above = gpt.loss().item<double>();
    *element = kept - kStep;
    const double below = gpt.loss().item<double>();
    *element = kept;
    const double slope = (above - below) / (2 * kStep);
    EXPECT_NEAR(p.tensor.grad().view({-1})[at].item<double>(), slope, 2e-3) << p.name;
  }
}

// --- Files.

std::uint64_t run_steps(Module& model, Optimizer& optimizer, const SmallGpt& gpt, int count) {
  for (int i = 0; i < count; ++i) {
    const Tensor loss = ops::cross_entropy(model(gpt.x).view({-1, 7}), gpt.y);
    autograd::backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  return state_hash(model.named_state());
}

TEST(State, AResumedRunIsTheSameToTheBit) {
  const TemporaryFile file(".safetensors");
  const SmallGpt gpt;
  AdamW adam(gpt.model->named_parameters(), {});
  run_steps(*gpt.model, adam, gpt, 3);
  save_state(file.path(), *gpt.model, &adam, {{"step", "3"}});
  const std::uint64_t wanted = run_steps(*gpt.model, adam, gpt, 4);

  const SmallGpt fresh;
  AdamW resumed(fresh.model->named_parameters(), {});
  const Metadata metadata = load_state(file.path(), *fresh.model, &resumed);
  EXPECT_EQ(metadata.at("step"), "3");
  EXPECT_EQ(run_steps(*fresh.model, resumed, gpt, 4), wanted);
}

TEST(State, RefusesFilesOfAnotherModelAndChangesNothing) {
  const TemporaryFile file(".safetensors");
  const auto small = make_mlp({2, 2, 3});
  save_state(file.path(), *small);
  const auto other = make_mlp({2, 3, 3});
  const std::uint64_t before = state_hash(other->named_state());
  try {
    load_state(file.path(), *other);
    FAIL() << "it was taken";
  } catch (const ParseError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.1.weight"));
    EXPECT_THAT(error.what(), HasSubstr("[256, 4]"));
  }
  EXPECT_EQ(state_hash(other->named_state()), before);
  const auto twin = make_mlp({2, 2, 3});
  load_state(file.path(), *twin);
  EXPECT_EQ(state_hash(twin->named_state()), state_hash(small->named_state()));
  Sgd sgd(twin->named_parameters(), {.momentum = 0.9});
  EXPECT_THROW(load_state(file.path(), *twin, &sgd), ParseError);
}

// A limit on file sizes stands in for the full disk: the write fails in the middle.
TEST(State, AFullDiskLeavesTheEarlierFileWhole) {
  const TemporaryFile file(".safetensors");
  const auto model = make_mlp({8, 8, 3});
  save_state(file.path(), *model);
  const std::uint64_t before = state_hash(model->named_state());
  const std::string bytes = file.contents();
  fill_(model->parameters()[0].detach(), 1);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{10000, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(save_state(file.path(), *model), std::runtime_error);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, previous);
  EXPECT_EQ(file.contents(), bytes);
  load_state(file.path(), *model);
  EXPECT_EQ(state_hash(model->named_state()), before);
}

TEST(State, HashSeesNamesShapesAndBits) {
  const std::vector<NamedTensor> a = {{"a", zeros({2, 3})}};
  const std::vector<NamedTensor> b = {{"b", zeros({2, 3})}};
  const std::vector<NamedTensor> c = {{"a", zeros({3, 2})}};
  EXPECT_NE(state_hash(a), state_hash(b));
  EXPECT_NE(state_hash(a), state_hash(c));
  const std::uint64_t before = state_hash(a);
  a[0].tensor.data_ptr<float>()[5] = 1e-30f;
  EXPECT_NE(state_hash(a), before);
}

// --- Finding NaN.

TEST(NanWatch, NamesTheFirstOperatorAndItsLayer) {
  const auto model = std::make_shared<Sequential>();
  model->add(make_function([](const Tensor& x) { return ops::sub(x, 1); }));
  model->add(make_function([](const Tensor& x) { return ops::log(x); }));
  model->add(make_function([](const Tensor& x) { return ops::mul(x, 2); }));
  model->set_path("model");
  const NanWatch watch;
  (*model)(ones({2}));  // log(0) is infinite, and no NaN
  EXPECT_FALSE(watch.finding().has_value());
  (*model)(zeros({2, 3}));
  ASSERT_TRUE(watch.finding().has_value());
  EXPECT_EQ(watch.finding()->op, "log");
  EXPECT_EQ(watch.finding()->layer, "model.1");
  EXPECT_EQ(watch.finding()->shape, "[2, 3]");
  EXPECT_FALSE(watch.finding()->from_infinity);
}

TEST(NanWatch, SeesInPlaceOperatorsAndInfiniteOperands) {
  const Tensor x = full({4}, INFINITY);
  const Tensor y = full({4}, INFINITY);
  const NanWatch watch;
  ops::sub_(x, y);
  ASSERT_TRUE(watch.finding().has_value());
  EXPECT_EQ(watch.finding()->op, "sub_into");
  EXPECT_TRUE(watch.finding()->from_infinity);
}

}  // namespace
}  // namespace tenon::nn
