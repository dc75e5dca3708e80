// Operators on a Vulkan device that shares its memory with the host: by kernels, and by the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "ops/reference.h"
#include "support/vulkan.h"
#include "tenon/autograd/autograd.h"
#include "tenon/autograd/gradcheck.h"
#include "tenon/tensor/fallback.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/print.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

using testing::kVulkan;

// The process's own device: lavapipe unless VK_DRIVER_FILES says otherwise.
class VulkanOps : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { testing::choose_process_device(); }
  void TearDown() override { EXPECT_EQ(VulkanDriver::standard()->validation_messages(), 0u); }

  static std::uint64_t fallback_calls() {
    std::uint64_t sum = 0;
    for (const HostFallback& each : fallbacks()) sum += each.calls;
    return sum;
  }
};

void expect_near(const Tensor& found, const Tensor& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(found.device(), kVulkan) << what;
  const std::vector<double> a = testing::values(found), b = testing::values(expected);
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(b[i])) {
      ASSERT_TRUE(std::isnan(a[i])) << what << ", element " << i;
    } else if (std::isinf(b[i])) {
      ASSERT_EQ(a[i], b[i]) << what << ", element " << i;
    } else {
      ASSERT_NEAR(a[i], b[i], tolerance * std::max(1.0, std::abs(b[i])))
          << what << ", element " << i;
    }
  }
}

// On the device with the same geometry as `t`.
Tensor moved(const Tensor& t) {
  Tensor there = empty_strided(t.sizes(), t.strides(), t.dtype(), kVulkan);
  return copy_(there, t);
}

TEST_F(VulkanOps, TensorsMoveAndPrint) {
  const Tensor here = arange(6).view({2, 3});
  const Tensor there = to(here, kVulkan);
  EXPECT_EQ(there.device(), kVulkan);
  EXPECT_TRUE(host_reaches(kVulkan));
  EXPECT_EQ(testing::values(to(there, Device{})), testing::values(here));
  EXPECT_THAT(to_string(there), ::testing::HasSubstr("device=vulkan:0"));
  EXPECT_EQ(there.select(0, 1).select(0, 2).item<std::int64_t>(), 5);
  EXPECT_THROW(ops::add(there, here), InvalidArgument) << "devices mixed";
}

using UnaryFunction = Tensor (*)(const Tensor&);

TEST_F(VulkanOps, UnaryKernelsAgreeWithTheHost) {
  const std::vector<std::pair<const char*, UnaryFunction>> functions = {
      {"neg", &ops::neg},           {"abs", &ops::abs},
      {"square", &ops::square},     {"relu", &ops::relu},
      {"exp", &ops::exp},           {"log", &ops::log},
      {"sqrt", &ops::sqrt},         {"rsqrt", &ops::rsqrt},
      {"reciprocal", &ops::reciprocal}, {"tanh", &ops::tanh},
      {"sigmoid", &ops::sigmoid},   {"silu", &ops::silu},
      {"gelu", [](const Tensor& t) { return ops::gelu(t); }},
      {"leaky_relu", [](const Tensor& t) { return ops::leaky_relu(t, 0.1); }},
      {"clamp", [](const Tensor& t) { return ops::clamp(t, Scalar(-0.5), Scalar(0.7)); }},
      {"clamp", [](const Tensor& t) { return ops::clamp(t, Scalar(2.0), Scalar(-1.0)); }}};
  Random random(1);
  const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 0.02f, 1e-8f, 30.0f, -30.0f,
                           INFINITY, -INFINITY, NAN, 3.9f, -4.1f, -104.0f, 88.75f, 100.0f};
  Tensor edges = empty({16}, DType::kF32);
  std::copy(std::begin(special), std::end(special), edges.data_ptr<float>());
  for (const auto& [name, function] : functions) {
    const std::uint64_t before = fallback_calls();
    for (int i = 0; i < 8; ++i) {
      const Tensor t = testing::random_floats(
          random, {static_cast<std::int64_t>(1 + random.below(9)),
                   static_cast<std::int64_t>(1 + random.below(300)), 3}, DType::kF32);
      expect_near(function(moved(t)), function(t), 2e-6, name);
    }
    expect_near(function(to(edges, kVulkan)), function(edges), 2e-6, name);
    EXPECT_EQ(fallback_calls(), before) << name << " has a kernel";
  }
}

