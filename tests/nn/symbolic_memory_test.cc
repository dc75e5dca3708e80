// The memory of a training step as a formula in its batch size, without running it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "tenon/autograd/autograd.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/nn/models.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/meta_memory.h"

namespace tenon::nn {
namespace {

constexpr Device kMeta{DeviceType::kMeta, 0};
constexpr std::int64_t kHint = 37;  // no other size of the programs

using ::testing::Contains;
using ::testing::MatchesRegex;

// Forward and backward of a batch of inputs.
using Step = std::function<void(const Tensor& input)>;

struct Bytes {
  std::int64_t allocated, live, peak;
};

Bytes real_bytes(const Step& step, std::vector<std::int64_t> sizes, std::int64_t batch) {
  sizes[0] = batch;
  const MetaMemory memory;
  const Tensor input = empty(IntList(sizes), DType::kF32, kMeta);
  step(input);
  return {memory.allocated().hint(), memory.live().hint(), memory.peak({})};
}

// Holds the formula against runs at other sizes, byte for byte.
void expect_formula(const Step& step, std::vector<std::int64_t> sizes,
                    const std::set<std::string>& guarded, std::int64_t smallest) {
  std::vector<SymInt> symbolic(sizes.begin(), sizes.end());
  symbolic[0] = SymInt::symbol("batch", kHint);
  const SymGuards guards;
  const MetaMemory memory;
  const Tensor input = empty_symbolic(symbolic);
  step(input);
  const std::vector<std::string> texts = guards.to_strings();
  for (const std::string& text : guarded) EXPECT_THAT(texts, Contains(text));
  for (const std::int64_t batch : {smallest, smallest + 1, kHint, kHint + 1, 4097L}) {
    EXPECT_TRUE(guards.hold({{"batch", batch}})) << ::testing::PrintToString(texts);
    const std::map<std::string, std::int64_t> at = {{"batch", batch}};
    const Bytes formula{memory.allocated().evaluate(at), memory.live().evaluate(at),
                        memory.peak(at)};
    const Bytes real = real_bytes(step, sizes, batch);
    EXPECT_EQ(formula.allocated, real.allocated) << batch;
    EXPECT_EQ(formula.live, real.live) << batch;
    EXPECT_EQ(formula.peak, real.peak) << batch;
  }
  EXPECT_EQ(guards.hold({{"batch", smallest - 1}}), smallest == 1) << "guarded, not forgotten";
  EXPECT_THAT(to_string(memory.allocated()), MatchesRegex("batch \\* [0-9]+ \\+ [0-9]+"));
}

Tensor classes_of(const Tensor& input) {
  const SymInt sizes[] = {input.sym_sizes()[0]};
  return empty_symbolic(sizes, DType::kI64);
}

Step classify(Module& model) {
  model.to(kMeta);
  return [&model](const Tensor& input) {
    autograd::backward(ops::cross_entropy(model(input), classes_of(input)));
    model.zero_grad();
  };
}

// relu keeps bits of 1024 elements or more, and its result of fewer: a guard says so.
TEST(SymbolicMemory, OfAPerceptronIsAFormulaInItsBatch) {
  const auto model = make_mlp({28, 28, 10});
  expect_formula(classify(*model), {0, 1, 28, 28}, {"batch * 256 < 1024 is false"}, 4);
}

TEST(SymbolicMemory, OfAConvolutionalNetworkIsAFormulaInItsBatch) {
  const auto model = make_cnn({28, 28, 10});
  expect_formula(classify(*model), {0, 1, 28, 28}, {"batch * 128 < 1024 is false"}, 8);
}

// What a norm made is made again from 4096 elements on.
TEST(SymbolicMemory, OfATransformerBlockIsAFormulaInItsBatch) {
  AttentionOptions options;
  options.width = 64;
  options.heads = 4;
  TransformerBlock block(options);
  block.to(kMeta);
  const Step step = [&](const Tensor& input) {
    autograd::backward(ops::mean(ops::square(block(input))));
    block.zero_grad();
  };
  expect_formula(step, {0, 16, 64}, {"batch * 1024 < 4096 is false"}, 4);
}

// The most bytes of a backward over `f` of 128 rows of 512 elements.
std::int64_t peak_on_meta(const std::function<Tensor(const Tensor&)>& f) {
  const Tensor input = empty({128, 512}, DType::kF32, kMeta).set_requires_grad(true);
  const MetaMemory memory;
  autograd::backward(ops::mean(f(input)));
  return memory.peak({});
}
std::int64_t peak_on_the_host(const std::function<Tensor(const Tensor&)>& f) {
  const Tensor input = full({128, 512}, 0.5).set_requires_grad(true);
  autograd::backward(ops::mean(f(input)));  // what is made once is made
  autograd::clear_grad(input);
  StatisticsAdaptor<Allocator> counted(*get_default_cpu_allocator());
  {
    const AllocatorGuard guard(Device{}, counted);
    autograd::backward(ops::mean(f(input)));
  }
  const auto peak = static_cast<std::int64_t>(counted.passed().bytes.peak);
  autograd::clear_grad(input);
  return peak;
}

TEST(SymbolicMemory, BackwardOnMetaNeedsWhatItNeedsOnTheHost) {
  const std::map<std::string, std::function<Tensor(const Tensor&)>> functions = {
      {"softmax", [](const Tensor& x) { return ops::softmax(x, -1); }},
      {"linear", [](const Tensor& x) { return ops::linear(x, x); }},
      {"matmul of every other column",
       [](const Tensor& x) {
         const Tensor half = x.slice(1, 0, 512, 2);
         return ops::matmul(half, half.t());
       }},
      {"gelu", [](const Tensor& x) { return ops::gelu(x, true); }},
      {"layer_norm", [](const Tensor& x) { return ops::layer_norm(x, {512}); }},
      {"rms_norm", [](const Tensor& x) { return ops::rms_norm(x, {512}); }},
      {"batch_norm", [](const Tensor& x) { return ops::batch_norm(x, {}, {}, {}, {}, true); }}};
  for (const auto& [name, f] : functions)
    EXPECT_NEAR(peak_on_meta(f), peak_on_the_host(f), 8192) << name;  // of 589,000 or more
}

}  // namespace
}  // namespace tenon::nn
