// Attention in tiles, its result and gradients, beside what attention is made of, in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tenon/autograd/autograd.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/fused_attention.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/meta_memory.h"
#include "tenon/tensor/random.h"
#include "tenon/tensor/sym_int.h"

namespace tenon::autograd {
namespace {

struct Case {
  Tensor query, key, value, mask;
  bool is_causal = false;
  std::optional<double> scale;
};

// The result, and its gradients.
std::vector<Tensor> all_of(const Case& c, DType dtype, const Tensor& gradient, bool composed) {
  const auto leaf = [&](const Tensor& t) { return to(t, dtype).detach().set_requires_grad(true); };
  const Tensor q = leaf(c.query), k = leaf(c.key), v = leaf(c.value);
  const Tensor mask = c.mask.defined() && composed && c.mask.dtype() != DType::kBool
                          ? to(c.mask, dtype)
                          : c.mask;
  const Tensor out =
      composed
          ? ops::composed_attention(ops::attention_of(q, k, v, mask, c.is_causal, c.scale))
          : ops::scaled_dot_product_attention(q, k, v, mask, c.is_causal, c.scale);
  std::vector<Tensor> all = grad({out}, {q, k, v}, {to(gradient, dtype)});
  all.push_back(out.detach());
  return all;
}

// NaN in the same places, else near each other compared with the largest.
void expect_near(const Tensor& got, const Tensor& wanted, double tolerance) {
  ASSERT_EQ(got.sizes(), wanted.sizes());
  const Tensor x = contiguous(to(got, DType::kF64)), y = contiguous(wanted);
  const auto* const a = x.const_data_ptr<double>();
  const auto* const b = y.const_data_ptr<double>();
  double largest = 1e-3;
  for (std::int64_t i = 0; i < x.numel(); ++i)
    if (std::isfinite(b[i])) largest = std::max(largest, std::abs(b[i]));
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (std::isnan(b[i]))
      ASSERT_TRUE(std::isnan(a[i])) << i << ": " << a[i];
    else
      ASSERT_NEAR(a[i], b[i], tolerance * largest) << i;
  }
}

void compare(Case c, DType dtype = DType::kF32, double tolerance = 3e-6) {
  for (Tensor* t : {&c.query, &c.key, &c.value}) *t = to(*t, dtype);
  const ops::Attention whole{c.query, c.key, c.value, c.mask, c.is_causal, 1};
  ASSERT_TRUE(ops::has_fused_attention(whole));
  const Tensor gradient = to(randn(whole.sizes()), dtype);
  const std::vector<Tensor> got = all_of(c, dtype, gradient, false);
  const std::vector<Tensor> wanted = all_of(c, DType::kF64, gradient, true);
  for (std::size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(::testing::Message() << dtype_name(dtype) << ", of " << "qkvo"[i]);
    expect_near(got[i], wanted[i], tolerance);
  }
}

TEST(AttentionInTiles, IsThatOfOperators) {
  for (const std::int64_t queries : {8, 63, 64, 65, 150})
    for (const std::int64_t keys : {1, 64, 130})
      for (const std::int64_t size : {1, 16, 21, 64})
        for (const bool causal : {false, true}) {
          SCOPED_TRACE(::testing::Message() << queries << " " << keys << " " << size << causal);
          compare({randn({2, queries, size}), randn({2, keys, size}), randn({2, keys, size + 3}),
                   {}, causal, {}});
        }
}

TEST(AttentionInTiles, OfAllFloats) {
  const Case c{randn({2, 3, 70, 24}), randn({2, 3, 90, 24}), randn({2, 3, 90, 10}), {}, true, 0.4};
  compare(c, DType::kF64, 1e-13);
  compare(c, DType::kF16, 4e-3);
  compare(c, DType::kBF16, 3e-2);
}

TEST(AttentionInTiles, Masks) {
  const Tensor q = randn({2, 3, 70, 16}), k = randn({2, 3, 90, 16}), v = randn({2, 3, 90, 16});
  for (const DimVector& sizes : std::vector<DimVector>{
           {70, 90}, {3, 70, 90}, {2, 1, 1, 90}, {2, 3, 70, 1}, {90}, {1, 1, 70, 90}}) {
    const Tensor numbers = randn(sizes);
    compare({q, k, v, numbers, false, {}});
    compare({q, k, v, to(numbers, DType::kF64), false, {}});
    const Tensor shown =
        sizes.back() == 1 ? full(sizes, true, DType::kBool) : ops::gt(numbers, -0.8);
    compare({q, k, v, shown, false, {}});
    compare({q, k, v, ops::masked_fill(numbers, ops::logical_not(shown), -INFINITY), false, {}});
  }
  compare({q, k, v, randn({90, 70}).transpose(0, 1), false, {}});
}

// A query that sees nothing has NaN. A bool hides it from gradients of queries, -inf does not.
TEST(AttentionInTiles, QueriesThatSeeNothing) {
  const Tensor q = randn({70, 8}), k = randn({66, 8}), v = randn({66, 8});
  const Tensor shown = full({70, 66}, true, DType::kBool);
  fill_(shown.narrow(0, 5, 1), false);
  fill_(shown.narrow(0, 69, 1), false);
  compare({q, k, v, shown, false, {}});
  const Tensor added = ops::masked_fill(zeros({70, 66}), ops::logical_not(shown), -INFINITY);
  compare({q, k, v, added, false, {}});
}

// A whole row of the lowest number adds up to the sum of its keys, though log(sum) is lost in it.
TEST(AttentionInTiles, LowestNumberInAWholeRow) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Tensor q = randn({70, 8}), k = randn({130, 8}), v = randn({130, 8});
    const Tensor mask = zeros({70, 130}, dtype);
    fill_(mask.narrow(0, 3, 1), std::numeric_limits<float>::lowest());
    fill_(mask.narrow(0, 69, 1), std::numeric_limits<float>::lowest());
    compare({q, k, v, mask, false, {}}, dtype);
  }
}