TEST_F(VulkanOps, BinaryKernelsBroadcastAndTakeNumbers) {
  using Two = Tensor (*)(const Tensor&, const Tensor&);
  const std::vector<std::pair<const char*, Two>> functions = {
      {"add", [](const Tensor& a, const Tensor& b) { return ops::add(a, b); }},
      {"sub", [](const Tensor& a, const Tensor& b) { return ops::sub(a, b); }},
      {"mul", [](const Tensor& a, const Tensor& b) { return ops::mul(a, b); }},
      {"div", [](const Tensor& a, const Tensor& b) { return ops::div(a, b); }},
      {"maximum", [](const Tensor& a, const Tensor& b) { return ops::maximum(a, b); }},
      {"minimum", [](const Tensor& a, const Tensor& b) { return ops::minimum(a, b); }}};
  Random random(2);
  for (const auto& [name, function] : functions) {
    const std::uint64_t before = fallback_calls();
    for (const DimVector& shape :
         {DimVector{5, 1, 7}, DimVector{7}, DimVector{4, 1}, DimVector{}}) {
      const Tensor a = testing::random_floats(random, {5, 4, 7}, DType::kF32);
      const Tensor b = ops::add(testing::random_floats(random, shape, DType::kF32), 3.0);
      expect_near(function(moved(a), moved(b)), function(a, b), 1e-6, name);
      expect_near(function(moved(b), moved(a)), function(b, a), 1e-6, name);
    }
    const Tensor a = testing::random_floats(random, {100}, DType::kF32);
    const Tensor number = full({}, 2.5, DType::kF32);
    expect_near(function(moved(a), number), function(a, number), 1e-6, name);
    expect_near(function(number, moved(a)), function(number, a), 1e-6, name);
    EXPECT_EQ(fallback_calls(), before) << name << " has a kernel";
  }
}

TEST_F(VulkanOps, InPlaceKernelsWriteWhereTheyShould) {
  const Tensor t = to(ones({4, 6}, DType::kF32), kVulkan);
  ops::mul_(t.slice(1, 0, std::nullopt, 2), full({}, 3.0, DType::kF32));
  ops::add_(t.transpose(0, 1), t.transpose(0, 1));
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 6; ++j)
      EXPECT_EQ(t.select(0, i).select(0, j).item<float>(), j % 2 == 0 ? 6.0f : 2.0f);
  // A shifted view of itself: the host computes it by way of a copy.
  const Tensor line = to(arange(6, DType::kF32), kVulkan);
  ops::add_(line.slice(0, 1, 6), line.slice(0, 0, 5));
  EXPECT_EQ(testing::values(line), (std::vector<double>{0, 1, 3, 5, 7, 9}));
}

