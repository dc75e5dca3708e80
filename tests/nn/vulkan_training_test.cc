// Models trained on a Vulkan device that shares its memory with the host, beside the host itself.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include "support/vulkan.h"
#include "tenon/autograd/autograd.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/registry.h"
#include "tenon/nn/models.h"
#include "tenon/nn/optimizer.h"
#include "tenon/ops/conv.h"
#include "tenon/ops/loss.h"
#include "tenon/ops/operators.h"
#include "tenon/ops/pool.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/random.h"

namespace tenon::nn {
namespace {

using testing::kVulkan;
constexpr int kSteps = 100;

using LossOfStep = std::function<Tensor()>;

// The loss of each step; `make` gives a function that computes one step's loss.
std::vector<float> losses(Module& model, const LossOfStep& loss_of_step, Device device) {
  model.to(device);
  Adam adam(model.named_parameters(), {.learning_rate = 3e-4});
  std::vector<float> found;
  for (int i = 0; i < kSteps; ++i) {
    model.zero_grad();
    const Tensor loss = loss_of_step();
    EXPECT_EQ(loss.device(), device);
    autograd::backward(loss);
    adam.step();
    found.push_back(loss.item<float>());
  }
  return found;
}

// An image classifier on one batch.
template <typename Make>
std::vector<float> train_images(Make&& make, Device device) {
  Generator generator(5);
  const ImageShape shape{12, 12, 10};
  const auto model = make(shape, generator);
  const Tensor images = to(randn({16, 1, 12, 12}, DType::kF32, generator), device);
  Tensor classes = empty({16}, DType::kI64);
  for (std::int64_t i = 0; i < 16; ++i) classes.data_ptr<std::int64_t>()[i] = i % 10;
  const Tensor wanted = to(classes, device);
  return losses(*model, [&] { return ops::cross_entropy((*model)(images), wanted); }, device);
}

std::vector<float> train_text(Device device) {
  Generator generator(6);
  CharGpt model({.vocabulary = 20, .length = 16, .layers = 2, .width = 32, .heads = 2}, generator);
  Tensor text = empty({4, 17}, DType::kI64);
  for (std::int64_t i = 0; i < text.numel(); ++i)
    text.data_ptr<std::int64_t>()[i] = (i * i + 3 * i) % 20;
  const Tensor index = to(contiguous(text.slice(1, 0, 16)), device);
  const Tensor next = to(contiguous(text.slice(1, 1, 17)), device).reshape({64});
  return losses(
      model, [&] { return ops::cross_entropy(model(index).reshape({64, 20}), next); }, device);
}

class VulkanTraining : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() { testing::choose_process_device(); }
  static std::uint64_t fallback_calls() {
    std::uint64_t sum = 0;
    for (const HostFallback& each : fallbacks()) sum += each.calls;
    return sum;
  }
  static std::vector<float> run(Device device) {
    if (GetParam() == "gpt") return train_text(device);
    if (GetParam() == "cnn")
      return train_images([](const auto& s, auto& g) { return make_cnn(s, g); }, device);
    return train_images([](const auto& s, auto& g) { return make_mlp(s, g); }, device);
  }
};

INSTANTIATE_TEST_SUITE_P(Models, VulkanTraining, ::testing::Values("mlp", "cnn", "gpt"),
                         [](const auto& model) { return model.param; });

TEST_P(VulkanTraining, LossesAreTheHostsAndTheSameTwice) {
  const std::vector<float> on_host = run(Device{});
  const std::uint64_t before = fallback_calls();
  const std::vector<float> found = run(kVulkan);
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], on_host[i], 1e-4 * std::max(1.0f, std::abs(on_host[i]))) << "step " << i;
  if (vulkan_backend(0).abilities().integers) {
    EXPECT_EQ(fallback_calls(), before) << "every operator, derivative and update has a kernel";
  }
  EXPECT_LT(found.back(), 0.95f * found.front()) << "it learns";

  // Once pipelines and memory are there, later steps make neither.
  const VulkanBackend& backend = vulkan_backend(0);
  const std::uint64_t pipelines = backend.pipelines();
  const std::uint64_t allocations = backend.ledger().count(DriverCall::kAllocate);
  const std::uint64_t submissions = backend.submissions();
  EXPECT_EQ(run(kVulkan), found) << "to the bit";
  if (GetParam() == "mlp" && backend.abilities().integers) {
    EXPECT_LE(backend.submissions() - submissions, 1u * kSteps) << "where the loss is read";
  }
  EXPECT_EQ(backend.pipelines(), pipelines);
  EXPECT_EQ(backend.ledger().count(DriverCall::kAllocate), allocations);
  EXPECT_EQ(VulkanDriver::standard()->validation_messages(), 0u);
}

