// Products and convolutions on a Vulkan device, of sizes for which kernels are not made.
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "ops/reference.h"
#include "support/vulkan.h"
#include "tenon/autograd/autograd.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/print.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

using testing::kVulkan;

class VulkanProducts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { testing::choose_process_device(); }
  void TearDown() override { EXPECT_EQ(VulkanDriver::standard()->validation_messages(), 0u); }
};

TEST_F(VulkanProducts, ProductsAndConvolutionsOfSizesThatNeedPaddingAreTheHosts) {
  Generator generator(4);
  // Small integers, so that every order of sums gives the same bits.
  const auto numbers = [&](IntList sizes) {
    return ops::round(ops::mul(randn(sizes, DType::kF32, generator), 2.0));
  };
  const auto both = [&](const char* what, const Tensor& a, const Tensor& b, auto&& call) {
    EXPECT_EQ(testing::values(call(to(a, kVulkan), to(b, kVulkan))), testing::values(call(a, b)))
        << what;
  };
  const auto product = [](const Tensor& a, const Tensor& b) { return ops::matmul(a, b); };
  both("odd", numbers({257, 259}), numbers({259, 261}), product);
  both("odd, transposed", numbers({259, 257}).t(), numbers({261, 259}).t(), product);
  both("a as it is", numbers({300, 200}), numbers({200, 203}), product);
  both("a batch", numbers({3, 201, 203}), numbers({3, 203, 202}), product);
  both("a batch by one", numbers({3, 201, 203}), numbers({203, 207}), product);
  both("columns", numbers({900, 901}), numbers({901, 1}), product);
  both("added to", numbers({203, 205}), numbers({205, 207}), [&](const Tensor& a, const Tensor& b) {
    return ops::addmm(to(full({203, 207}, 3.0, DType::kF32), a.device()), a, b);
  });
  for (const std::int64_t width : {6, 7, 9, 27})
    both("windows", numbers({3, 16, width, width}), numbers({40, 16, 3, 3}),
         [](const Tensor& a, const Tensor& w) { return ops::conv2d(a, w, {}, {.padding = 1}); });
  both("columns, in fours", numbers({3, 16, 8, 8}), numbers({40, 16, 5, 5}),
       [](const Tensor& a, const Tensor& w) { return ops::conv2d(a, w, {}, {.padding = 2}); });
  both("columns, in fours, two apart", numbers({3, 16, 17, 16}), numbers({40, 16, 5, 3}),
       [](const Tensor& a, const Tensor& w) {
         return ops::conv2d(a, w, {}, {.stride = 2, .padding = {1, 1}});
       });
  const auto in_groups = [](std::int64_t groups, std::int64_t stride) {
    return [=](const Tensor& a, const Tensor& w) {
      return ops::conv2d(a, w, to(full({12}, 1.0, DType::kF32), a.device()),
                         {.stride = stride, .padding = 2, .dilation = 2, .groups = groups});
    };
  };
  both("a filter a channel", numbers({2, 12, 11, 13}), numbers({12, 1, 3, 3}), in_groups(12, 1));
  both("groups", numbers({2, 8, 11, 13}), numbers({12, 2, 3, 5}), in_groups(4, 2));
  for (const std::int64_t groups : {1, 4, 48})  // each by a kernel of its own, with a bias
    for (const std::int64_t width : {27, 28})
      both("a bias", numbers({4, 48, 28, width}), numbers({48, 48 / groups, 3, 3}),
           [&](const Tensor& x, const Tensor& w) {
             const Tensor bias = to(arange(48, DType::kF32), x.device());
             return ops::conv2d(x, w, bias, {.padding = 1, .groups = groups});
           });
  both("kernels of one", numbers({3, 32, 20, 20}), numbers({48, 32, 1, 1}),
       [](const Tensor& a, const Tensor& w) { return ops::conv2d(a, w); });
}