TEST_F(VulkanOps, ProductsAgreeWithTheHost) {
  Random random(3);
  const std::uint64_t before = fallback_calls();
  const auto compare = [&](const Tensor& a, const Tensor& b) {
    expect_near(ops::matmul(moved(a), moved(b)), ops::matmul(a, b), 1e-5,
                to_string(a.sizes()) + to_string(b.sizes()));
  };
  for (const auto& [m, k, n] : {std::array{1, 1, 1}, std::array{3, 5, 2}, std::array{64, 16, 64},
                                std::array{65, 17, 130}, std::array{200, 33, 1}})
    compare(testing::random_floats(random, {m, k}, DType::kF32),
            testing::random_floats(random, {k, n}, DType::kF32));
  compare(testing::random_floats(random, {3, 20, 30}, DType::kF32),
          testing::random_floats(random, {3, 30, 10}, DType::kF32));
  // Large ones, in every order of both in memory, with borders in a tile, in pairs and in fours.
  for (const auto& [m, k, n] : {std::array{130, 118, 74}, std::array{130, 116, 122},
                                std::array{132, 116, 124}})
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true}) {
        Tensor a = testing::random_floats(random, {m, k}, DType::kF32);
        Tensor b = testing::random_floats(random, {k, n}, DType::kF32);
        if (a_turned) a = contiguous(a.t()).t();
        if (b_turned) b = contiguous(b.t()).t();
        compare(a, b);
        const Tensor bias = testing::random_floats(random, {n}, DType::kF32);
        expect_near(ops::addmm(moved(bias), moved(a), moved(b)), ops::addmm(bias, a, b), 1e-5,
                    "addmm");
      }
  // Fours that are no texels.
  compare(testing::random_floats(random, {132 * 116 + 2}, DType::kF32).slice(0, 2, 132 * 116 + 2)
              .view({132, 116}),
          testing::random_floats(random, {116, 124}, DType::kF32));
  compare(testing::random_floats(random, {2, 66, 100}, DType::kF32),
          testing::random_floats(random, {2, 100, 120}, DType::kF32));
  compare(testing::random_floats(random, {2, 3, 20, 30}, DType::kF32),
          testing::random_floats(random, {30, 10}, DType::kF32));
  compare(testing::random_floats(random, {1, 20, 30}, DType::kF32),
          testing::random_floats(random, {4, 30, 10}, DType::kF32));
  compare(testing::random_floats(random, {7, 30}, DType::kF32),
          testing::random_floats(random, {30}, DType::kF32));
  EXPECT_EQ(fallback_calls(), before);
}

TEST_F(VulkanOps, ConvolutionsAgreeWithTheHost) {
  Random random(6);
  const std::uint64_t before = fallback_calls();
  const auto compare = [&](const std::vector<std::int64_t>& image,
                           const std::vector<std::int64_t>& filter, const ops::ConvOptions& o) {
    const Tensor a = contiguous(testing::random_floats(random, image, DType::kF32));
    const Tensor weight = contiguous(testing::random_floats(random, filter, DType::kF32));
    const Tensor bias = testing::random_floats(random, {filter[0]}, DType::kF32);
    // Each sums as many products in its own order.
    const double tolerance = std::max(1e-5, 2e-7 * static_cast<double>(weight.numel() / filter[0]));
    expect_near(ops::conv2d(moved(a), moved(weight), moved(bias), o),
                ops::conv2d(a, weight, bias, o), tolerance, to_string(a.sizes()));
  };
  // Small, and large with and without columns; borders within a tile.
  compare({2, 3, 5, 6}, {4, 3, 3, 3}, {.padding = 1});
  compare({3, 8, 17, 19}, {40, 8, 3, 3}, {.padding = {1, 2}});
  compare({3, 8, 29, 31}, {40, 8, 3, 2}, {.stride = {2, 1}, .padding = {0, 1}, .dilation = {2, 3}});
  compare({5, 12, 13, 14}, {70, 12, 1, 5}, {});
  compare({3, 7, 21, 20}, {40, 7, 3, 3}, {.padding = 2});
  compare({3, 8, 17, 19}, {80, 4, 3, 3}, {.padding = 1, .groups = 2});
  // Rows of places that are multiples of four: neighbours of a lane share what they see.
  compare({3, 8, 17, 20}, {40, 8, 3, 3}, {.padding = 1});
  compare({5, 5, 20, 20}, {33, 5, 3, 3}, {.padding = 1});  // tiles across images
  compare({64, 4, 3, 4}, {40, 4, 3, 3}, {.padding = 1});
  compare({3, 8, 22, 30}, {40, 8, 3, 3}, {.stride = {2, 1}, .padding = {2, 0}, .dilation = {3, 1}});
  compare({5, 12, 13, 18}, {70, 12, 1, 3}, {});
  compare({5, 12, 13, 8}, {70, 12, 5, 3}, {.padding = {0, 3}});
  EXPECT_EQ(fallback_calls(), before);
}

