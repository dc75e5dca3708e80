// Steps on a Vulkan device that are captured once and run again, beside the same steps without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>

#include "support/vulkan.h"
#include "tenon/autograd/autograd.h"
#include "tenon/lab/planner.h"
#include "tenon/lab/step_meter.h"
#include "tenon/memory/registry.h"
#include "tenon/memory/unified/vulkan_allocator.h"
#include "tenon/nn/layers.h"
#include "tenon/nn/models.h"
#include "tenon/nn/optimizer.h"
#include "tenon/ops/loss.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/capture.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/print.h"
#include "tenon/tensor/random.h"

namespace tenon::nn {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using testing::kVulkan;
constexpr int kCapturedSteps = 12;

class VulkanCapture : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { testing::choose_process_device(); }
  void SetUp() override {
    if (!vulkan_backend(0).abilities().integers) GTEST_SKIP() << "the host computes i64 here";
  }
  void TearDown() override { EXPECT_EQ(VulkanDriver::standard()->validation_messages(), 0u); }
};

// A classifier with dropout, its optimiser and the tensors of a batch.
struct CapturedTraining {
  explicit CapturedTraining(bool with_adam, bool with_dropout = true) {
    model->add(make_mlp({12, 12, 10}, generator));
    if (with_dropout) model->add(std::make_shared<Dropout>(0.25, generator));
    model->to(kVulkan);
    const auto parameters = model->named_parameters();
    if (with_adam)
      optimizer = std::make_unique<Adam>(parameters, AdamOptions{.learning_rate = 3e-3});
    else
      optimizer = std::make_unique<Sgd>(parameters, SgdOptions{.momentum = 0.9});
    for (std::int64_t i = 0; i < 16; ++i) next_classes.data_ptr<std::int64_t>()[i] = i * i % 10;
  }
  void next_batch() {
    copy_(images, randn({16, 1, 12, 12}, DType::kF32, data));
    copy_(classes, next_classes);
  }
  void step() {
    model->zero_grad();
    loss = ops::cross_entropy((*model)(images), classes);
    autograd::backward(loss);
    optimizer->step();
  }
  // Everything that training leaves: the bytes of tensors, then numbers.
  std::string results() const {
    std::string all;
    const auto add = [&](const Tensor& t) {
      all.append(static_cast<const char*>(t.const_data_ptr()), t.nbytes());
    };
    add(loss);
    for (const NamedTensor& each : model->named_parameters()) {
      add(each.tensor);
      add(each.tensor.grad());
    }
    for (const NamedTensor& each : optimizer->named_state()) add(each.tensor);
    return all + std::to_string(generator.offset()) + " " +
           std::to_string(optimizer->updates()[0]);
  }

  Generator generator{5}, data{6};
  std::shared_ptr<Sequential> model = std::make_shared<Sequential>();
  std::unique_ptr<Optimizer> optimizer;
  Tensor images = empty({16, 1, 12, 12}, DType::kF32, kVulkan);
  Tensor classes = empty({16}, DType::kI64, kVulkan);
  Tensor next_classes = empty({16}, DType::kI64);
  Tensor loss;
};

TEST_F(VulkanCapture, RunsGiveTheBitsOfTheStep) {
  for (const bool with_adam : {true, false}) {
    CapturedTraining plain(with_adam), captured(with_adam);
    std::unique_ptr<Capture> capture;
    for (int i = 0; i < kCapturedSteps; ++i) {
      if (i == kCapturedSteps / 2) {  // as a schedule does
        plain.optimizer->set_learning_rate(1e-3);
        captured.optimizer->set_learning_rate(1e-3);
      }
      plain.next_batch();
      plain.step();
      captured.next_batch();
      if (capture == nullptr)
        capture = std::make_unique<Capture>(kVulkan, [&] { captured.step(); });
      else
        capture->run();
      ASSERT_TRUE(captured.results() == plain.results()) << "step " << i;
    }
  }
}

