// Gradients of convolutions by oneDNN: a convolution is linear in its input and in its weight, and
// its gradients are the adjoints.
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/onednn_conv.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

double inner(const Tensor& a, const Tensor& b) {
  return ops::sum(ops::mul(to(a, DType::kF64), to(b, DType::kF64))).item<double>();
}

struct ConvCase {
  std::int64_t images, channels, filters, size, kernel;
  ops::ConvOptions options;
};

const ConvCase kCases[] = {{8, 16, 32, 14, 3, {1, 1, 1, 1, 0}},
                       {13, 8, 16, 15, 3, {2, 1, 1, 1, 0}},
                       {9, 1, 32, 28, 3, {1, 1, 1, 1, 0}},
                       {1, 16, 16, 12, 5, {1, 2, 1, 1, 0}},
                       {5, 16, 16, 12, 3, {1, {2, 1}, {2, 1}, 2, 0}}};

TEST(ConvBackward, GradientsAreTheAdjoints) {
  int direct = 0;
  for (const ConvCase& c : kCases) {
    const Tensor a = randn({c.images, c.channels, c.size, c.size});
    const Tensor w = randn({c.filters, c.channels / c.options.groups, c.kernel, c.kernel});
    const Tensor bias = randn({c.filters});
    const Tensor out = ops::conv2d(a, w, {}, c.options);
    const Tensor gradient = randn(out.sizes());
    const double scale = 1e-5 * std::sqrt(static_cast<double>(out.numel() * w.numel()));

    const Tensor grad_a = full(a.sizes(), NAN);
    if (ops::cpu::onednn_conv2d_backward_input(grad_a, gradient, w, c.options)) {
      ++direct;
      EXPECT_NEAR(inner(out, gradient), inner(a, grad_a), scale);
    }
    const Tensor grad_w = full(w.sizes(), NAN);
    const Tensor grad_bias = full(bias.sizes(), NAN);
    if (ops::cpu::onednn_conv2d_backward_weight(grad_w, grad_bias, gradient, a, c.options)) {
      ++direct;
      EXPECT_NEAR(inner(out, gradient), inner(w, grad_w), scale);
      const Tensor wanted = ops::sum(gradient, {0, 2, 3});
      EXPECT_LT(ops::amax(ops::abs(ops::sub(grad_bias, wanted))).item<double>(), 1e-3);
      const Tensor alone = full(w.sizes(), NAN);
      ASSERT_TRUE(ops::cpu::onednn_conv2d_backward_weight(alone, {}, gradient, a, c.options));
      EXPECT_LT(ops::amax(ops::abs(ops::sub(grad_w, alone))).item<double>(), 1e-3);
    }
  }
  EXPECT_GE(direct, 6) << "oneDNN has no direct kernels on this machine";
}

TEST(ConvBackward, IsTheSameOnAnyNumberOfThreads) {
  const Tensor a = randn({11, 16, 14, 14});
  const Tensor w = randn({32, 16, 3, 3});
  const ops::ConvOptions o{1, 1, 1, 1, 0};
  const Tensor gradient = randn({11, 32, 14, 14});
  std::vector<Tensor> results;
  const int before = num_threads();
  for (const int threads : {1, 4}) {
    set_num_threads(threads);
    const Tensor grad_a = empty(a.sizes()), grad_w = empty(w.sizes()), grad_bias = empty({32});
    ASSERT_TRUE(ops::cpu::onednn_conv2d_backward_input(grad_a, gradient, w, o));
    ASSERT_TRUE(ops::cpu::onednn_conv2d_backward_weight(grad_w, grad_bias, gradient, a, o));
    results.insert(results.end(), {grad_a, grad_w, grad_bias});
  }
  set_num_threads(before);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(ops::all(ops::eq(results[i], results[i + 3])).item<bool>()) << i;
}

}  // namespace
}  // namespace tenon