// lavapipe ends a loop after 65,535 rounds.
TEST_F(VulkanOps, LongLinesAreComputedToTheirEnds) {
  constexpr std::int64_t kLength = 70000;
  const Tensor line = moved(ones({kLength}, DType::kF32));
  const Tensor zeros_there = moved(zeros({kLength}, DType::kI64));
  const auto last = [](const Tensor& t) { return t.select(0, t.size(0) - 1).item<double>(); };
  EXPECT_EQ(ops::matmul(line, line).item<double>(), kLength);
  EXPECT_EQ(last(ops::cumsum(line, 0)), kLength);
  EXPECT_EQ(ops::argmax(ops::cumsum(line, 0)).item<double>(), kLength - 1);
  EXPECT_EQ(ops::index_add(moved(zeros({1}, DType::kF32)), 0, zeros_there, line).item<double>(),
            kLength);
  EXPECT_NEAR(last(ops::softmax(line, 0)) * kLength, 1, 1e-5);
  // So many columns that none is cut into pieces.
  const Tensor columns = moved(ones({kLength, 2048}, DType::kBool));
  EXPECT_EQ(last(ops::sum(columns, std::vector<std::int64_t>{0})), kLength);
}

TEST_F(VulkanOps, TheHostWaitsForWhatItReads) {
  Tensor t = to(ones({1 << 16}, DType::kF32), kVulkan);
  const std::uint64_t before = vulkan_backend(0).submissions();
  for (int i = 0; i < 20; ++i) t = ops::add(t, full({}, 1.0, DType::kF32));
  EXPECT_EQ(vulkan_backend(0).submissions(), before) << "kernels are queued";
  EXPECT_EQ(t.const_data_ptr<float>()[65535], 21.0f);
  EXPECT_EQ(vulkan_backend(0).submissions(), before + 1) << "and submitted together";
  // Work of more than kMostGroups goes in several submissions.
  Tensor large = to(ones({1 << 20}, DType::kF32), kVulkan);
  const std::uint64_t first = vulkan_backend(0).submissions();
  for (int i = 0; i < 20; ++i) large = ops::add(large, full({}, 1.0, DType::kF32));
  EXPECT_EQ(vulkan_backend(0).submissions(), first + 1);
  EXPECT_EQ(large.const_data_ptr<float>()[1 << 19], 21.0f);
  t.data_ptr<float>()[7] = 5;
  EXPECT_EQ(ops::mul(t, t).select(0, 7).item<float>(), 25.0f);
}

TEST_F(VulkanOps, IntegersOfEveryWidthGiveTheHostsNumbers) {
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kI16, DType::kI8}) {
    const Tensor here = to(ops::sub(arange(23, DType::kF32), 11.0), dtype);
    const Tensor there = to(here, kVulkan);
    const auto both = [&](const char* what, auto&& call) {
      EXPECT_EQ(testing::values(call(there)), testing::values(call(here)))
          << what << " of " << dtype_name(dtype);
    };
    both("sign", [](const Tensor& x) { return ops::sign(x); });
    both("relu", [](const Tensor& x) { return ops::relu(x); });
    both("clamp", [](const Tensor& x) { return ops::clamp(x, -2, 3); });
    for (const double by : {-7, -2, 2, 3}) {
      const auto divisor = [&](const Tensor& x) { return full({23}, by, dtype, x.device()); };
      both("fmod", [&](const Tensor& x) { return ops::fmod(x, divisor(x)); });
      both("remainder", [&](const Tensor& x) { return ops::remainder(x, divisor(x)); });
      both("floor_divide", [&](const Tensor& x) { return ops::floor_divide(x, divisor(x)); });
      both("pow", [&](const Tensor& x) { return ops::pow(ops::abs(x), divisor(x)); });
      both("gt", [&](const Tensor& x) { return ops::gt(x, full({}, by, dtype)); });
    }
    // A 0-d tensor does not widen the other one: it becomes a number of the other's dtype first.
    const Tensor bytes = full({3}, 6.0, DType::kU8);
    EXPECT_EQ(testing::values(ops::minimum(to(bytes, kVulkan), there.select(0, 9))),
              testing::values(ops::minimum(bytes, here.select(0, 9))))
        << dtype_name(dtype);
  }
}

