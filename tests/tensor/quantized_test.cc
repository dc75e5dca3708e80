// int8 tensors with scales and zero points.
#include "tenon/tensor/quantized.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/refusal.h"
#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/interop/dlpack.h"
#include "tenon/tensor/interop/dlpack_abi.h"
#include "tenon/tensor/print.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using testing::refusal;

std::vector<int> integers(const Tensor& q) {
  const Tensor dense = contiguous(int_repr(q));
  const auto* data = dense.const_data_ptr<std::int8_t>();
  return {data, data + dense.numel()};
}
std::vector<float> floats(const Tensor& t) {
  const Tensor dense = contiguous(t);
  return {dense.const_data_ptr<float>(), dense.const_data_ptr<float>() + dense.numel()};
}
TEST(QuantizedTest, RoundsTiesToEvenAndStopsAtTheEnds) {
  const Tensor t = tensor<float>({0, 0.25f, 0.75f, -0.25f, 100, -100, INFINITY, NAN});
  const Tensor q = quantize_per_tensor(t, 0.5, 3);
  EXPECT_EQ(integers(q), (std::vector<int>{3, 3, 5, 3, 127, -128, 127, -128}));
  EXPECT_EQ(floats(dequantize(q)), (std::vector<float>{0, 0, 1, 0, 62, -65.5f, 62, -65.5f}));
  EXPECT_EQ(q.dtype(), DType::kQI8);
  EXPECT_EQ(q.nbytes(), 8u);
  EXPECT_EQ(q_scale(q), 0.5);
  EXPECT_EQ(q_zero_point(q), 3);
}

// Each of the 256 integers survives the way there and back, and errors are half a step at most.
TEST(QuantizedTest, ValuesWithinHalfAStep) {
  Generator generator(3);
  const Tensor t = randn({50, 41}, DType::kF32, generator);
  const Tensor q = quantize_per_tensor(t, 0.03, -7);
  const std::vector<float> back = floats(dequantize(q)), source = floats(t);
  for (std::size_t i = 0; i < back.size(); ++i) {
    const float inside = std::min(134 * 0.03f, std::max(-121 * 0.03f, source[i]));
    ASSERT_NEAR(back[i], inside, 0.015 + 1e-6) << source[i];
  }
  EXPECT_EQ(integers(quantize_per_tensor(dequantize(q), 0.03, -7)), integers(q));
}

class PerChannel : public ::testing::TestWithParam<std::int64_t> {};

// Channel by channel it is what quantize_per_tensor gives.
TEST_P(PerChannel, EachChannelHasItsOwnScale) {
  const std::int64_t axis = GetParam();
  Generator generator(4);
  const Tensor t = randn({4, 3, 5}, DType::kF32, generator).transpose(0, 2);
  const std::int64_t channels = t.size(axis);
  const Tensor scales = linspace(0.01, 0.1, channels, DType::kF64);
  const Tensor zeros = arange(-2, channels - 2, 1, DType::kI64);
  const Tensor q = quantize_per_channel(t, scales, zeros, axis);
  for (std::int64_t i = 0; i < channels; ++i) {
    const Tensor alone = quantize_per_tensor(t.select(axis, i), scales[i].item<double>(),
                                             zeros[i].item<std::int64_t>());
    const Tensor part = q.select(axis, i);
    EXPECT_EQ(integers(part), integers(alone));
    EXPECT_EQ(floats(dequantize(part)), floats(dequantize(alone)));
    EXPECT_EQ(q_scale(part), q_scale(alone));
  }
  EXPECT_EQ(q_per_channel_axis(q), axis);
}
INSTANTIATE_TEST_SUITE_P(Axes, PerChannel, ::testing::Values(0, 1, 2));

TEST(QuantizedTest, ViewsKeepTheirScales) {
  const Tensor t = arange(0, 24, 1, DType::kF32).view({2, 3, 4});
  const Tensor q =
      quantize_per_channel(t, tensor<double>({0.5, 1, 2}), tensor<std::int64_t>({0, 1, 2}), 1);
  const Tensor whole = dequantize(q);
  const auto same = [&](auto&& view) {
    EXPECT_EQ(floats(dequantize(view(q))), floats(view(whole)));
  };
  same([](const Tensor& x) { return x.permute({2, 0, 1}); });
  same([](const Tensor& x) { return x.slice(1, 1, 3); });
  same([](const Tensor& x) { return x.slice(1, 0, 3, 2); });
  same([](const Tensor& x) { return x.select(0, 1).unsqueeze(0); });
  same([](const Tensor& x) { return x.chunk(2, 2)[1]; });
  same([](const Tensor& x) { return x.unbind(1)[2]; });
  same([](const Tensor& x) { return x.slice(0, 1, 2).squeeze(0); });
  same([](const Tensor& x) { return x.slice(0, 1, 2).squeeze(); });
  same([](const Tensor& x) { return x.slice(2, 1, 2).unsqueeze(1).squeeze(); });
  same([](const Tensor& x) { return x.slice(2, 1, 2).unsqueeze(1).squeeze(-1); });
  same([](const Tensor& x) { return x.slice(1, 1, 2).squeeze(1); });
  EXPECT_EQ(q_scale(q.slice(1, 1, 2).squeeze()), 1) << "one channel is left";
  EXPECT_THAT(refusal([&] { dequantize(q.view({24})); }), HasSubstr("mixes channels"));
  const Tensor per_tensor = quantize_per_tensor(t, 0.5, 1);
  EXPECT_EQ(floats(dequantize(per_tensor.view({24}).slice(0, 3, 9))),
            floats(dequantize(per_tensor).view({24}).slice(0, 3, 9)));
  EXPECT_EQ((dequantize(per_tensor[{tensor<std::int64_t>({1})}]).sizes()), (IntList{1, 3, 4}));
}