// Backward draws the same numbers as forward did, and a seed may change between runs.
TEST_F(VulkanCapture, CheckpointsDrawEachRunsNumbersAgain) {
  const auto results_of = [](bool is_captured) {
    manual_seed(7);
    Generator of_weights{3};
    Sequential model;
    for (int i = 0; i < 4; ++i) {
      model.add(std::make_shared<Linear>(16, 16, true, of_weights));
      model.add(std::make_shared<Dropout>(0.4));
    }
    model.to(kVulkan);
    model.set_checkpoints(2);
    Sgd optimizer(model.named_parameters(), {});
    const Tensor x = to(ones({8, 16}, DType::kF32), kVulkan);
    const auto step = [&] {
      model.zero_grad();
      autograd::backward(ops::sum(model(x)));
      optimizer.step();
    };
    std::unique_ptr<Capture> capture;
    std::string all;
    for (int i = 0; i < 4; ++i) {
      if (i == 2) manual_seed(8);
      if (!is_captured)
        step();
      else if (capture == nullptr)
        capture = std::make_unique<Capture>(kVulkan, step);
      else
        capture->run();
      for (const NamedTensor& each : model.named_parameters())
        all.append(static_cast<const char*>(each.tensor.const_data_ptr()), each.tensor.nbytes());
      all += std::to_string(default_generator().offset());
    }
    return all;
  };
  EXPECT_TRUE(results_of(true) == results_of(false));
}

// Clipping by the norm on the device: with a capture, without, and by the host's numbers.
TEST_F(VulkanCapture, ClippingIsCapturedToTheBit) {
  for (const double limit : {1e-3, 1e3}) {
    // Without dropout the optimiser's numbers, the first that change, come after all else.
    CapturedTraining plain(true, false), captured(true, false), by_host(true, false);
    const auto step_of = [&](CapturedTraining& t) {
      t.model->zero_grad();
      t.loss = ops::cross_entropy((*t.model)(t.images), t.classes);
      autograd::backward(t.loss);
      const Tensor norm = device_gradient_norm(t.optimizer->parameters());
      t.optimizer->step(device_clip_factor(norm, limit));
      return norm;
    };
    std::unique_ptr<Capture> capture;
    Tensor captured_norm;
    for (int i = 0; i < 4; ++i) {
      for (CapturedTraining* t : {&plain, &captured, &by_host}) t->next_batch();
      const double norm = step_of(plain).item<double>();
      if (capture == nullptr)
        capture = std::make_unique<Capture>(kVulkan, [&] { captured_norm = step_of(captured); });
      else
        capture->run();
      ASSERT_TRUE(captured.results() == plain.results()) << "step " << i;
      EXPECT_EQ(captured_norm.item<double>(), norm);
      by_host.model->zero_grad();
      by_host.loss = ops::cross_entropy((*by_host.model)(by_host.images), by_host.classes);
      autograd::backward(by_host.loss);
      const double host_norm = gradient_norm(by_host.optimizer->parameters());
      EXPECT_NEAR(host_norm, norm, 1e-5 * norm);
      by_host.optimizer->step(clip_factor(host_norm, limit));
      EXPECT_NEAR(by_host.loss.item<float>(), plain.loss.item<float>(), 1e-5);
    }
  }
}

TEST_F(VulkanCapture, ANormThatIsNoFiniteNumberChangesNothing) {
  CapturedTraining training(true);
  training.next_batch();
  training.step();
  const auto weights = [&] {
    std::string all;
    for (const NamedTensor& each : training.optimizer->parameters())
      all.append(static_cast<const char*>(each.tensor.const_data_ptr()), each.tensor.nbytes());
    for (const NamedTensor& each : training.optimizer->named_state())
      all.append(static_cast<const char*>(each.tensor.const_data_ptr()), each.tensor.nbytes());
    return all;
  };
  const std::string before = weights();
  for (const double bad : {NAN, INFINITY, -INFINITY}) {
    const Tensor& gradient = training.optimizer->parameters()[0].tensor.grad();
    fill_(gradient.reshape({-1}).narrow(0, 0, 1), bad);
    const Tensor norm = device_gradient_norm(training.optimizer->parameters());
    training.optimizer->step(device_clip_factor(norm, 5));
    EXPECT_TRUE(weights() == before) << bad;
  }
}