TEST_F(VulkanOps, LazyClonesAreInOrderWithKernels) {
  const Tensor x = to(ones({64, 64}, DType::kF32), kVulkan);
  // A clone of what is still computed.
  EXPECT_EQ(lazy_clone(ops::add(ops::matmul(x, x), 1.0)).select(0, 1).select(0, 2).item<float>(),
            65.0f);
  // The host writes the source, then the clone; each has bytes of its own.
  const Tensor clone = lazy_clone(x);
  x.data_ptr<float>()[0] = 5;
  EXPECT_EQ(x.const_data_ptr<float>()[0], 5.0f);
  EXPECT_EQ(clone.const_data_ptr<float>()[0], 1.0f);
  const Tensor other = lazy_clone(clone);
  fill_(clone, 7);
  EXPECT_EQ(clone.const_data_ptr<float>()[4095], 7.0f);
  EXPECT_EQ(other.const_data_ptr<float>()[4095], 1.0f);
  // A kernel writes the clone.
  const Tensor third = lazy_clone(other);
  ops::add_(third, full({}, 5.0, DType::kF32));
  EXPECT_EQ(ops::matmul(third, third).select(0, 0).select(0, 0).item<float>(), 64 * 36.0f);
  EXPECT_EQ(other.const_data_ptr<float>()[0], 1.0f);
}

TEST_F(VulkanOps, AnIndexIntoNothingSaysSo) {
  const Tensor nothing = zeros({2, 0}, DType::kF32, kVulkan);
  const Tensor first = zeros({1}, DType::kI64, kVulkan);
  const auto message = [](auto&& call) {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(message([&] { ops::index_select(nothing, 1, first); }),
            "index_select: index 0 for a dimension of size 0");
  EXPECT_EQ(message([&] { ops::gather(nothing, 1, first.expand({2, 1})); }),
            "gather: index 0 for a dimension of size 0");
}

TEST_F(VulkanOps, WhatHasNoKernelIsComputedByTheHostAndCounted) {
  const Tensor t = to(arange(12, DType::kF32).view({3, 4}), kVulkan);
  const auto calls_of = [](const std::string& name) {
    for (const HostFallback& each : fallbacks())
      if (each.name == name) return each.calls;
    return std::uint64_t{0};
  };
  const std::uint64_t before = calls_of("mul");
  const Tensor product = ops::mul(ops::add(t, t), to(ones({3, 4}, DType::kC64), kVulkan));
  EXPECT_EQ(product.device(), kVulkan);
  EXPECT_EQ(calls_of("mul"), before + 1) << "complex numbers have no kernel";
  EXPECT_EQ(product.select(0, 2).select(0, 3).item<Complex64>(), Complex64(22.0f));
  // A copy of elements as they are needs none.
  const std::uint64_t copies = calls_of("copy");
  EXPECT_EQ(testing::values(ops::real(contiguous(product.t()))),
            testing::values(ops::real(product.t())));
  EXPECT_EQ(calls_of("copy"), copies);
}

// Values of `dtype` of both signs, with halves and zeros.
Tensor some(Random& random, IntList sizes, DType dtype) {
  const Tensor t = ops::round(ops::mul(testing::random_floats(random, sizes, DType::kF32), 8.0));
  return to(is_floating(dtype) ? ops::mul(t, 0.5) : t, dtype);
}

// Whether the device has arithmetic for it: SwiftShader has none of 64 bits.
bool has_arithmetic(DType dtype) {
  const VulkanAbilities& has = vulkan_backend(0).abilities();
  return has.integers && (dtype != DType::kF64 || has.f64);
}

TEST_F(VulkanOps, DtypesPromoteAndConvertAsOnTheHost) {
  Random random(11);
  // Each with each costs a pipeline: all dtypes with two, and those two with all.
  const DType all[] = {DType::kBool, DType::kU8,  DType::kI8,   DType::kI16, DType::kI32,
                       DType::kI64,  DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
  for (const DType from : all)
    for (const DType other : {DType::kF32, DType::kI64}) {
      const std::uint64_t before = fallback_calls();
      const std::string what =
          std::string(dtype_name(from)) + " " + std::string(dtype_name(other));
      const Tensor a = some(random, {5, 7}, from), b = some(random, {7}, other);
      expect_near(to(moved(a), other), to(a, other), 0, what);
      expect_near(to(moved(b), from), to(b, from), 0, what);
      expect_near(ops::add(moved(a), moved(b)), ops::add(a, b), 1e-6, what);
      expect_near(ops::lt(moved(a), moved(b)), ops::lt(a, b), 0, what);
      expect_near(ops::logical_or(moved(a), moved(b)), ops::logical_or(a, b), 0, what);
      expect_near(ops::where(moved(to(a, DType::kBool)), moved(b), moved(a)),
                  ops::where(to(a, DType::kBool), b, a), 0, what);
      if (has_arithmetic(from) && has_arithmetic(other)) {
        EXPECT_EQ(fallback_calls(), before) << what;
      }
    }
}

TEST_F(VulkanOps, FloatsRoundToSixteenBitsAsOnTheHost) {
  Tensor t = empty({4096}, DType::kF32);
  Random random(12);
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    const auto bits = static_cast<std::uint32_t>(random.next());
    std::memcpy(t.data_ptr<float>() + i, &bits, 4);
    if (i % 2 == 0)
      t.data_ptr<float>()[i] = std::ldexp(1.0f + static_cast<float>(i) / 4096, i % 50 - 30);
  }
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    // Numbers that drivers may take for zero are left out.
    const Tensor plain = ops::where(ops::gt(ops::abs(t), 1e-37), t, zeros({}));
    const std::vector<double> found = testing::values(to(to(plain, kVulkan), dtype));
    const std::vector<double> expected = testing::values(to(plain, dtype));
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_TRUE(found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i])))
          << i << ": " << found[i] << " instead of " << expected[i];
  }
}