// Tiles before the largest score, and behind it.
TEST(AttentionInTiles, LargeScores) {
  for (const double at : {0.0, 70.0, 199.0}) {
    const Tensor mask = randn({40, 200});
    fill_(mask.narrow(1, static_cast<std::int64_t>(at), 1), 300);
    fill_(mask.narrow(1, 0, 1).narrow(0, 0, 20), -400);
    compare({ops::mul(randn({40, 16}), 30), randn({200, 16}), randn({200, 16}), mask, false, {}},
            DType::kF32, 1e-4);
  }
  const Tensor q = randn({40, 16}), k = randn({100, 16}), v = randn({100, 16});
  fill_(q.narrow(0, 3, 1), std::numeric_limits<double>::quiet_NaN());
  compare({q, k, v, {}, false, {}});
  fill_(k.narrow(0, 80, 1), std::numeric_limits<double>::quiet_NaN());
  compare({randn({40, 16}), k, v, {}, false, {}});
}

TEST(AttentionInTiles, ViewsAndBroadcasting) {
  const Tensor packed = randn({2, 70, 3, 4, 8}).permute({2, 0, 3, 1, 4});
  compare({packed.select(0, 0), packed.select(0, 1), packed.select(0, 2), {}, true, {}});
  compare({randn({2, 4, 70, 8}), randn({2, 1, 50, 8}), randn({50, 8}), {}, false, {}});
  compare({randn({70, 8}), randn({3, 50, 8}), randn({2, 1, 50, 8}), randn({2, 3, 1, 50}), false,
           {}});
  compare({randn({2, 8, 70}).transpose(1, 2), randn({2, 8, 50}).transpose(1, 2), randn({2, 50, 8}),
           {}, false, {}});
  // The result lies as the queries do.
  EXPECT_TRUE(ops::scaled_dot_product_attention(packed.select(0, 0), packed.select(0, 1),
                                                packed.select(0, 2))
                  .transpose(1, 2)
                  .is_contiguous());
}

// Where one share is 1 the scores have no gradient, to the last bit.
TEST(AttentionInTiles, OneShareHasNoGradientOfScores) {
  const Tensor q = randn({2, 70, 24}).set_requires_grad(true);
  const Tensor out = ops::scaled_dot_product_attention(q, randn({2, 90, 24}), randn({2, 90, 33}),
                                                       {}, true);
  const Tensor gradient = contiguous(grad({out}, {q}, {randn({2, 70, 33})})[0].narrow(1, 0, 1));
  for (std::int64_t i = 0; i < gradient.numel(); ++i)
    EXPECT_EQ(gradient.const_data_ptr<float>()[i], 0);
}

TEST(AttentionInTiles, GradientsOfSome) {
  const Tensor q = randn({3, 70, 8}), k = randn({3, 90, 8}), v = randn({3, 90, 8});
  const Tensor gradient = randn({3, 70, 8});
  const Case c{q, k, v, {}, true, {}};
  const std::vector<Tensor> all = all_of(c, DType::kF32, gradient, false);
  for (std::size_t i = 0; i < 3; ++i) {
    Tensor in[] = {q.detach(), k.detach(), v.detach()};
    in[i].set_requires_grad(true);
    const Tensor out = ops::scaled_dot_product_attention(in[0], in[1], in[2], {}, true);
    const Tensor one = grad({out}, {in[i]}, {gradient})[0];
    EXPECT_EQ(std::memcmp(one.const_data_ptr(), all[i].const_data_ptr(),
                          static_cast<std::size_t>(one.numel()) * 4),
              0);
  }
}

TEST(AttentionInTiles, RefusesAResultChangedInPlace) {
  const Tensor q = randn({20, 8}).set_requires_grad(true);
  const Tensor out = ops::scaled_dot_product_attention(q, q, q);
  const Tensor sum = ops::sum(out);
  ops::mul_(out.detach(), 2);
  EXPECT_THROW(backward(sum), InvalidArgument);
}