TEST_F(VulkanCapture, RunsMakeNeitherMemoryNorPipelinesAndFewSubmissions) {
  CapturedTraining training(true);
  training.next_batch();
  Capture capture(kVulkan, [&] { training.step(); });
  VulkanBackend& backend = vulkan_backend(0);
  backend.synchronize();
  const DeviceAllocator& allocator = vulkan_allocator(0);
  const auto made = allocator.stats().allocation[0].allocated;
  const std::uint64_t segments = backend.ledger().count(DriverCall::kAllocate);
  const std::uint64_t reserved = capture.reserved_bytes();
  const std::uint64_t pipelines = backend.pipelines();
  const std::uint64_t submissions = backend.submissions();
  for (int i = 0; i < kCapturedSteps; ++i) capture.run();  // without a wait between them
  backend.synchronize();
  EXPECT_LE(backend.submissions() - submissions, 2u * kCapturedSteps) << "the step, its numbers";
  EXPECT_EQ(backend.pipelines(), pipelines);
  EXPECT_EQ(backend.ledger().count(DriverCall::kAllocate), segments);
  EXPECT_EQ(allocator.stats().allocation[0].allocated, made);
  EXPECT_EQ(capture.reserved_bytes(), reserved);
  // They are in order although none waited for the one before.
  CapturedTraining plain(true);
  plain.next_batch();
  for (int i = 0; i <= kCapturedSteps; ++i) plain.step();
  EXPECT_TRUE(training.results() == plain.results());
}

TEST_F(VulkanCapture, VersionsTellWhatARunWrites) {
  const Tensor weight = to(ones({3}, DType::kF32), kVulkan);
  Capture capture(kVulkan, [&] { ops::mul_(weight, 2.0); });
  const Tensor x = to(ones({3}, DType::kF32), kVulkan).set_requires_grad(true);
  const Tensor product = ops::sum(ops::mul(x, weight));
  capture.run();
  EXPECT_EQ(weight.select(0, 2).item<float>(), 4.0f);
  EXPECT_THROW(autograd::backward(product), InvalidArgument) << "it saved other values";
}

TEST_F(VulkanCapture, MemoryOfTheCaptureServesNothingElse) {
  const Tensor x = to(arange(1000, DType::kF32), kVulkan);
  Tensor result;
  auto capture = std::make_unique<Capture>(kVulkan, [&] {
    result = ops::add(ops::mul(x, 3.0), 1.0);  // the product is freed
  });
  std::vector<Tensor> others;
  for (int i = 0; i < 20; ++i) others.push_back(full({1000}, 7, DType::kF32, kVulkan));
  fill_(x, 2);
  capture->run();
  EXPECT_EQ(result.select(0, 999).item<float>(), 7.0f);
  for (const Tensor& other : others) EXPECT_EQ(other.select(0, 500).item<float>(), 7.0f);
  // What the step left outlives the capture.
  fill_(result, 5);
  capture.reset();
  const Capture next(kVulkan, [&] { ops::add_(x, 1.0); });
  EXPECT_EQ(result.select(0, 0).item<float>(), 5.0f);
  EXPECT_EQ(x.select(0, 0).item<float>(), 3.0f);
}

template <typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

template <typename Step>
Plan rehearse(const Step& step) {
  Plan plan;
  Capture::rehearse(kVulkan, [&](DeviceAllocator& addresses) {
    StepMeter meter(addresses);
    meter.record(true);
    const AllocatorGuard guard(kVulkan, meter);
    step();
    plan = make_plan(meter.events(), 64);
  });
  return plan;
}

// What a step of the training requests, from a rehearsal, which changes nothing on the device.
Plan plan_of(CapturedTraining& training) {
  const std::uint64_t drawn = training.generator.offset();
  const std::vector<std::uint64_t> updates = training.optimizer->updates();
  Plan plan = rehearse([&] {
    training.step();
    training.model->zero_grad();
    training.loss = Tensor();
  });
  training.generator.set_offset(drawn);
  training.optimizer->set_updates(updates);
  return plan;
}

// With the plan of another step, too: what differs from it comes from elsewhere.
TEST_F(VulkanCapture, APlanGivesTheBitsOfTheStepInItsOwnBytes) {
  CapturedTraining plain(true), rehearsed(true), other(true), smaller(true, false);
  for (CapturedTraining* each : {&plain, &rehearsed, &other}) each->next_batch();
  const std::uint64_t reserved = vulkan_allocator(0).reserved_bytes();
  const Plan plan = plan_of(rehearsed), of_smaller = plan_of(smaller);
  EXPECT_EQ(vulkan_allocator(0).reserved_bytes(), reserved);
  Capture planned(kVulkan, [&] { rehearsed.step(); }, &plan);
  Capture diverging(kVulkan, [&] { other.step(); }, &of_smaller);
  EXPECT_EQ(planned.reserved_bytes(), plan.total_bytes());
  EXPECT_GT(diverging.reserved_bytes(), of_smaller.total_bytes());
  for (CapturedTraining* each : {&plain, &rehearsed, &other}) each->next_batch();
  for (Capture* each : {&planned, &diverging}) each->run();
  CapturedTraining again(true);
  for (int i = 0; i < 2; ++i) {
    again.next_batch();
    again.step();
  }
  EXPECT_TRUE(rehearsed.results() == again.results());
  EXPECT_TRUE(other.results() == again.results());
}