TEST_F(VulkanOps, ReductionsAndScansAgreeWithTheHost) {
  Random random(13);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI64, DType::kBool})
    for (const DimVector& sizes :
         {DimVector{3, 40, 5}, DimVector{1, 1, 7}, DimVector{70000, 1, 2}}) {
      const std::uint64_t before = fallback_calls();
      const Tensor a = some(random, sizes, dtype);
      const Tensor there = moved(a.transpose(0, 2)).transpose(0, 2);
      for (const DimVector& dims : {DimVector{}, DimVector{1}, DimVector{0, 2}, DimVector{2}}) {
        const std::string what = std::string(dtype_name(dtype)) + to_string(IntList(sizes)) +
                                 to_string(IntList(dims));
        expect_near(ops::sum(there, dims, true), ops::sum(a, dims, true), 1e-6, what);
        expect_near(ops::amax(there, dims), ops::amax(a, dims), 0, what);
        expect_near(ops::any(there, dims), ops::any(a, dims), 0, what);
        if (!is_floating(dtype)) continue;
        expect_near(ops::var(there, dims, 0), ops::var(a, dims, 0), 1e-6, what);
        expect_near(ops::logsumexp(there, dims), ops::logsumexp(a, dims), 1e-6, what);
      }
      if (dtype != DType::kBool) {
        expect_near(ops::cumsum(there, 1), ops::cumsum(a, 1), 1e-6, "cumsum");
        expect_near(ops::argmin(there, 1), ops::argmin(a, 1), 0, "argmin");
        expect_near(ops::sort(there, 1).second, ops::sort(a, 1).second, 0, "sort");
      }
      if (has_arithmetic(dtype)) {
        EXPECT_EQ(fallback_calls(), before) << dtype_name(dtype);
      }
    }
}

TEST_F(VulkanOps, IndicesOutOfRangeAreToldWhenTheHostWaits) {
  const Tensor table = to(arange(12, DType::kF32).view({4, 3}), kVulkan);
  Tensor index = empty({2}, DType::kI64);
  index.data_ptr<std::int64_t>()[0] = 1;
  index.data_ptr<std::int64_t>()[1] = -7;
  const Tensor rows = ops::index_select(table, 0, to(index, kVulkan));
  try {
    static_cast<void>(rows.const_data_ptr());
    FAIL() << "nothing was told";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "index_select: index -7 for a dimension of size 4");
  }
  EXPECT_EQ(rows.select(0, 0).select(0, 2).item<float>(), 5.0f) << "told once";
}

