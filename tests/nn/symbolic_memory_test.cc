// The memory of a training step as a formula in its batch size, without running it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tenon/autograd/autograd.h"
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
  friend bool operator==(const Bytes&, const Bytes&) = default;
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
  expect_formula(step, {0, 16, 64}, {}, 1);
}

}  // namespace
}  // namespace tenon::nn
