// Results made again in backward: no bit, no error and no use of the graph changes by it.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::autograd {
namespace {

constexpr std::int64_t kSide = 72;  // 72 x 72 elements are enough for a recipe

bool same_bits(const Tensor& a_, const Tensor& b_) {
  const Tensor a = contiguous(a_.detach()), b = contiguous(b_.detach());
  return a.nbytes() == b.nbytes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// A random program of element-wise operators, norms, views, joins, changes in place and products
// (which keep their inputs), over values of kSide x kSide; the same for the same seed.
class Program {
 public:
  explicit Program(std::uint64_t seed) : generator_(seed) {
    for (int i = 0; i < 2; ++i) leaves.push_back(random({kSide, kSide}).set_requires_grad(true));
    for (int i = 0; i < 2; ++i) leaves.push_back(random({kSide}).set_requires_grad(true));
    values_ = {ops::matmul(leaves[0], leaves[1]), ops::add(leaves[0], leaves[1])};
  }
  Tensor run() {
    for (int step = 0; step < 14; ++step) values_.push_back(next());
    Tensor sum = ops::sum(ops::square(values_.back()));
    for (int i = 0; i < 2; ++i) sum = ops::add(sum, ops::mean(any()));
    return sum;
  }
  std::vector<Tensor> leaves;

 private:
  Tensor random(const DimVector& sizes) { return randn(sizes, DType::kF32, generator_); }
  std::int64_t pick(std::int64_t count) {
    return randint(0, count, {1}, DType::kI64, generator_).item<std::int64_t>();
  }
  Tensor any() {
    const auto count = static_cast<std::int64_t>(values_.size());
    return values_[static_cast<std::size_t>(std::max<std::int64_t>(0, count - 1 - pick(4)))];
  }
  Tensor next() {
    const Tensor a = any();
    switch (pick(17)) {
      case 0: return ops::relu(a);
      case 1: return ops::gelu(a, true);
      case 2: return ops::layer_norm(a, {kSide}, leaves[2], leaves[3]);
      case 3: return ops::batch_norm(a, {}, {}, leaves[2], leaves[3], true);
      case 4: return ops::add(a, any());
      case 5: return ops::mul(ops::tanh(a), any());
      case 6: return ops::matmul(a, leaves[1]);
      case 7: return ops::linear(a.reshape({-1}).view({kSide, kSide}), leaves[0], leaves[2]);
      case 8: return ops::mul(a, 0.5);
      case 9: return ops::leaky_relu(ops::sub(a, leaves[3]), 0.1);
      case 10: return ops::relu_(clone(a));
      case 11: return ops::add_(fresh(a), any());
      case 12: {
        const Tensor both[] = {a, any()};
        return ops::cat(both, 0).narrow(0, pick(kSide), kSide);
      }
      case 13: return ops::silu(a.t());
      case 14: return ops::hardtanh(a, -1, 1);
      case 15: return ops::rms_norm(ops::add(fresh(a), any()), {kSide}, leaves[3]);
      default: return ops::relu_(fresh(a));
    }
  }
  // A result that only the caller holds, so that a change of it reaches no saved value.
  Tensor fresh(const Tensor& a) {
    return pick(2) == 0 ? ops::batch_norm(a, {}, {}, leaves[2], {}, true) : ops::add(a, 1);
  }

  Generator generator_;
  std::vector<Tensor> values_;
};

std::vector<Tensor> gradients_of(std::uint64_t seed, bool again, bool twice) {
  const RecomputeCheap guard(again);
  Program program(seed);
  const Tensor outputs[] = {program.run()};
  std::vector<Tensor> all =
      grad(outputs, program.leaves, {}, {.create_graph = twice, .allow_unused = true});
  if (!twice) return all;
  Tensor sum = ops::sum(ops::square(program.leaves[0]));
  for (const Tensor& t : all)
    if (t.defined()) sum = ops::add(sum, ops::sum(ops::square(t)));
  const Tensor norms[] = {sum};
  for (const Tensor& t : grad(norms, program.leaves, {}, {.allow_unused = true})) all.push_back(t);
  return all;
}

TEST(Recompute, ChangesNoBitOfRandomPrograms) {
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    for (const bool twice : {false, seed % 4 == 0}) {
      const auto again = gradients_of(seed, true, twice), kept = gradients_of(seed, false, twice);
      for (std::size_t i = 0; i < kept.size(); ++i) {
        ASSERT_EQ(again[i].defined(), kept[i].defined()) << seed;
        if (!kept[i].defined()) continue;
        if (twice)  // sums of gradients may come in another order
          EXPECT_LT(ops::amax(ops::abs(ops::sub(again[i], kept[i]))).item<double>(),
                    1e-4 * (1 + ops::amax(ops::abs(kept[i])).item<double>())) << seed << " " << i;
        else
          EXPECT_TRUE(same_bits(again[i], kept[i])) << seed << " " << i;
      }
    }
}

// Most bytes of tensors at once while `body` runs.
template <typename Body>
std::size_t peak_of(Body&& body) {
  StatisticsAdaptor<Allocator> counted(*get_default_cpu_allocator());
  const AllocatorGuard guard(Device{}, counted);
  body();
  return static_cast<std::size_t>(counted.passed().bytes.peak);
}

TEST(Recompute, ABlockOfAResidualNetworkKeepsWhatItsConvolutionsMade) {
  Generator generator(1);
  const Tensor x = randn({4, 8, 32, 32}, DType::kF32, generator);
  std::vector<Tensor> w;
  for (int i = 0; i < 7; ++i)
    w.push_back(randn({8, 8, 3, 3}, DType::kF32, generator).set_requires_grad(true));
  const auto norm = [](const Tensor& t) { return ops::batch_norm(t, {}, {}, {}, {}, true); };
  const auto step = [&] {
    Tensor h = ops::conv2d(x, w[6], {}, {.padding = 1});
    for (std::size_t i = 0; i < 6; i += 2) {
      const Tensor inner = ops::relu_(norm(ops::conv2d(h, w[i], {}, {.padding = 1})));
      h = ops::relu_(ops::add(norm(ops::conv2d(inner, w[i + 1], {}, {.padding = 1})), h));
    }
    backward(ops::mean(h));
    for (const Tensor& t : w) clear_grad(t);
  };
  step();
  std::size_t peaks[2];
  for (const bool again : {false, true}) {
    const RecomputeCheap guard(again);
    peaks[again] = peak_of(step);
  }
  EXPECT_LT(peaks[1], peaks[0] * 17 / 20);
}

TEST(Recompute, AHeadsGradientOutlivesTheBackwardOfItsTrunk) {
  const Tensor x = randn({kSide, kSide}).set_requires_grad(true);
  const Tensor w = randn({kSide, kSide}).set_requires_grad(true);
  const auto gradient = [&](bool again) {
    const RecomputeCheap guard(again);
    const Tensor h = ops::gelu(ops::mul(x, 2));
    const Tensor first = ops::sum(h), second[] = {ops::sum(ops::linear(h, w))};
    backward(first);
    const Tensor weights[] = {w};
    return grad(second, weights)[0];
  };
  EXPECT_TRUE(same_bits(gradient(true), gradient(false)));
}

TEST(Recompute, AChangeInPlaceIsRefusedAsWhereAllIsKept) {
  for (const bool again : {false, true}) {
    const RecomputeCheap guard(again);
    const Tensor x = randn({kSide, kSide}).set_requires_grad(true);
    const Tensor w = randn({kSide, kSide}).set_requires_grad(true);
    const Tensor h = ops::gelu(x);
    const Tensor out = ops::sum(ops::linear(h, w));
    ops::mul_(h, 2);
    EXPECT_THROW(backward(out), InvalidArgument) << again;
  }
}

TEST(Recompute, ThreadsPassOneGraph) {
  const Tensor x = randn({kSide, kSide}).set_requires_grad(true);
  const Tensor w = randn({kSide, kSide}).set_requires_grad(true);
  const Tensor h = ops::relu_(ops::batch_norm(ops::matmul(x, w), {}, {}, {}, {}, true));
  const Tensor outputs[] = {ops::sum(ops::square(ops::linear(ops::gelu(h), w)))};
  const Tensor inputs[] = {x, w};
  const GradOptions retained{.retain_graph = true};
  const std::vector<Tensor> wanted = grad(outputs, inputs, {}, retained);
  std::vector<Tensor> found[4];
  std::vector<std::thread> threads;
  for (std::vector<Tensor>& mine : found)
    threads.emplace_back([&] { mine = grad(outputs, inputs, {}, retained); });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<Tensor>& each : found)
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(each[i], wanted[i])) << i;
}