TEST_F(VulkanOps, RandomNumbersAreTheHosts) {
  if (!vulkan_backend(0).abilities().f64) GTEST_SKIP() << "the device has no float64";
  using Make = std::function<void(const Tensor&, Generator&)>;
  const auto check = [](DType dtype, double tolerance, const Make& make) {
    const std::uint64_t before = fallback_calls();
    Generator here(9), there(9);
    here.set_offset(0xfffffff0u);  // the low word of the counters overflows
    there.set_offset(0xfffffff0u);
    for (const DimVector& sizes : {DimVector{1}, DimVector{40003}, DimVector{7, 9}}) {
      Tensor a = empty(sizes, dtype), b = empty(sizes, dtype, kVulkan);
      if (sizes.size() == 2) {
        a = a.t();
        b = b.t();
      }
      make(a, here);
      make(b, there);
      expect_near(b, a, tolerance, std::string(dtype_name(dtype)));
      EXPECT_EQ(here.offset(), there.offset());
    }
    EXPECT_EQ(fallback_calls(), before);
  };
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    check(dtype, 0, [](const Tensor& t, Generator& g) { uniform_(t, 0, 1, g); });
    check(dtype, 0, [](const Tensor& t, Generator& g) { uniform_(t, -0.3, 1.1, g); });
  }
  // One rounding, where the device's logarithm and sine differ in the last place.
  check(DType::kF32, 1e-7, [](const Tensor& t, Generator& g) { normal_(t, 0.5, 2, g); });
  check(DType::kF64, 1e-14, [](const Tensor& t, Generator& g) { normal_(t, 0.5, 2, g); });
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBool, DType::kI64})
    for (const double p : {0.0, 0.3, 0.999999, 1.0})
      check(dtype, 0, [p](const Tensor& t, Generator& g) { bernoulli_(t, p, g); });
}

TEST_F(VulkanOps, GradientsFlow) {
  Random random(4);
  const Tensor x = testing::random_floats(random, {6, 5}, DType::kF32);
  const Tensor w = testing::random_floats(random, {5, 4}, DType::kF32);
  const auto gradient = [&](Device device) {
    const Tensor weight = to(w, device).detach();
    weight.set_requires_grad(true);
    const Tensor loss =
        ops::sum(ops::square(ops::tanh(ops::matmul(to(x, device), weight))));
    autograd::backward({&loss, 1});
    return weight.grad();
  };
  expect_near(gradient(kVulkan), gradient(Device{}), 1e-5, "gradient");
}

TEST_F(VulkanOps, GradientsAreDifferencesOfTheDevicesResults) {
  if (!vulkan_backend(0).abilities().f64) GTEST_SKIP() << "the device has no float64";
  Random random(5);
  const auto leaf = [&](std::initializer_list<std::int64_t> sizes) {
    const Tensor dense = contiguous(testing::random_floats(random, sizes, DType::kF64));
    return moved(dense).set_requires_grad(true);
  };
  const auto check = [](const autograd::CheckedFunction& f, const std::vector<Tensor>& inputs) {
    const std::uint64_t before = fallback_calls();
    EXPECT_EQ(autograd::gradcheck(f, inputs), "");
    EXPECT_EQ(autograd::gradgradcheck(f, inputs), "");
    EXPECT_EQ(fallback_calls(), before);
  };
  check([](auto in) { return std::vector{ops::softmax(ops::matmul(in[0], ops::tanh(in[1])), 1)}; },
        {leaf({3, 4}), leaf({4, 5})});
  check([](auto in) { return std::vector{ops::conv2d(in[0], in[1], in[2], {.padding = 1})}; },
        {leaf({2, 2, 4, 3}), leaf({3, 2, 3, 3}), leaf({3})});
  check([](auto in) { return std::vector{ops::layer_norm(in[0], {4}, in[1], in[2])}; },
        {leaf({3, 4}), leaf({4}), leaf({4})});
  check([](auto in) { return std::vector{ops::group_norm(in[0], 2, in[1], in[2])}; },
        {leaf({3, 4, 5}), leaf({4}), leaf({4})});
  check([](auto in) { return std::vector{ops::batch_norm(in[0], {}, {}, in[1], in[2], true)}; },
        {leaf({3, 4, 5}), leaf({4}), leaf({4})});
  const Tensor mean = leaf({4}).detach(), variance = ops::square(leaf({4}).detach());
  check(
      [&](auto in) {
        return std::vector{ops::batch_norm(in[0], mean, variance, in[1], in[2], false)};
      },
      {leaf({3, 4, 5}), leaf({4}), leaf({4})});
}