// What `work` needs at most beside what lives before it.
std::int64_t most_bytes(const std::function<void()>& work) {
  testing::choose_process_device();
  const auto allocator = make_policy("pool", vulkan_backend(0));
  const AllocatorGuard guard(kVulkan, *allocator);
  work();
  vulkan_backend(0).synchronize();
  return allocator->stats().requested_bytes[0].peak;
}

TEST(VulkanMemory, AConvolutionNeedsFewMiBBesideItsResult) {
  Generator generator(7);
  const Tensor images = to(randn({128, 1, 28, 28}, DType::kF32, generator), kVulkan);
  const Tensor weight = to(randn({32, 1, 3, 3}, DType::kF32, generator), kVulkan);
  const std::int64_t out = 128 * 32 * 28 * 28 * 4;
  EXPECT_LE(most_bytes([&] { ops::conv2d(images, weight, {}, {.padding = 1}); }),
            out + 9 * (1 << 20));
}

TEST(VulkanMemory, TheDerivativeOfPoolingMakesTheGradientOnce) {
  Generator generator(8);
  const Tensor images = to(randn({64, 32, 28, 28}, DType::kF32, generator), kVulkan);
  images.set_requires_grad(true);
  const std::int64_t in = images.numel() * 4, out = in / 4;
  // The gradient; the result and its own gradient; the maxima's places in i64.
  EXPECT_LE(most_bytes([&] {
              const Tensor result = ops::max_pool2d(images, {.kernel = {2, 2}});
              static_cast<void>(autograd::grad({result}, {images}, {ones_like(result)}));
            }),
            in + 5 * out);
}

TEST(VulkanKeyValueCache, StepsSayWhatTheWholeSequenceSays) {
  testing::choose_process_device();
  Generator generator(5);
  CharGpt model({.vocabulary = 11, .length = 12, .layers = 2, .width = 16, .heads = 2}, generator);
  model.to(kVulkan);
  const NoGradGuard no_grad;
  Tensor ids = empty({1, 12}, DType::kI64);
  for (std::int64_t i = 0; i < 12; ++i) ids.data_ptr<std::int64_t>()[i] = (i * i + 3) % 11;
  ids = to(ids, kVulkan);
  const Tensor whole = to(model.forward(ids), Device{});
  KeyValueCache cache = model.make_cache();
  const auto expect_row = [&](const Tensor& of_step, std::int64_t place) {
    const Tensor row = to(of_step, Device{});
    for (std::int64_t i = 0; i < 11; ++i)
      ASSERT_NEAR(row.select(0, i).item<float>(),
                  whole.select(0, 0).select(0, place).select(0, i).item<float>(), 1e-4)
          << "place " << place << ", class " << i;
  };
  for (int round = 0; round < 2; ++round) {
    const Tensor prompt = model.step(contiguous(ids.narrow(1, 0, 5)), cache).select(0, 0);
    for (std::int64_t i = 0; i < 5; ++i) expect_row(prompt.select(0, i), i);
    for (std::int64_t i = 5; i < 12; ++i)
      expect_row(model.step(contiguous(ids.narrow(1, i, 1)), cache).select(0, 0).select(0, 0), i);
    EXPECT_EQ(cache.length(), 12);
    EXPECT_THROW(model.step(contiguous(ids.narrow(1, 0, 1)), cache), InvalidArgument);
    cache.truncate(0);
  }
}

}  // namespace
}  // namespace tenon::nn