TEST_F(VulkanProducts, GradientsOfConvolutionsAreTheHosts) {
  Generator generator(5);
  const auto numbers = [&](IntList sizes) {
    return ops::round(ops::mul(randn(sizes, DType::kF32, generator), 2.0));
  };
  const auto both = [&](const Tensor& images, const Tensor& weight, const ops::ConvOptions& o,
                        bool transposed = false) {
    const auto call = [&](const Tensor& a, const Tensor& w) {
      return transposed ? ops::conv_transpose2d(a, w, {}, o) : ops::conv2d(a, w, {}, o);
    };
    const Tensor gradient = numbers(call(images, weight).sizes());
    const auto gradients = [&](Device device) {
      const Tensor a = to(images, device).detach().set_requires_grad(true);
      const Tensor w = to(weight, device).detach().set_requires_grad(true);
      autograd::backward(call(a, w), to(gradient, device));
      return std::pair(testing::values(a.grad()), testing::values(w.grad()));
    };
    EXPECT_EQ(gradients(kVulkan), gradients({})) << to_string(weight.sizes());
  };
  for (const std::int64_t width : {4, 7, 16, 30}) {  // with and without columns of zeros
    both(numbers({3, 5, 6, width}), numbers({35, 5, 3, 3}), {.padding = 1});
    both(numbers({2, 19, 9, width}), numbers({4, 19, 3, 3}), {.padding = 1});
  }
  both(numbers({40, 2, 44, 44}), numbers({3, 2, 3, 3}), {.padding = 1});  // launches that add
  both(numbers({2, 8, 12, 12}), numbers({12, 8, 5, 5}), {.padding = 2});
  both(numbers({2, 8, 12, 10}), numbers({12, 8, 3, 2}), {.padding = {1, 0}, .dilation = 2});
  both(numbers({2, 8, 12, 12}), numbers({12, 8, 3, 3}), {.stride = 2, .padding = 1});
  both(numbers({2, 8, 12, 12}), numbers({12, 8, 3, 3}), {.padding = 3});  // beyond the kernel
  both(numbers({2, 8, 12, 12}), numbers({12, 8, 1, 1}), {});
  both(numbers({2, 8, 12, 12}), numbers({12, 2, 3, 3}), {.padding = 1, .groups = 4});
  both(numbers({2, 12, 8, 8}), numbers({12, 1, 3, 3}), {.padding = 1, .groups = 12});
  both(numbers({2, 3, 29, 31}), numbers({33, 3, 7, 7}), {.stride = 2, .padding = 3});
  both(numbers({2, 8, 14, 13}), numbers({40, 8, 3, 3}), {.stride = 3, .padding = 1, .dilation = 2});
  both(numbers({2, 16, 15, 15}), numbers({40, 16, 1, 1}), {.stride = 2});  // places that none sees
  both(numbers({2, 16, 7, 7}), numbers({70, 16, 1, 1}), {});
  both(numbers({2, 32, 14, 14}), numbers({36, 16, 3, 3}), {.padding = 1, .groups = 2});
  both(numbers({2, 32, 14, 14}), numbers({32, 8, 3, 3}), {.stride = 2, .padding = 1, .groups = 4});
  both(numbers({9, 16, 90, 90}), numbers({8, 16, 5, 1}), {.padding = {2, 0}});  // images in parts
  both(numbers({3, 64, 70, 70}), numbers({64, 1, 3, 3}), {.padding = 1, .groups = 64});
  both(numbers({4, 64, 27, 27}), numbers({64, 1, 5, 5}),
       {.stride = 2, .padding = 2, .groups = 64});
  both(numbers({2, 32, 20, 21}), numbers({48, 4, 3, 3}), {.padding = 1, .groups = 8});
  // Few filters of a group, straight from the images.
  both(numbers({3, 10, 33, 29}), numbers({3, 10, 5, 5}), {.padding = 2});
  both(numbers({3, 12, 21, 24}), numbers({12, 6, 3, 4}),
       {.stride = {2, 3}, .padding = {1, 2}, .dilation = {2, 1}, .groups = 2});
  both(numbers({4, 24, 18, 26}), numbers({48, 1, 7, 7}), {.padding = 3, .groups = 24});
  both(numbers({20, 2, 4000, 9}), numbers({2, 1, 3, 3}), {.padding = 1, .groups = 2});  // adds
  both(numbers({2, 6, 7, 8}), numbers({6, 4, 3, 3}), {.padding = 1, .groups = 2}, true);
  both(numbers({2, 6, 7, 8}), numbers({6, 4, 3, 3}), {.stride = 2, .output_padding = 1}, true);
}

// A zero of the padding, or of a row's rest, times infinity would be no number.
TEST_F(VulkanProducts, InfinityStaysWithTheWindowsThatSeeIt) {
  for (const std::int64_t groups : {1, 3}) {
    const Tensor weight = ones({42, 3 / groups, 3, 3}, DType::kF32);
    const Tensor images = zeros({24, 3, 25, 27}, DType::kF32);
    fill_(images.select(0, 1).select(0, 2).select(0, 3).select(0, 26),
          std::numeric_limits<double>::infinity());
    const ops::ConvOptions o{.stride = 2, .padding = 1, .groups = groups};
    EXPECT_EQ(testing::values(ops::conv2d(to(images, kVulkan), to(weight, kVulkan), {}, o)),
              testing::values(ops::conv2d(images, weight, {}, o)));
  }
}

}  // namespace
}  // namespace tenon