TEST_F(VulkanCapture, APlanServesWhicheverStreamTheStepIsOn) {
  const StreamGuard guard(vulkan_backend(0).create_stream());
  const Tensor x = to(ones({1000}, DType::kF32), kVulkan);
  const auto step = [&] { ops::add_(x, ops::mul(x, 2.0)); };
  const Plan plan = rehearse(step);
  Capture capture(kVulkan, step, &plan);
  EXPECT_EQ(capture.reserved_bytes(), plan.total_bytes());
  EXPECT_EQ(x.select(0, 999).item<float>(), 3.0f);
}

TEST_F(VulkanCapture, ATensorThatARehearsalLeavesIsTold) {
  const Tensor x = to(ones({1024}, DType::kF32), kVulkan);
  Tensor left;
  EXPECT_EQ(message_of([&] {
              Capture::rehearse(kVulkan, [&](DeviceAllocator&) { left = ops::add(x, 1.0); });
            }),
            "Capture: a rehearsal leaves tensors of 4096 bytes, which have no memory; let them go "
            "before it ends");
  const auto no_memory = HasSubstr("there is no memory, only addresses for a rehearsal");
  EXPECT_THAT(message_of([&] { ops::add(left, 1.0); }), no_memory);
  EXPECT_THAT(message_of([&] { left.select(0, 0).item<float>(); }), no_memory);
  EXPECT_THAT(message_of([&] { left.data_ptr<float>(); }), no_memory);
}

// Its memory would move to that of the step, each run would copy it there again, and after a
// rehearsal it would have none.
TEST_F(VulkanCapture, TensorsThatShareMemoryWithALazyCloneKeepTheirs) {
  const Tensor x = to(ones({1000}, DType::kF32), kVulkan), shared = lazy_clone(x);
  const char* const told = "Capture: the step writes a tensor of 4000 bytes that a lazy_clone() "
                           "shares, which gives it other memory; use clone()";
  for (const Tensor* each : {&x, &shared}) {
    EXPECT_EQ(message_of([&] { Capture(kVulkan, [&] { ops::add_(*each, 1.0); }); }), told);
    EXPECT_EQ(message_of([&] { rehearse([&] { ops::add_(*each, 1.0); }); }), told);
  }
  Tensor result;
  const auto of_its_own = [&] {  // both lie in the step's memory
    const Tensor sum = ops::add(x, 1.0), other = lazy_clone(sum);
    ops::add_(other, 1.0);
    result = ops::add(sum, other);
  };
  rehearse([&] {
    of_its_own();
    result = Tensor();
  });
  Capture capture(kVulkan, of_its_own);
  capture.run();
  EXPECT_EQ(result.select(0, 999).item<float>(), 5.0f);
  EXPECT_EQ(x.select(0, 999).item<float>(), 1.0f);
  EXPECT_EQ(shared.select(0, 999).item<float>(), 1.0f);
}

TEST_F(VulkanCapture, ARehearsalsAddressesHaveNoMemory) {
  VulkanBackend& backend = vulkan_backend(0);
  const Tensor x = to(ones({1000}, DType::kF32), kVulkan);
  Capture::rehearse(kVulkan, [&](DeviceAllocator& addresses) {
    const Stream stream = current_stream(kVulkan);
    const DataPtr block = addresses.allocate(4000);
    ops::add_(x, full({1000}, 1, DType::kF32, kVulkan));
    backend.fill(block.get(), 1, 4000, stream);
    backend.copy(block.get(), x.storage().impl()->data_in_stream(), 4000, stream);
    char here[4] = {};
    EXPECT_THAT(message_of([&] { backend.copy(here, block.get(), 4, stream); }),
                HasSubstr("a capture records no copy to or from the host"));
    const Stream other = backend.create_stream();
    EXPECT_THAT(message_of([&] { backend.fill(block.get(), 1, 4, other); }),
                HasSubstr("there is no memory, only addresses for a rehearsal"));
    EXPECT_THAT(message_of([&] { backend.copy(here, block.get(), 4, other); }),
                HasSubstr("there is no memory, only addresses for a rehearsal"));
  });
  EXPECT_EQ(x.select(0, 999).item<float>(), 1.0f) << "nothing ran";
  EXPECT_EQ(message_of([&] {
              Capture::rehearse(kVulkan, [&](DeviceAllocator&) { x.select(0, 0).item<float>(); });
            }),
            "Capture: the step needs the host for a tensor's values, which later runs would not "
            "repeat; do it outside the step");
  EXPECT_EQ(x.select(0, 0).item<float>(), 1.0f);
}