TEST(QuantizedTest, CopiesKeepTheParametersAndWritesUseTheTargets) {
  const Tensor t = tensor<float>({-1, 0, 1, 2});
  const Tensor q = quantize_per_tensor(t, 0.5, 10);
  for (const Tensor& copy : {clone(q), lazy_clone(q), q.detach(), q.alias()}) {
    EXPECT_EQ(q_zero_point(copy), 10);
    EXPECT_EQ(integers(copy), integers(q));
  }
  const Tensor target = clone(q);
  copy_(target, tensor<float>({0.5f, 1.5f, -0.5f, 0}));
  EXPECT_EQ(integers(target), (std::vector<int>{11, 13, 9, 10}));
  const Tensor coarse = quantize_per_tensor(t, 1.0, 0);
  copy_(target, coarse);  // the values, by the target's scale
  EXPECT_EQ(integers(target), integers(q));
  fill_(target, 1.5);
  EXPECT_EQ(integers(target), (std::vector<int>{13, 13, 13, 13}));
  copy_(target.slice(0, 1, 3), q.slice(0, 0, 2));
  EXPECT_EQ(integers(target), (std::vector<int>{13, 8, 10, 13}));
  EXPECT_EQ(q[2].item<float>(), 1);
}

TEST(QuantizedTest, Prints) {
  EXPECT_EQ(to_string(quantize_per_tensor(tensor<float>({-1, 0.5f}), 0.5, 10)),
            "tensor([-1.0000,  0.5000], dtype=qint8, scale=0.5, zero_point=10)");
}

// Scales belong to the indices of one dimension: reading by other sizes would go past them.
TEST(QuantizedTest, OtherSizesAreRefusedWhereThereAreChannels) {
  const Tensor t = ones({2, 3}, DType::kF32);
  const Tensor q = quantize_per_channel(t, tensor<double>({0.5, 1, 0.25}),
                                        tensor<std::int64_t>({0, 0, 0}), 1);
  const char* const wanted = "quantised per channel cannot become one of ";
  EXPECT_THAT(refusal([&] { q.resize_({2, 9}); }), HasSubstr(wanted));
  EXPECT_THAT(refusal([&] { q.resize_({3}); }), HasSubstr("scales belong to dimension 1"));
  EXPECT_THAT(refusal([&] { q.set_(q.storage(), 0, {3, 2}); }), HasSubstr(wanted));
  EXPECT_THAT(refusal([&] { q.impl()->set_sizes_contiguous({6}); }), HasSubstr(wanted));
  q.set_(empty({2, 3}, DType::kQI8));
  EXPECT_EQ(floats(dequantize(fill_(q, 1))), std::vector<float>(6, 1)) << "the same sizes";

  const Tensor whole = quantize_per_tensor(t, 0.5, 0);
  whole.resize_({3, 2});
  EXPECT_EQ(floats(dequantize(whole)), std::vector<float>(6, 1));
}

TEST(QuantizedTest, WhatDoesNotFitIsNamed) {
  const Tensor t = ones({2, 3}, DType::kF32);
  const Tensor q = quantize_per_tensor(t, 0.5, 0);
  EXPECT_THAT(refusal([&] { quantize_per_tensor(t, 0, 0); }), HasSubstr("scale 0 of channel 0"));
  EXPECT_THAT(refusal([&] { quantize_per_tensor(t, NAN, 0); }), HasSubstr("positive"));
  EXPECT_THAT(refusal([&] { quantize_per_tensor(t, 1, 128); }), HasSubstr("zero point 128"));
  EXPECT_THAT(refusal([&] { quantize_per_tensor(arange(3), 1, 0); }), HasSubstr("int64"));
  EXPECT_THAT(refusal([&] {
                quantize_per_channel(t, tensor<double>({1, 1}), tensor<std::int64_t>({0, 0}), 1);
              }),
              HasSubstr("dimension 1 of shape [2, 3]"));
  EXPECT_THAT(refusal([&] { dequantize(t); }), HasSubstr("not quantised"));
  EXPECT_THAT(refusal([&] { q_per_channel_axis(q); }), HasSubstr("per tensor"));
  EXPECT_THAT(refusal([&] { to(q, DType::kF32); }), HasSubstr("dequantize()"));
  EXPECT_THAT(refusal([&] { to(t, DType::kQI8); }), HasSubstr("quantize_per_tensor"));
  EXPECT_THAT(refusal([&] { copy_(t, q); }), HasSubstr("dequantize()"));
  EXPECT_THAT(refusal([&] { to_dlpack(q); }), HasSubstr("int_repr()"));
  EXPECT_THAT(refusal([&] { q.set_requires_grad(true); }), HasSubstr("qint8"));
}

}  // namespace
}  // namespace tenon
