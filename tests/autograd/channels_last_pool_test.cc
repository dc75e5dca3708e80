// Pools of channels-last tensors are, bit by bit, those of the same tensors in planes. Averages of
// whole planes alone are sums in another order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "tenon/autograd/autograd.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

constexpr MemoryFormat kLast = MemoryFormat::kChannelsLast;
using Pool = std::function<Tensor(const Tensor&)>;

// To the last bit, or within a tolerance.
void expect_same(const char* what, const Tensor& planes, const Tensor& last, double tolerance) {
  ASSERT_EQ(planes.sizes(), last.sizes());
  const Tensor a = contiguous(planes), b = contiguous(last);
  if (tolerance == 0)
    EXPECT_EQ(std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()), 0) << what;
  else
    EXPECT_LE(ops::amax(ops::abs(ops::sub(to(a, DType::kF64), to(b, DType::kF64)))).item<double>(),
              tolerance)
        << what;
}

Tensor leaf_of(const Tensor& a) {
  Tensor leaf = clone(a);
  leaf.set_requires_grad(true);
  return leaf;
}

// The result, the gradient, and the gradient by the gradient of the result.
void compare_layouts(const Pool& pool, const Tensor& a, double tolerance = 0) {
  const Tensor planes = leaf_of(a), last = leaf_of(contiguous(a, kLast));
  const Tensor out = pool(planes), out_last = pool(last);
  EXPECT_TRUE(out.is_contiguous());
  EXPECT_TRUE(out_last.is_contiguous(kLast));
  expect_same("result", out.detach(), out_last.detach(), tolerance);
  const Tensor weights = to(randn(out.sizes()), a.dtype());
  const Tensor second = to(randn(a.sizes()), a.dtype());
  const Tensor g = leaf_of(weights), g_last = leaf_of(contiguous(weights, kLast));
  const Tensor to_input = autograd::grad({out}, {planes}, {g}, {.create_graph = true})[0];
  const Tensor to_last = autograd::grad({out_last}, {last}, {g_last}, {.create_graph = true})[0];
  expect_same("recorded gradient", to_input.detach(), to_last.detach(), 0);
  expect_same("gradient of the gradient", autograd::grad({to_input}, {g}, {second})[0],
              autograd::grad({to_last}, {g_last}, {contiguous(second, kLast)})[0], tolerance);
  const Tensor again = pool(planes), again_last = pool(last);
  autograd::backward(again, weights);
  autograd::backward(again_last, contiguous(weights, kLast));
  EXPECT_TRUE(last.grad().is_contiguous(kLast));
  expect_same("gradient", planes.grad(), last.grad(), 0);
}

// Whole numbers have ties; the last image has a NaN in every channel.
Tensor few_values(std::int64_t channels, DType dtype) {
  const Tensor a = to(randint(-2, 3, {3, channels, 9, 8}), DType::kF32);
  fill_(a.narrow(0, 2, 1).narrow(2, 4, 1).narrow(3, 3, 1), NAN);
  return to(a, dtype);
}

// Channels below, at and beyond vectors.
TEST(ChannelsLastPools, AreThoseOfPlanes) {
  const std::vector<ops::PoolOptions> options = {
      {2}, {3, 2}, {3, 2, 1}, {{3, 4}, {1, 3}, {1, 2}}, {{2, 3}, {2, 1}, {1, 0}, false},
      {{9, 8}, 1}};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
    for (const std::int64_t channels : {2, 3, 16, 37})
      for (const ops::PoolOptions& o : options) {
        SCOPED_TRACE(fmt::format("{} channels of {}, a kernel of {} x {}", channels,
                                 dtype_name(dtype), o.kernel.height, o.kernel.width));
        const Tensor values = to(randn({2, channels, 9, 8}), dtype);
        const Pool largest = [&](const Tensor& a) { return ops::max_pool2d(a, o); };
        compare_layouts(largest, values);
        compare_layouts(largest, few_values(channels, dtype));
        compare_layouts([&](const Tensor& a) { return ops::avg_pool2d(a, o); }, values);
      }
}

TEST(ChannelsLastPools, OfAnySizeAreThoseOfPlanes) {
  const std::pair<DType, double> units[] = {
      {DType::kF32, 2e-7}, {DType::kF64, 1e-15}, {DType::kF16, 5e-4}, {DType::kBF16, 4e-3}};
  for (const auto& [dtype, unit] : units)
    for (const ops::Pair& size : {ops::Pair(1), ops::Pair(7), ops::Pair(4, 3), ops::Pair(11, 2)})
      compare_layouts([&](const Tensor& a) { return ops::adaptive_avg_pool2d(a, size); },
                      to(randn({2, 19, 9, 8}), dtype),
                      size.height == 1 && size.width == 1 ? unit : 0);
}

// More than a byte counts: the input is kept instead of choices.
TEST(ChannelsLastPools, OfLargeWindowsAreThoseOfPlanes) {
  compare_layouts([](const Tensor& a) { return ops::max_pool2d(a, {17, 3, 8}); },
                  randn({1, 5, 20, 18}));
}

}  // namespace
}  // namespace tenon