TEST(AttentionInTiles, HasTheSameBitsOnAnyNumberOfThreads) {
  const int before = num_threads();
  for (const std::int64_t heads : {1, 5}) {
    const Case c{randn({heads, 300, 20}), randn({heads, 333, 20}), randn({heads, 333, 20}), {},
                 true,                    {}};
    const Tensor gradient = randn({heads, 300, 20});
    set_num_threads(1);
    const std::vector<Tensor> one = all_of(c, DType::kF32, gradient, false);
    for (const int threads : {2, 3, 8}) {
      set_num_threads(threads);
      const std::vector<Tensor> other = all_of(c, DType::kF32, gradient, false);
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(std::memcmp(one[i].const_data_ptr(), other[i].const_data_ptr(),
                              static_cast<std::size_t>(one[i].numel()) * 4),
                  0);
    }
  }
  set_num_threads(before);
}

TEST(AttentionInTiles, MetaTensorsHaveTheOrderOfTheHosts) {
  for (const std::int64_t heads : {1, 4})
    for (const std::int64_t length : {4, 32}) {
      const auto strides = [&](Device device) {
        const auto leaf = [&](std::int64_t count) {
          const Tensor t = empty({2, length, count, 16}, DType::kF32, device);
          return (t.is_meta() ? t : fill_(t, 1)).transpose(1, 2).detach().set_requires_grad(true);
        };
        const Tensor q = leaf(4), k = leaf(heads), v = leaf(heads);
        const Tensor y = ops::scaled_dot_product_attention(q, k, v);
        const std::vector<Tensor> gradients = grad({y}, {q, k, v}, {ones_like(y)});
        std::vector<std::vector<std::int64_t>> all;
        const auto note = [&](IntList list) { all.emplace_back(list.begin(), list.end()); };
        note(y.strides());
        for (const Tensor& g : gradients) note(g.strides());
        return all;
      };
      EXPECT_EQ(strides(Device{}), strides(Device{DeviceType::kMeta})) << heads << ' ' << length;
    }
}

// What a forward and a backward pass allocate, as a formula in the length, is what they do.
TEST(AttentionInTiles, CarriesSymbolsOnMeta) {
  const Device meta{DeviceType::kMeta};
  const auto pass = [&](const Tensor& q, const Tensor& k) {
    q.set_requires_grad(true), k.set_requires_grad(true);
    const Tensor y = ops::scaled_dot_product_attention(q, k, k, {}, true);
    return grad({y}, {q, k}, {ones_like(y)})[1];
  };
  for (const std::int64_t heads : {1, 4}) {
    const SymInt n = SymInt::symbol("n", 11);
    const SymGuards guards;
    const MetaMemory memory;
    const Tensor g = pass(empty_symbolic(std::vector<SymInt>{2, 4, n, 16}),
                          empty_symbolic(std::vector<SymInt>{2, heads, n, 16}));
    for (const std::int64_t length : {11, 12, 50, 300}) {
      ASSERT_TRUE(guards.hold({{"n", length}}));
      const MetaMemory real;
      static_cast<void>(pass(empty({2, 4, length, 16}, DType::kF32, meta),
                             empty({2, heads, length, 16}, DType::kF32, meta)));
      EXPECT_EQ(memory.allocated().evaluate({{"n", length}}), real.allocated().hint()) << heads;
      EXPECT_EQ(memory.peak({{"n", length}}), real.peak({})) << heads;
    }
    EXPECT_FALSE(guards.hold({{"n", 7}})) << "a few queries are not computed in tiles";
    EXPECT_EQ(g.sym_sizes()[2].evaluate({{"n", 20}}), 20);
  }
}

TEST(AttentionInTiles, GradientsOfMasksAndOfGradientsAreThoseOfOperators) {
  const auto leaf = [](const Tensor& t) { return to(t, DType::kF64).set_requires_grad(true); };
  const Tensor q = leaf(randn({10, 4})), k = leaf(randn({9, 4})), v = leaf(randn({9, 4}));
  const Tensor mask = leaf(randn({10, 9}));
  const auto f = [&](bool composed, const Tensor& m) {
    const Tensor y = composed ? ops::composed_attention(ops::attention_of(q, k, v, m, false, {}))
                              : ops::scaled_dot_product_attention(q, k, v, m);
    return ops::sum(ops::square(y));
  };
  expect_near(grad({f(false, mask)}, {mask})[0], grad({f(true, mask)}, {mask})[0], 1e-12);
  const auto second = [&](bool composed) {
    const Tensor first = grad({f(composed, {})}, {q}, {}, {.create_graph = true})[0];
    return grad({ops::sum(ops::square(first))}, {k})[0];
  };
  expect_near(second(false), second(true), 1e-12);
}

}  // namespace
}  // namespace tenon::autograd
