// Convolutions of channels-last images: they are those of planes, in the order of the images.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tenon/autograd/autograd.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

constexpr MemoryFormat kLast = MemoryFormat::kChannelsLast;

struct LastCase {
  Tensor a, weight, bias;  // f64, in planes
  ops::ConvOptions options;
};

// Groups of one channel, of several, or one group; some large enough for oneDNN.
LastCase random_convolution(std::mt19937_64& bits) {
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(bits);
  };
  const std::int64_t kind = between(0, 2), groups = kind == 0 ? 1 : between(2, 20);
  const std::int64_t channels = kind == 1 ? 1 : between(2, 20);  // of a group
  const std::int64_t filters = between(0, 1) == 0 ? channels : between(2, 20);
  const std::int64_t kernel = between(1, 5), size = between(5, 18);
  ops::ConvOptions o;
  o.groups = groups;
  o.stride = {between(1, 3), between(1, 3)};
  o.padding = {between(0, 3), between(0, 3)};
  if (kernel < 4) o.dilation = {between(1, 2), between(1, 2)};
  const Tensor bias = between(0, 1) == 0 ? Tensor() : randn({groups * filters}, DType::kF64);
  return {randn({between(1, 4), groups * channels, size, size + 1}, DType::kF64),
          randn({groups * filters, channels, kernel, kernel}, DType::kF64), bias, o};
}

// The result, and the gradients of what is defined, from a gradient of that order.
std::vector<Tensor> results_of(const LastCase& c, DType dtype, MemoryFormat format) {
  const auto leaf = [&](const Tensor& t) {
    const Tensor copy = to(t, dtype);
    return (t.dim() == 4 ? contiguous(copy, format) : copy).detach().set_requires_grad(true);
  };
  std::vector<Tensor> leaves = {leaf(c.a), leaf(c.weight)};
  if (c.bias.defined()) leaves.push_back(leaf(c.bias));
  const Tensor out =
      ops::conv2d(leaves[0], leaves[1], c.bias.defined() ? leaves[2] : Tensor(), c.options);
  const Tensor plain = to(ops::sin(arange(out.numel(), DType::kF64)).view(out.sizes()), dtype);
  const std::vector<Tensor> outs = {out}, gradients = {contiguous(plain, format)};
  std::vector<Tensor> all = autograd::grad(outs, leaves, gradients);
  all.insert(all.begin(), out.detach());
  return all;
}

double largest(const Tensor& t) { return ops::amax(ops::abs(t)).item<double>(); }

TEST(ConvChannelsLast, IsThatOfPlanes) {
  std::mt19937_64 bits(7);
  manual_seed(7);
  const int before = num_threads();
  for (int i = 0; i < 90; ++i) {
    const LastCase c = random_convolution(bits);
    const DType dtype = std::vector{DType::kF32, DType::kF64, DType::kBF16}[i % 3];
    const double unit = dtype == DType::kF64 ? 1e-12 : dtype == DType::kF32 ? 1e-5 : 2e-2;
    const std::vector<Tensor> wanted = results_of(c, DType::kF64, MemoryFormat::kContiguous);
    std::vector<Tensor> on_one;
    for (const int threads : {1, 3}) {
      set_num_threads(threads);
      const std::vector<Tensor> found = results_of(c, dtype, kLast);
      EXPECT_TRUE(found[0].is_contiguous(kLast)) << to_string(found[0].strides());
      // Where the result is in both orders, so is its gradient.
      EXPECT_TRUE(found[0].is_contiguous() || found[1].is_contiguous(kLast));
      for (std::size_t k = 0; k < wanted.size(); ++k)
        EXPECT_LT(largest(ops::sub(to(found[k], DType::kF64), wanted[k])),
                  3 * unit * largest(wanted[k]) + unit)
            << "case " << i << ", result " << k << ", " << threads << " threads";
      if (threads == 1) on_one = found;
      for (std::size_t k = 0; k < wanted.size(); ++k)
        EXPECT_TRUE(ops::all(ops::eq(found[k], on_one[k])).item<bool>()) << i << ", result " << k;
    }
  }
  set_num_threads(before);
}

TEST(ConvChannelsLast, TransposedIsThatOfPlanes) {
  std::mt19937_64 bits(8);
  manual_seed(8);
  for (int i = 0; i < 60; ++i) {
    const LastCase c = random_convolution(bits);
    const auto transposed = [&](DType dtype, MemoryFormat format) {
      const Tensor places = to(randn({2, c.weight.size(0), 6, 7}, DType::kF64), dtype);
      ops::ConvOptions o = c.options;
      o.padding = 0;
      return ops::conv_transpose2d(contiguous(places, format),
                                   contiguous(to(c.weight, dtype), format), {}, o);
    };
    manual_seed(100 + i);
    const Tensor wanted = transposed(DType::kF64, MemoryFormat::kContiguous);
    manual_seed(100 + i);
    const Tensor found = transposed(i % 2 == 0 ? DType::kF32 : DType::kF64, kLast);
    EXPECT_TRUE(found.is_contiguous(kLast));
    EXPECT_LT(largest(ops::sub(to(found, DType::kF64), wanted)), 1e-5 * largest(wanted)) << i;
  }
}

TEST(ConvChannelsLast, OfNoElementsIsTheBias) {
  const Tensor bias = randn({5});
  for (const MemoryFormat format : {MemoryFormat::kContiguous, kLast})
    for (const std::int64_t images : {0, 2})
      for (const std::int64_t channels : {0, 4}) {
        if (images > 0 && channels > 0) continue;
        const Tensor a = contiguous(randn({images, channels, 6, 6}), format);
        const Tensor weight = randn({5, channels, 3, 3});
        for (const Tensor& out : {ops::conv2d(a, weight, bias, {1, 1}),
                                  ops::conv_transpose2d(a, weight.transpose(0, 1), bias, {1, 1})})
          EXPECT_TRUE(ops::all(ops::eq(out, bias.view({1, 5, 1, 1}))).item<bool>());
      }
}

}  // namespace
}  // namespace tenon
