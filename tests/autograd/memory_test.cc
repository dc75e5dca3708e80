// What gradients keep in memory: checkpoints, offload, pools, hooks on what is saved; forward mode.
#include <gtest/gtest.h>

#include <cstdlib>

#include "autograd/leaves.h"
#include "tenon/autograd/autograd.h"
#include "tenon/autograd/forward_mode.h"
#include "tenon/autograd/gradcheck.h"
#include "tenon/autograd/variable.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/memory/registry.h"
#include "tenon/ops/into.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/random.h"

namespace tenon::autograd {
namespace {

using testing::leaf;
using testing::values;

// Bytes from the C library, counted.
class CountingAllocator final : public Allocator {
 public:
  DataPtr allocate(std::size_t size_bytes) override {
    if (size_bytes == 0) return DataPtr(Device{});
    current += size_bytes;
    peak = std::max(peak, current);
    auto* block = new Block{this, size_bytes, std::aligned_alloc(64, (size_bytes + 63) / 64 * 64)};
    return DataPtr(block->data, block, &give_back, Device{});
  }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    default_copy_data(dest, src, size_bytes);
  }
  std::size_t current = 0, peak = 0;

 private:
  struct Block {
    CountingAllocator* owner;
    std::size_t size_bytes;
    void* data;
  };
  static void give_back(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    block->owner->current -= block->size_bytes;
    std::free(block->data);
  }
};

using Values = std::vector<double>;

// A saved constant whose memory asks, when it is freed, whether the node's lock is free.
struct LockProbe {
  SpinLock* lock = nullptr;
  bool was_free = false;
  double data[2] = {2, 3};

