// What trains in less memory: gradients used up as they come, results made again, bits and choices
// kept instead of values. None of it may change a bit of what is learnt.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tenon/autograd/autograd.h"
#include "tenon/autograd/gradcheck.h"
#include "tenon/autograd/gradient_taker.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/lab/step_meter.h"
#include "tenon/memory/host/host_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/nn/models.h"
#include "tenon/nn/optimizer.h"
#include "tenon/nn/state.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::nn {
namespace {

bool same_bits(const Tensor& a_, const Tensor& b_) {
  const Tensor a = contiguous(a_.detach()), b = contiguous(b_.detach());
  return a.nbytes() == b.nbytes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

class Threads {
 public:
  explicit Threads(int count) : previous_(num_threads()) { set_num_threads(count); }
  ~Threads() { set_num_threads(previous_); }

 private:
  const int previous_;
};

// Most bytes of tensors at once while `body` runs, besides those that were there before.
template <typename Body>
std::uint64_t peak_of(Body&& body) {
  HostBackend backend;
  HostAllocator allocator(backend);
  StepMeter meter(allocator);
  const AllocatorGuard guard(Device{}, meter);
  body();
  return meter.peak_bytes();
}

// --- Updates in backward.

struct Training {
  std::string name;
  std::function<std::shared_ptr<Module>(Generator&)> build;
  std::function<Tensor(Module&)> loss;
};

std::vector<Training> trainings() {
  Generator generator(5);
  const Tensor images = randn({33, 1, 12, 9}, DType::kF32, generator);
  const Tensor labels = randint(0, 10, {33}, DType::kI64, generator);
  const Tensor text = randint(0, 19, {3, 17}, DType::kI64, generator);
  GptOptions gpt;
  gpt.vocabulary = 19;
  gpt.length = 17;
  gpt.layers = 2;
  gpt.width = 24;
  gpt.heads = 2;
  const auto classify = [=](Module& m) { return ops::cross_entropy(m(images), labels); };
  const ImageShape shape{12, 9, 10};
  return {{"mlp", [=](Generator& g) { return make_mlp(shape, g); }, classify},
          {"cnn", [=](Generator& g) { return make_cnn(shape, g); }, classify},
          {"gpt", [=](Generator& g) { return std::make_shared<CharGpt>(gpt, g); },
           [=](Module& m) {
             return ops::cross_entropy(m(text).view({-1, 19}), text.view({-1}));
           }}};
}

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<NamedTensor>)>;

std::vector<std::pair<std::string, MakeOptimizer>> optimizers() {
  const auto sgd = [](SgdOptions o) {
    return [o](std::vector<NamedTensor> p) { return std::make_unique<Sgd>(std::move(p), o); };
  };
  const auto adam = [](AdamOptions o) {
    return [o](std::vector<NamedTensor> p) { return std::make_unique<Adam>(std::move(p), o); };
  };
  return {{"sgd", sgd({.learning_rate = 0.1})},
          {"momentum", sgd({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01})},
          {"dampened", sgd({.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.3})},
          {"nesterov", sgd({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true})},
          {"adam", adam({.weight_decay = 0.1})},
          {"adamw", adam({.weight_decay = 0.1, .decoupled = true})}};
}

// Hashes of weights and state after some steps.
std::pair<std::uint64_t, std::uint64_t> train(const Training& what, const MakeOptimizer& make,
                                              bool in_backward) {
  Generator generator(9);
  const std::shared_ptr<Module> model = what.build(generator);
  const std::unique_ptr<Optimizer> optimizer = make(model->named_parameters());
  std::unique_ptr<UpdatesInBackward> updates;
  if (in_backward) updates = std::make_unique<UpdatesInBackward>(*optimizer);
  for (int i = 0; i < 4; ++i) {
    autograd::backward(what.loss(*model));
    if (!in_backward) {
      optimizer->step();
      optimizer->zero_grad();
    }
  }
  for (const NamedTensor& p : model->named_parameters())
    EXPECT_FALSE(p.tensor.grad().defined()) << p.name;
  const auto state = optimizer->named_state();
  return {state_hash(model->named_state()), state.empty() ? 0 : state_hash(state)};
}

TEST(UpdatesInBackward, EndWithTheSameBitsAsStepsAfterIt) {
  for (const Training& what : trainings())
    for (const auto& [name, make] : optimizers()) {
      const auto wanted = train(what, make, false);
      for (const int threads : {1, 3}) {
        const Threads here(threads);
        EXPECT_EQ(train(what, make, true), wanted) << what.name << ", " << name;
        EXPECT_EQ(train(what, make, false), wanted) << what.name << ", " << name;
      }
    }
}

TEST(UpdatesInBackward, NeverHoldALargeMatrixsGradient) {
  constexpr std::int64_t kWidth = 512, kBatch = 8;
  constexpr std::uint64_t kMatrix = kWidth * kWidth * sizeof(float);
  const auto peak = [&](double momentum, bool in_backward) {
    return peak_of([&] {
      const Threads one(1);
      Generator generator(1);
      Sequential model;
      for (int i = 0; i < 2; ++i)
        model.add(std::make_shared<Linear>(kWidth, kWidth, true, generator));
      Sgd sgd(model.named_parameters(), {.learning_rate = 0.01, .momentum = momentum});
      std::unique_ptr<UpdatesInBackward> updates;
      if (in_backward) updates = std::make_unique<UpdatesInBackward>(sgd);
      const Tensor x = randn({kBatch, kWidth}, DType::kF32, generator);
      autograd::backward(ops::sum(ops::square(model(x))));
      if (!in_backward) sgd.step();
    });
  };
  EXPECT_GT(peak(0.9, false), 6 * kMatrix);
  EXPECT_LT(peak(0.9, true), 4 * kMatrix + kMatrix / 4);
  EXPECT_LT(peak(0, true), 2 * kMatrix + kMatrix / 4);
}

TEST(UpdatesInBackward, AWeightUsedTwiceGetsTheSumOfItsGradients) {
  const auto run = [](bool in_backward) {
    Generator generator(3);
    const Tensor w = randn({40, 40}, DType::kF32, generator).set_requires_grad(true);
    const Tensor x = randn({2, 40}, DType::kF32, generator);
    Adam adam({{"w", w}}, {});
    std::unique_ptr<UpdatesInBackward> updates;
    if (in_backward) updates = std::make_unique<UpdatesInBackward>(adam);
    autograd::backward(ops::sum(ops::square(ops::linear(ops::linear(x, w, {}), w, {}))));
    if (!in_backward) adam.step();
    return clone(w.detach());
  };
  EXPECT_TRUE(same_bits(run(true), run(false)));
}

TEST(UpdatesInBackward, HooksStillSeeTheWholeGradient) {
  Generator generator(3);
  const Tensor w = randn({64, 64}, DType::kF32, generator).set_requires_grad(true);
  const Tensor x = randn({2, 64}, DType::kF32, generator);
  Sgd sgd({{"w", w}}, {.momentum = 0.9});
  const UpdatesInBackward updates(sgd);
  double seen = 0;
  autograd::HookHandle hook = autograd::register_hook(w, [&](const Tensor& g) {
    seen = ops::sum(ops::abs(g)).item<double>();
    return Tensor();
  });
  autograd::backward(ops::sum(ops::linear(x, w, {})));
  EXPECT_GT(seen, 0);
  hook.remove();
  bool accumulated = false;
  hook = autograd::register_post_accumulate_hook(
      w, [&](const Tensor& leaf) { accumulated = leaf.grad().defined(); });
  autograd::backward(ops::sum(ops::linear(x, w, {})));
  EXPECT_TRUE(accumulated);
  EXPECT_FALSE(w.grad().defined());
  EXPECT_EQ(sgd.updates()[0], 2u);
}

TEST(UpdatesInBackward, AGradientThatWasThereIsPartOfTheUpdate) {
  const auto run = [](bool in_backward) {
    Generator generator(4);
    const Tensor w = randn({64, 64}, DType::kF32, generator).set_requires_grad(true);
    const Tensor x = randn({2, 64}, DType::kF32, generator);
    Sgd sgd({{"w", w}}, {.learning_rate = 0.1});
    const auto loss = [&] { return ops::sum(ops::square(ops::linear(x, w, {}))); };
    autograd::backward(loss());
    std::unique_ptr<UpdatesInBackward> updates;
    if (in_backward) updates = std::make_unique<UpdatesInBackward>(sgd);
    autograd::backward(loss());
    if (!in_backward) sgd.step();
    return clone(w.detach());
  };
  EXPECT_TRUE(same_bits(run(true), run(false)));
}

TEST(UpdatesInBackward, ARetainedGraphRefusesItsSecondPass) {
  Generator generator(4);
  const Tensor w = randn({64, 64}, DType::kF32, generator).set_requires_grad(true);
  const Tensor x = randn({2, 64}, DType::kF32, generator).set_requires_grad(true);
  Sgd sgd({{"w", w}}, {.momentum = 0.9});
  const UpdatesInBackward updates(sgd);
  EXPECT_THROW(UpdatesInBackward{sgd}, InvalidArgument);
  const Tensor loss = ops::sum(ops::square(ops::linear(x, w, {})));
  autograd::backward(loss, {}, {.retain_graph = true});
  EXPECT_THROW(autograd::backward(loss), InvalidArgument);
}

// --- Results made again.

TEST(RecomputeCheap, ChangesNoBitAndKeepsLess) {
  GptOptions options;
  options.vocabulary = 30;
  options.length = 32;
  options.layers = 3;
  options.width = 32;
  options.heads = 2;
  Generator of_text(8);
  const Tensor text = randint(0, 30, {8, 32}, DType::kI64, of_text);
  std::vector<Tensor> gradients[2];
  std::uint64_t peaks[2];
  for (const bool recompute : {false, true}) {
    Generator generator(2);
    CharGpt model(options, generator);
    const auto run = [&] {
      const autograd::RecomputeCheap guard(recompute);
      autograd::backward(ops::cross_entropy(model(text).view({-1, 30}), text.view({-1})));
    };
    peaks[recompute] = peak_of([&] {
      run();
      model.zero_grad();
    });
    run();
    for (const Tensor& p : model.parameters()) gradients[recompute].push_back(p.grad());
  }
  for (std::size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_TRUE(same_bits(gradients[0][i], gradients[1][i])) << i;
  EXPECT_LT(peaks[1], peaks[0] * 3 / 4);
}

TEST(RecomputeCheap, CanBeDifferentiatedTwice) {
  Generator generator(2);
  const auto f = [](std::span<const Tensor> in) {
    const autograd::RecomputeCheap recompute;
    const Tensor h = ops::linear(ops::layer_norm(in[0], {3}, in[1], in[2], 1e-5), in[3], {});
    const Tensor s = ops::linear(ops::rms_norm(ops::silu(h), {3}, in[1], 1e-5), in[3], {});
    return std::vector<Tensor>{ops::linear(ops::gelu(s, true), in[3], {})};
  };
  std::vector<Tensor> in;
  for (const DimVector& sizes : {DimVector{2, 3}, DimVector{3}, DimVector{3}, DimVector{3, 3}})
    in.push_back(randn(sizes, DType::kF64, generator).set_requires_grad(true));
  EXPECT_EQ(autograd::gradcheck(f, in), "");
  EXPECT_EQ(autograd::gradgradcheck(f, in), "");
}

TEST(RecomputeCheap, KeepsWhatWasChangedInPlace) {
  Generator generator(2);
  const auto gradient = [&](bool recompute) {
    Generator again(7);
    const Tensor x = randn({4, 8}, DType::kF32, again).set_requires_grad(true);
    const Tensor w = randn({8, 8}, DType::kF32, again).set_requires_grad(true);
    const autograd::RecomputeCheap guard(recompute);
    const Tensor h = ops::gelu(x, true);
    {
      const NoGradGuard unseen;
      ops::mul_(h, 2);
    }
    autograd::backward(ops::sum(ops::linear(h, w, {})));
    return w.grad();
  };
  EXPECT_TRUE(same_bits(gradient(true), gradient(false)));
}

// --- Bits of relu, choices of max_pool2d.

TEST(Relu, KeepsABitForAnElement) {
  for (const std::int64_t count : {1023, 1024, 4099, 150001}) {
    Generator generator(6);
    const Tensor x = randn({count}, DType::kF32, generator);
    auto* const data = x.data_ptr<float>();
    data[0] = 0, data[1] = -0.0f, data[2] = NAN, data[count - 1] = 1;
    const Tensor g = randn({count}, DType::kF32, generator);
    const Tensor wanted = clone(g);
    for (std::int64_t i = 0; i < count; ++i)
      if (data[i] <= 0) wanted.data_ptr<float>()[i] = 0;
    const Tensor leaf = clone(x).set_requires_grad(true);
    autograd::backward(ops::relu(leaf), g);
    EXPECT_TRUE(same_bits(leaf.grad(), wanted)) << count;
    const Tensor other = clone(x).set_requires_grad(true);
    autograd::backward(ops::relu_(ops::mul(other, 1)), g);
    EXPECT_TRUE(same_bits(other.grad(), wanted)) << count;
    const Tensor recorded =
        autograd::grad({ops::relu(leaf)}, {leaf}, {g}, {.create_graph = true})[0];
    EXPECT_TRUE(same_bits(recorded, wanted)) << count;
  }
}

TEST(Relu, InPlaceSparesWhatOthersHold) {
  Generator generator(5);
  const Tensor images = randn({8, 1, 12, 12}, DType::kF32, generator);
  const Tensor labels = randint(0, 10, {8}, DType::kI64, generator);
  std::vector<Tensor> wanted;
  for (const std::int64_t segments : {1, 2, 3, 5, 10}) {
    Generator again(3);
    const std::shared_ptr<Sequential> model = make_cnn({12, 12, 10}, again);
    model->set_checkpoints(segments);
    autograd::backward(ops::cross_entropy((*model)(images), labels));
    std::vector<Tensor> found;
    for (const Tensor& p : model->parameters()) found.push_back(p.grad());
    if (wanted.empty()) wanted = found;
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(same_bits(found[i], wanted[i])) << segments << " segments, parameter " << i;
  }
  Sequential model;  // tanh keeps its result
  model.add(make_function([](const Tensor& x) { return ops::tanh(x); }));
  model.add(relu(true));
  const Tensor x = randn({2000}, DType::kF32, generator).set_requires_grad(true);
  autograd::backward(ops::sum(model(x)));
  const Tensor t = ops::tanh(x.detach());
  const Tensor slope = ops::mul(ops::sub(1, ops::square(t)), to(ops::gt(t, 0), DType::kF32));
  EXPECT_LE(ops::amax(ops::abs(ops::sub(x.grad(), slope))).item<double>(), 1e-6);
  const Tensor kept = clone(x.detach());
  static_cast<void>((*relu(true))(x));
  EXPECT_TRUE(same_bits(x, kept));
}

TEST(Relu, InPlaceKeepsNoResult) {
  constexpr std::uint64_t kBytes = 1 << 20;
  const std::uint64_t peak = peak_of([] {
    const Tensor x = zeros({kBytes / 4}).set_requires_grad(true);
    Tensor y = ops::mul(x, 2);
    y = ops::sum(ops::relu_(y));
    autograd::backward(y);
  });
  EXPECT_LT(peak, 3 * kBytes + 4096) << "x and the gradients of y before and after mul";
}

TEST(MaxPool, KeepsAByteForAWindow) {
  Generator generator(6);
  Tensor x = to(randint(0, 4, {3, 2, 13, 11}, DType::kI64, generator), DType::kF32);
  fill_(x[0][1].narrow(0, 2, 1), NAN);
  for (const ops::PoolOptions& o :
       {ops::PoolOptions{2, 0, 0, true}, ops::PoolOptions{3, 2, 0, true},
        ops::PoolOptions{{3, 2}, {1, 3}, 0, true}, ops::PoolOptions{{11, 11}, 1, 0, true},
        ops::PoolOptions{3, 1, 1, true}}) {
    const Tensor leaf = clone(x).set_requires_grad(true);
    const Tensor out = ops::max_pool2d(leaf, o);
    const Tensor g = randn(out.sizes(), DType::kF32, generator);
    const Tensor recorded =
        autograd::grad({out}, {leaf}, {g}, {.retain_graph = true, .create_graph = true})[0];
    autograd::backward(out, g);
    const Tensor difference = ops::abs(ops::sub(recorded.detach(), leaf.grad()));
    EXPECT_LE(ops::amax(difference).item<double>(), 1e-5);
  }
}

}  // namespace
}  // namespace tenon::nn