TEST(Recompute, KeepsWhatHadOtherDataPutIn) {
  const Tensor x = randn({kSide, kSide}).set_requires_grad(true);
  const Tensor w = randn({kSide, kSide}).set_requires_grad(true);
  Tensor h = ops::gelu(x);
  h.set_data(ones({kSide, kSide}));
  backward(ops::sum(ops::linear(h, w)));
  EXPECT_EQ(ops::amax(w.grad()).item<float>(), static_cast<float>(kSide));
}

// What was written into a tensor of another dtype is not what the operator alone would make.
TEST(Recompute, KeepsWhatWentIntoAnotherDtype) {
  const Tensor x = randn({kSide, kSide}, DType::kF32).set_requires_grad(true);
  const Tensor w = randn({kSide, kSide}, DType::kF64).set_requires_grad(true);
  const Tensor h = zeros({kSide, kSide}, DType::kF64);
  ops::gelu_none_out(h, x);
  backward(ops::sum(ops::matmul(h, w)));
  EXPECT_TRUE(same_bits(w.grad(), ops::matmul(h.detach().t(), ones({kSide, kSide}, DType::kF64))));
}

TEST(Recompute, HooksGetWhatIsSaved) {
  int packed = 0;
  const SavedTensorHooks hooks(
      [&](const Tensor& t) {
        ++packed;
        return std::make_shared<Tensor>(t);
      },
      [](const SavedTensorHooks::Packed& t) { return *std::static_pointer_cast<Tensor>(t); });
  const Tensor x = randn({kSide, kSide}).set_requires_grad(true);
  const Tensor w = randn({kSide, kSide}).set_requires_grad(true);
  backward(ops::sum(ops::linear(ops::gelu(ops::add(x, 2)), w)));
  EXPECT_EQ(packed, 2) << "gelu's input, and linear's";
}

}  // namespace
}  // namespace tenon::autograd