  Tensor tensor() {
    return from_blob(DataPtr(data, this, &look, Device{}), sizeof data, {1, 2}, {2, 1},
                     DType::kF64);
  }
  static void look(void* context) {
    auto* probe = static_cast<LockProbe*>(context);
    probe->was_free = probe->lock->try_lock();
    if (probe->was_free) probe->lock->unlock();
  }
};

TEST(SavedTensors, AreFreedWithoutTheNodesLock) {
  LockProbe probe;
  const Tensor x = leaf({1, 2}, 3);
  const Tensor y = ops::mul(x, probe.tensor());
  probe.lock = &grad_fn(y)->lock();
  backward(ops::sum(y));
  EXPECT_TRUE(probe.was_free);
}

TEST(SavedTensors, AreFreedEarlyWithoutTheNodesLock) {
  LockProbe probe;
  const Tensor w = leaf({2, 1}, 3);
  const Tensor y = ops::matmul(probe.tensor(), w);
  probe.lock = &grad_fn(y)->lock();
  backward(ops::sum(y));
  EXPECT_TRUE(probe.was_free);
}

Tensor blocks(const Tensor& x, const Tensor& w, int count) {
  Tensor y = x;
  for (int i = 0; i < count; ++i) y = ops::tanh(ops::matmul(y, w));
  return y;
}

TEST(CheckpointTest, GradientsAreTheSame) {
  const Tensor x = randn({4, 3}, DType::kF64).set_requires_grad(true);
  const Tensor w = randn({3, 3}, DType::kF64).set_requires_grad(true);
  backward(ops::sum(blocks(ops::sin(x), w, 3)));
  const Values of_x = values(x.grad()), of_w = values(w.grad());
  clear_grad(x);
  clear_grad(w);
  int runs = 0;
  const Tensor middle = ops::sin(x);
  const Tensor inputs[] = {middle};
  const Tensor y = checkpoint(
      [&](std::span<const Tensor> in) {
        ++runs;
        return blocks(in[0], w, 3);
      },
      inputs);
  EXPECT_EQ(runs, 1);
  backward(ops::sum(y));
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(values(x.grad()), of_x);
  EXPECT_EQ(values(w.grad()), of_w);
}

TEST(CheckpointTest, RandomNumbersAreDrawnAgain) {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor inputs[] = {x};
  manual_seed(3);
  const std::vector<Tensor> y = checkpoint(
      [](std::span<const Tensor> in) {
        const Tensor mask = bernoulli_(empty_like(in[0].detach()), 0.5);
        return std::vector<Tensor>{ops::exp(in[0]) * mask, mask};
      },
      inputs);
  const std::uint64_t drawn = default_generator().offset();
  backward(ops::sum(y[0]));
  EXPECT_EQ(default_generator().offset(), drawn);
  EXPECT_EQ(values(x.grad()), values(y[0]));
}

TEST(CheckpointTest, NestsAndCanBeDifferentiatedTwice) {
  const Tensor x = leaf({0.5, 0.25});
  const auto cube = [](std::span<const Tensor> in) { return in[0] * in[0] * in[0]; };
  const auto outer = [&](std::span<const Tensor> in) { return checkpoint(cube, in) * in[0]; };
  const Tensor inputs[] = {x};
  GradOptions create;
  create.create_graph = true;
  const Tensor first = grad({ops::sum(checkpoint(outer, inputs))}, {x}, {}, create)[0];
  EXPECT_EQ(values(first), (Values{4 * 0.125, 4 * 0.015625}));
  EXPECT_EQ(values(grad({ops::sum(first)}, {x})[0]), (Values{12 * 0.25, 12 * 0.0625}));
}

TEST(MemoryTest, ALeafGoesWithItsLastHandle) {
  CountingAllocator memory;
  {
    const AllocatorGuard guard(Device{}, memory);
    const Tensor w = randn({100}).set_requires_grad(true);
    const HookHandle hook = register_hook(w, [](const Tensor&) { return Tensor(); });
    backward(ops::sum(ops::square(w)));
    EXPECT_EQ(memory.current, 2 * w.nbytes()) << "the leaf and its grad";
    clear_grad(w);
    Tensor x = ops::mul(w, 2);
    const Tensor y = checkpoint(
        std::function<Tensor(std::span<const Tensor>)>(
            [](std::span<const Tensor> in) { return ops::tanh(ops::tanh(in[0])); }),
        {&x, 1});
    backward(ops::sum(y));
    x = Tensor();
    clear_grad(w);
    EXPECT_EQ(memory.current, w.nbytes() + y.nbytes());
  }
  EXPECT_EQ(memory.current, 0u);
}

TEST(MemoryTest, AHooksHandleKeepsNothing) {
  CountingAllocator memory;
  HookHandle handle;
  {
    const AllocatorGuard guard(Device{}, memory);
    const Tensor w = randn({100}).set_requires_grad(true);
    const Tensor h = ops::mul(w, w);
    handle = register_hook(h, [h](const Tensor&) { return Tensor(); });
    static_cast<void>(ops::exp(h));
    handle.remove();
    handle = register_hook(h, [](const Tensor&) { return Tensor(); });
  }
  EXPECT_EQ(memory.current, 0u);
  handle.remove();
}

// A node that saved a view, and a base that is written in place by what the node made.
TEST(MemoryTest, ASavedViewOfAChangedBaseHoldsNoGraph) {
  CountingAllocator counting;
  {
    const AllocatorGuard guard(Device{}, counting);
    const Tensor leaf_tensor = ones({2, 3}, DType::kF64).set_requires_grad(true);
    {
      const Tensor a = ops::mul(leaf_tensor, leaf_tensor);
      ops::mul_(a[0], a[1]);
    }
    {
      const Tensor a = ops::mul(leaf_tensor, leaf_tensor);
      const Tensor y = ops::mul(a[1], leaf_tensor[0]);
      copy_(a[0], y);
    }
    {
      const Tensor a = zeros({2, 3}, DType::kF64);  // needs no gradient before the change
      watch_views(a);
      const Tensor y = ops::mul(a[1], leaf_tensor[0]);
      copy_(a[0], y);
    }
  }
  EXPECT_EQ(counting.current, 0u);
}

// What it saved is at its place in the graph all the same.
TEST(MemoryTest, ASavedViewIsDifferentiatedTwice) {
  GradOptions create;
  create.create_graph = true;
  const Tensor x = leaf({2, 3});
  const Tensor a = ops::mul(x, x);
  const Tensor y = ops::mul(a.slice(0, 0, 1), a.slice(0, 1, 2));  // x0^2 x1^2
  const Tensor gx = grad({ops::sum(y)}, {x}, {}, create)[0];
  EXPECT_EQ(values(gx), (Values{2 * 2 * 9, 2 * 3 * 4}));
  EXPECT_EQ(values(grad({ops::sum(gx)}, {x})[0]), (Values{2 * 9 + 4 * 2 * 3, 2 * 4 + 4 * 2 * 3}));
}

TEST(SavedTensorTest, HooksSeeWhatIsSavedAndGiveItBack) {
  const Tensor x = leaf({1, 2});
  int packed = 0, unpacked = 0;
  Tensor y;
  {
    const SavedTensorHooks hooks(
        [&](const Tensor& t) {
          ++packed;
          return std::make_shared<Tensor>(clone(t));
        },
        [&](const SavedTensorHooks::Packed& p) {
          ++unpacked;
          return *std::static_pointer_cast<Tensor>(p);
        });
    y = ops::sum(ops::exp(x) * ops::exp(x));
  }
  EXPECT_EQ(packed, 4);  // two results of exp, and both once more as factors
  backward(y);
  EXPECT_EQ(unpacked, 4);
  EXPECT_NEAR(values(x.grad())[1], 2 * std::exp(4.0), 1e-9);
}

TEST(SavedTensorTest, OffloadMovesBytesThereAndBack) {
  CountingAllocator elsewhere;
  const Tensor x = randn({64}, DType::kF64).set_requires_grad(true);
  const Tensor inputs[] = {x};
  Tensor y = offload([](std::span<const Tensor> in) { return ops::sum(ops::exp(in[0])); }, inputs,
                     elsewhere);
  EXPECT_EQ(elsewhere.current, 64u * 8u);
  backward(y);
  EXPECT_EQ(values(x.grad()), values(ops::exp(x)));
  EXPECT_EQ(elsewhere.current, 0u);
}

TEST(SavedTensorTest, GoesAsBackwardPasses) {
  CountingAllocator memory;
  const AllocatorGuard guard(Device{}, memory);
  const Tensor x = randn({1000}, DType::kF64).set_requires_grad(true);
  Tensor y = x;
  for (int i = 0; i < 20; ++i) y = ops::tanh(y);
  y = ops::sum(y);
  const std::size_t before = memory.current;
  backward(y);
  // The whole graph is still there, what it saved is not; gradients were overwritten in place.
  EXPECT_LT(memory.current, before / 5);
  EXPECT_LE(memory.peak, before + 3 * 8000u);
}

TEST(VariableTest, BackwardWorksInItsPool) {
  const auto pool = std::make_shared<MemoryPool>(std::make_shared<CountingAllocator>(), 1 << 20);
  const Variable w(tensor<double>({1, 2, 3}), true, pool);
  const Variable loss(ops::sum(w * w * 2.0), true, pool);
  EXPECT_EQ(pool->statistics().num_allocations, 0u);
  loss.backward();
  EXPECT_EQ(values(w.grad()), (Values{4, 8, 12}));
  EXPECT_GT(pool->statistics().num_allocations, 2u);
  EXPECT_GT(pool->statistics().current_usage, 0u);  // the grad
  w.zero_grad();
  EXPECT_EQ(pool->statistics().current_usage, 0u);
  EXPECT_FALSE(Variable(tensor<double>({1}), false).requires_grad());
}

TEST(ForwardModeTest, TangentsFollowValues) {
  const Tensor x = tensor<double>({1, 2});
  const ForwardLevel level;
  const Tensor dual = make_dual(x, tensor<double>({1, 10}), level);
  const Tensor y = ops::sum(dual * dual);
  EXPECT_EQ(values(fw_grad(y, level)), (Values{42}));
  EXPECT_FALSE(fw_grad(x, level).defined());
  const Tensor view = dual.slice(0, 1);
  EXPECT_EQ(values(fw_grad(view, level)), (Values{10}));
  const Tensor changed = dual * 1.0;
  ops::mul_(changed, dual);
  EXPECT_EQ(values(fw_grad(changed, level)), (Values{2, 40}));
}

// Tangents that are overwritten while they are recorded: by themselves, and through views.
std::vector<Tensor> change_in_place(std::span<const Tensor> in) {
  const Tensor a = in[0] * 1.0, rows = ops::stack({in[0], in[1]}) * 1.0;
  ops::mul_(a, in[1]);
  ops::mul_(a, a);
  ops::mul_(rows.select(0, 0), in[1]);
  ops::sin_(rows.select(0, 1));
  copy_(rows.select(0, 1).slice(0, 0, 1), a.slice(0, 1, 2));
  return {a, rows};
}

TEST(ForwardModeTest, TangentsOfInPlaceChangesAreDifferentiable) {
  const auto tangent_of = [](std::span<const Tensor> in) {
    return jvp(change_in_place, in.first(2), in.last(2)).second;
  };
  const Tensor inputs[] = {leaf({1, 2}), leaf({3, 0.5}), leaf({0.3, 2}), leaf({-1, 1})};
  GradcheckOptions backward_alone;
  backward_alone.check_forward = false;
  EXPECT_EQ(gradcheck(tangent_of, inputs, backward_alone), "");
}

TEST(ForwardModeTest, InPlaceChangesLeaveNoGraphBehind) {
  CountingAllocator counter;
  {
    const AllocatorGuard guard(Device{}, counter);
    const Tensor inputs[] = {leaf({1, 2}), leaf({3, 0.5})};
    const Tensor direction[] = {leaf({0.3, 2}), leaf({-1, 1})};
    EXPECT_TRUE(jvp(change_in_place, inputs, direction).second[0].requires_grad());
    EXPECT_GT(counter.current, 0u);
  }
  EXPECT_EQ(counter.current, 0u);
}

TEST(ForwardModeTest, LevelsNest) {
  // d/dx of x * 5 d/dx x^3, both forward: 15 x^3 has the derivative 45 x^2. Each level has a
  // tangent of its own.
  const Tensor x[] = {tensor<double>({2})};
  const Tensor one[] = {tensor<double>({1})}, five[] = {tensor<double>({5})};
  const auto inner = [&](std::span<const Tensor> in) {
    const VectorFunction cube = [](std::span<const Tensor> a) {
      return std::vector<Tensor>{a[0] * a[0] * a[0]};
    };
    return std::vector<Tensor>{in[0] * jvp(cube, in, five).second[0]};
  };
  const auto [value, slope] = jvp(inner, x, one);
  EXPECT_EQ(values(value[0]), (Values{120}));
  EXPECT_EQ(values(slope[0]), (Values{180}));
}

TEST(ForwardModeTest, ForwardOverBackwardGivesHessianProducts) {
  const Tensor x = leaf({1, 2});
  const VectorFunction gradient = [](std::span<const Tensor> in) {
    GradOptions create;
    create.create_graph = true;
    const Tensor outputs[] = {ops::sum(ops::exp(in[0]) * in[0])};
    return grad(outputs, in, {}, create);
  };
  const Tensor inputs[] = {x};
  const Tensor direction[] = {tensor<double>({1, 1})};
  const Values product = values(jvp(gradient, inputs, direction).second[0]);
  EXPECT_NEAR(product[0], 3 * std::exp(1.0), 1e-12);
  EXPECT_NEAR(product[1], 4 * std::exp(2.0), 1e-12);
}

// The tangent of exp(x) is recorded with exp(x) saved, which holds its tangent: a circle, unless
// tangents go with their level.
TEST(ForwardModeTest, NothingLivesOnWhenALevelEnds) {
  WeakIntrusivePtr<TensorImpl> value, tangent;
  {
    const Tensor inputs[] = {leaf({1, 2})};
    const Tensor direction[] = {tensor<double>({1, 1})};
    const VectorFunction f = [&](std::span<const Tensor> in) {
      const Tensor y = ops::exp(in[0]) * in[0];
      value = WeakIntrusivePtr<TensorImpl>(y.impl_ptr());
      return std::vector<Tensor>{ops::sum(y * y)};
    };
    const auto [results, slopes] = jvp(f, inputs, direction);
    tangent = WeakIntrusivePtr<TensorImpl>(slopes[0].impl_ptr());
    backward(slopes[0]);
    EXPECT_FALSE(tangent.expired());
  }
  EXPECT_TRUE(value.expired());
  EXPECT_TRUE(tangent.expired());
}

// Tensors that share memory without a link would keep no tangent: refused, or followed.
TEST(ForwardModeTest, BuffersTakeValuesThatHaveTangents) {
  const std::vector<Tensor> x = {tensor<double>({1, 2}, {2})};
  const std::vector<Tensor> one = {ones({2}, DType::kF64)};
  const auto tangent = [&](auto&& f) {
    return values(jvp([&](auto in) { return std::vector<Tensor>{f(in[0])}; }, x, one).second[0]);
  };
  const auto fill_part = [](const Tensor& in, bool watched, bool adds) {
    const Tensor buffer = zeros({4}, DType::kF64);
    if (watched) watch_views(buffer);
    const Tensor part = buffer.slice(0, 1, 3);
    adds ? ops::add_(part, in) : copy_(part, in);
    return buffer * buffer;
  };
  for (const bool adds : {false, true}) {
    EXPECT_EQ(tangent([&](const Tensor& in) { return fill_part(in, true, adds); }),
              (Values{0, 2, 4, 0}));
    EXPECT_THROW(tangent([&](const Tensor& in) { return fill_part(in, false, adds); }),
                 InvalidArgument);
  }
  EXPECT_EQ(tangent([](const Tensor& in) {
              Tensor out = empty({2}, DType::kF64);
              ops::into(out, ops::op::mul, in, in);
              return out;
            }),
            (Values{2, 4}));
}

TEST(ForwardModeTest, TangentsMustFit) {
  const ForwardLevel level;
  EXPECT_THROW(make_dual(tensor<double>({1, 2}), tensor<double>({1}), level), InvalidArgument);
  EXPECT_THROW(make_dual(tensor<std::int64_t>({1}), tensor<std::int64_t>({1}), level),
               InvalidArgument);
}

// Neither the scores nor copies of views are there: the rest is scratch memory of tiles.
TEST(AttentionMemoryTest, KeepsTwoNumbersForEachQuery) {
  constexpr std::int64_t kLength = 1024, kSize = 32;
  CountingAllocator counting;
  const AllocatorGuard guard(Device{}, counting);
  const Tensor packed = randn({kLength, 3, kSize}).set_requires_grad(true);
  const auto part = [&](std::int64_t i) { return packed.select(1, i); };
  const std::size_t before = counting.current, of_one = kLength * kSize * sizeof(float);
  const std::size_t of_sums = 2 * kLength * sizeof(float);
  const std::size_t of_tiles = static_cast<std::size_t>(num_threads()) * 131072;
  counting.peak = before;
  const Tensor out = ops::scaled_dot_product_attention(part(0), part(1), part(2), {}, true);
  EXPECT_LE(counting.current, before + of_one + of_sums + 4096);
  EXPECT_LE(counting.peak, before + of_one + of_sums + of_tiles);
  backward(ops::sum(out));
  EXPECT_LE(counting.peak, before + 12 * of_one + 2 * of_sums + of_tiles);
}

}  // namespace
}  // namespace tenon::autograd