// More channels and elements than one group of invocations has, and fewer.
TEST_F(VulkanOps, DerivativesOfNormsOverChannelsAreTheHostsAndTheSameTwice) {
  Random random(6);
  using Norm = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, Device)>;
  const auto check = [&](std::initializer_list<std::int64_t> sizes, bool affine, const Norm& norm) {
    const Tensor x = testing::random_floats(random, sizes, DType::kF32);
    const Tensor w = testing::random_floats(random, {x.size(1)}, DType::kF32);
    const Tensor b = testing::random_floats(random, {x.size(1)}, DType::kF32);
    const Tensor factors = testing::random_floats(random, sizes, DType::kF32);
    const auto gradients = [&](Device device) {
      std::vector<Tensor> leaves;
      for (const Tensor& t : {x, w, b}) {
        leaves.push_back(to(t, device).detach());
        leaves.back().set_requires_grad(true);
      }
      const Tensor none;
      const Tensor out = norm(leaves[0], affine ? leaves[1] : none, affine ? leaves[2] : none,
                              device);
      autograd::backward(ops::sum(ops::mul(out, to(factors, device))));
      std::vector<Tensor> found;
      for (const Tensor& t : leaves)
        if (t.grad().defined()) found.push_back(t.grad());
      return found;
    };
    const auto found = gradients(kVulkan), again = gradients(kVulkan), wanted = gradients(Device{});
    ASSERT_EQ(found.size(), affine ? 3u : 1u);
    ASSERT_EQ(wanted.size(), found.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      expect_near(found[i], wanted[i], 1e-4, "gradient");
      expect_near(found[i], again[i], 0, "gradient again");
    }
  };
  const Tensor mean = testing::random_floats(random, {70}, DType::kF32);
  const Tensor variance = ops::add(ops::square(testing::random_floats(random, {70}, DType::kF32)),
                                   0.1);
  for (const bool affine : {true, false}) {
    for (const std::int64_t groups : {1, 3, 12})
      check({3, 12, 10, 11}, affine, [=](auto& a, auto& w, auto& b, Device) {
        return ops::group_norm(a, groups, w, b);
      });
    check({2, 6}, affine, [](auto& a, auto& w, auto& b, Device) {
      return ops::group_norm(a, 2, w, b);
    });
    check({5, 70, 9, 7}, affine, [](auto& a, auto& w, auto& b, Device) {
      return ops::batch_norm(a, {}, {}, w, b, true);
    });
    check({5, 70, 3}, affine, [&](auto& a, auto& w, auto& b, Device device) {
      return ops::batch_norm(a, to(mean, device), to(variance, device), w, b, false);
    });
  }
}

// In a process of its own, whose last exit handler leaves the driver's threads time to compute.
TEST(VulkanEnd, AProgramMayEndWhileItsKernelsRun) {
  testing::choose_process_device();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end_early = [] {
    std::atexit([] { ::usleep(100000); });
    const Tensor a = to(ones({512, 512}, DType::kF32), kVulkan);
    for (int i = 0; i < 10; ++i) static_cast<void>(ops::matmul(a, a));
    VulkanBackend& backend = vulkan_backend(0);
    static_cast<void>(backend.query(backend.record(Stream{kVulkan, 0})));  // submits
    std::exit(0);
  };
  EXPECT_EXIT(end_early(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tenon