TEST_F(VulkanCapture, LargeStepsAreCutIntoSubmissions) {
  const Tensor x = to(ones({64}, DType::kF32), kVulkan);
  Capture capture(kVulkan, [&] {
    for (int i = 0; i < 300; ++i) ops::add_(x, 1.0);
  });
  const std::uint64_t before = vulkan_backend(0).submissions();
  capture.run();
  EXPECT_EQ(vulkan_backend(0).submissions() - before, 3u);
  EXPECT_EQ(x.select(0, 0).item<float>(), 601.0f);
}

TEST_F(VulkanCapture, MisuseIsToldAndTheDeviceWorksOn) {
  const Tensor x = to(ones({4}, DType::kF32), kVulkan);
  const auto capture = [](const std::function<void()>& step) {
    return message_of([&] { Capture(kVulkan, step); });
  };
  const char* const values = "Capture: the step needs the host for a tensor's values, which later "
                             "runs would not repeat; do it outside the step";
  EXPECT_EQ(capture([&] { ops::add_(x, ops::sum(x).item<float>()); }), values);
  EXPECT_EQ(capture([&] { static_cast<void>(to_string(x)); }), values);
  EXPECT_EQ(capture([&] { copy_(x, zeros({4}, DType::kF32)); }), values);
  EXPECT_EQ(capture([&] { static_cast<void>(to(x, Device{})); }), values);
  EXPECT_THAT(capture([&] { ops::add(x, to(ones({4}, DType::kC64), kVulkan)); }),
              HasSubstr("Capture: the step needs the host"));
  EXPECT_THAT(capture([&] { vulkan_backend(0).synchronize(Stream{kVulkan, 0}); }),
              HasSubstr("synchronize(vulkan:0 stream 0): a capture records the stream"));
  EXPECT_THAT(capture([&] { vulkan_backend(0).record(Stream{kVulkan, 0}); }),
              HasSubstr("a capture records the stream"));
  EXPECT_EQ(capture([&] { Capture(kVulkan, [] {}); }),
            "Capture: a step that is captured cannot capture another one");
  EXPECT_EQ(message_of([] { Capture(Device{}, [] {}); }),
            "Capture: it records the work of a Vulkan device, not of cpu:0");
  EXPECT_EQ(capture([] { throw InvalidArgument("the program's own"); }), "the program's own");
  EXPECT_EQ(ops::add(x, x).select(0, 3).item<float>(), 2.0f) << "no step ran";
}

TEST_F(VulkanCapture, ATensorThatIsGoneOrMovedIsTold) {
  Tensor x = to(ones({4}, DType::kF32), kVulkan);
  const Tensor y = to(ones({4}, DType::kF32), kVulkan);
  Capture capture(kVulkan, [&] { ops::add_(y, x); });
  EXPECT_THAT(message_of([&] { copy_(x, zeros({5}, DType::kF32)); }),
              HasSubstr("do not broadcast"))
      << "another shape";
  x = Tensor();
  EXPECT_EQ(message_of([&] { capture.run(); }),
            "Capture: a tensor of 16 bytes that the step uses was freed since; keep it, or capture "
            "the step again");
  Capture other(kVulkan, [&] { ops::mul_(y, y); });
  static_cast<void>(y.storage().impl()->set_data_ptr(vulkan_allocator(0).allocate(16)));
  EXPECT_THAT(message_of([&] { other.run(); }), HasSubstr("has other memory now"));
}

TEST_F(VulkanCapture, OtherThreadsUseOtherStreamsMeanwhile) {
  const Tensor x = to(ones({4}, DType::kF32), kVulkan);
  const Tensor y = to(ones({4}, DType::kF32), kVulkan);
  Capture capture(kVulkan, [&] {
    ops::add_(x, 1.0);
    std::thread([&] {
      const Stream stream = vulkan_backend(0).create_stream();
      const StreamGuard guard(stream);
      EXPECT_EQ(ops::add(y, y).select(0, 0).item<float>(), 2.0f);
    }).join();
    ops::add_(x, 1.0);
  });
  capture.run();
  EXPECT_EQ(x.select(0, 0).item<float>(), 5.0f);
}

}  // namespace
}  // namespace tenon::nn
