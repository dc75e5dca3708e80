// Numbers at the ends of their ranges on a Vulkan device, where drivers and short formulas err.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/reference.h"
#include "support/vulkan.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"

namespace tenon {
namespace {

using testing::kVulkan;
constexpr float kInfF = std::numeric_limits<float>::infinity();
constexpr float kNanF = std::numeric_limits<float>::quiet_NaN();

class VulkanNumbers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { testing::choose_process_device(); }
  void TearDown() override { EXPECT_EQ(VulkanDriver::standard()->validation_messages(), 0u); }
};

Tensor line(const std::vector<float>& numbers) {
  const Tensor t = empty({static_cast<std::int64_t>(numbers.size())}, DType::kF32);
  std::copy(numbers.begin(), numbers.end(), t.data_ptr<float>());
  return t;
}

// By the relative difference of each element; zeros have signs.
void expect_close(const Tensor& found, const Tensor& expected, double tolerance,
                  const std::string& what) {
  const std::vector<double> a = testing::values(found), b = testing::values(expected);
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::string where = what + ", element " + std::to_string(i);
    if (std::isnan(b[i])) {
      EXPECT_TRUE(std::isnan(a[i])) << where << " is " << a[i];
    } else if (b[i] == 0 || std::isinf(b[i])) {
      EXPECT_EQ(a[i], b[i]) << where;
      EXPECT_EQ(std::signbit(a[i]), std::signbit(b[i])) << where;
    } else {
      EXPECT_NEAR(a[i], b[i], tolerance * std::abs(b[i])) << where;
    }
  }
}

TEST_F(VulkanNumbers, FunctionsOfOneKeepSignsAndSmallNumbers) {
  const Tensor numbers = line({0.0f, -0.0f, 1e-30f, -1e-30f, 1e-4f, -1e-4f, 0.01f, -0.2f, 0.2f,
                               3.0f, -9.0f, 30.0f, -30.0f, kInfF, -kInfF, kNanF});
  const auto both = [&](const char* what, Tensor (*function)(const Tensor&), const Tensor& t) {
    expect_close(function(to(t, kVulkan)), function(t), 4e-6, what);
    if (vulkan_backend(0).abilities().f64)
      expect_close(function(to(to(t, DType::kF64), kVulkan)), function(to(t, DType::kF64)), 1e-12,
                   std::string(what) + " of f64");
  };
  both("tanh", &ops::tanh, numbers);
  both("sinh", &ops::sinh, numbers);
  both("sign", &ops::sign, numbers);
  both("sin", &ops::sin, numbers);
  both("tan", &ops::tan, numbers);
  both("log1p", &ops::log1p, numbers);
  both("log", &ops::log, line({0.999f, 1.0f, 1.0001f, 1.2f, 0.8f, 3e38f, 1e-30f, -1.0f, kInfF}));
  both("log_sigmoid", &ops::log_sigmoid, line({7.0f, 10.0f, 1.0f, -7.0f}));
}

TEST_F(VulkanNumbers, SinesOfLargeNumbersAreSines) {
  const Tensor numbers =
      line({32767.0f, 32769.0f, -1e5f, 1e6f, 16777216.0f, -1e10f, 5.5e16f, 1e22f, -1e30f, 3.4e38f});
  const Tensor expected[] = {empty_like(numbers), empty_like(numbers)};
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    const double x = numbers.const_data_ptr<float>()[i];
    expected[0].data_ptr<float>()[i] = static_cast<float>(std::sin(x));
    expected[1].data_ptr<float>()[i] = static_cast<float>(std::cos(x));
  }
  expect_close(ops::sin(to(numbers, kVulkan)), expected[0], 1e-6, "sin");
  expect_close(ops::cos(to(numbers, kVulkan)), expected[1], 1e-6, "cos");
}

TEST_F(VulkanNumbers, RestsOfDivisionsAreExact) {
  const Tensor a = line({1.0f, -1.0f, 0.0f, -0.0f, 7.5f, -7.5f, 1e10f, -1e30f, 3e38f, 5.0f, kInfF,
                         kNanF, 2.0f, 0.1f});
  const Tensor b = line({0.1f, 3.0f, -3.0f, 0.5f, 1e-30f, 0.0f, kInfF, -kInfF, kNanF, -0.7f});
  const auto both = [&](const char* what, Tensor (*function)(const Tensor&, const Tensor&),
                        double tolerance) {
    const auto of = [&](DType dtype, Device device) {
      return function(to(to(a, dtype).unsqueeze(1), device), to(to(b, dtype), device));
    };
    expect_close(of(DType::kF32, kVulkan), of(DType::kF32, {}), tolerance, what);
    if (vulkan_backend(0).abilities().f64)
      expect_close(of(DType::kF64, kVulkan), of(DType::kF64, {}), tolerance, what);
  };
  both("fmod", &ops::fmod, 0);
  both("remainder", &ops::remainder, 0);
  both("floor_divide", &ops::floor_divide, 3e-7);
}

TEST_F(VulkanNumbers, ALineWithNanHasNoOtherProbabilities) {
  const Tensor lines =
      line({kInfF, 0, 1, kNanF, 2, 3, -kInfF, -kInfF, -kInfF, 1, 2, -kInfF}).view({4, 3});
  expect_close(ops::log_softmax(to(lines, kVulkan), 1), ops::log_softmax(lines, 1), 1e-6, "log");
  expect_close(ops::softmax(to(lines, kVulkan), 1), ops::softmax(lines, 1), 1e-6, "plain");
}

TEST_F(VulkanNumbers, FlipsAreDenseAndTheDevices) {
  const auto flips_of_host = [] {
    std::uint64_t calls = 0;
    for (const HostFallback& each : fallbacks())
      if (each.name == "flip") calls += each.calls;
    return calls;
  };
  const std::uint64_t before = flips_of_host();
  const auto both = [&](const Tensor& t, IntList dims) {
    const Tensor like_t = empty_strided(t.sizes(), t.strides(), t.dtype(), kVulkan);
    const Tensor there = ops::flip(copy_(like_t, t), dims);
    const Tensor here = ops::flip(t, dims);
    EXPECT_EQ(testing::values(there), testing::values(here));
    EXPECT_EQ(there.strides(), here.strides());
    EXPECT_TRUE(t.is_non_overlapping_and_dense() ? there.strides() == t.strides()
                                                 : there.is_contiguous());
  };
  const Tensor t = arange(2 * 3 * 4 * 5, DType::kF32).view({2, 3, 4, 5});
  both(t, {0, 2});
  both(t, {0, 1, 2, 3});
  both(t.transpose(0, 3).narrow(1, 1, 2), {1, 3});
  both(t.select(0, 0).narrow(0, 1, 1).transpose(1, 2), {0});
  both(arange(64, DType::kF32).view({2, 2, 2, 2, 2, 2}).transpose(0, 5), {0, 1, 5});
  both(to(arange(7), DType::kI8), {0});
  both(full({}, 2.0, DType::kF32), {});
  EXPECT_EQ(flips_of_host(), before);
}

}  // namespace
}  // namespace tenon
