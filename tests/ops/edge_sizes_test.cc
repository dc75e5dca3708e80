// Operators at the edges of what they take: sizes of zero, windows as wide as their planes, and
// numbers that sums of sizes must not overflow.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "ops/reference.h"
#include "support/refusal.h"
#include "tenon/autograd/autograd.h"
#include "tenon/autograd/gradcheck.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/print.h"

namespace tenon {
namespace {

using testing::refusal;
using testing::values;

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

// Each window of a plane, element by element.
std::vector<double> pooled(const Tensor& plane, const ops::PoolOptions& o, bool is_average,
                           IntList places) {
  const std::vector<double> x = values(plane);
  const std::int64_t height = plane.size(-2), width = plane.size(-1);
  std::vector<double> found;
  for (std::int64_t i = 0; i < places[2]; ++i)
    for (std::int64_t j = 0; j < places[3]; ++j) {
      double sum = 0, largest = -INFINITY;
      for (std::int64_t y = 0; y < o.kernel.height; ++y)
        for (std::int64_t z = 0; z < o.kernel.width; ++z) {
          const std::int64_t row = i * o.stride.height - o.padding.height + y;
          const std::int64_t column = j * o.stride.width - o.padding.width + z;
          if (row < 0 || column < 0 || row >= height || column >= width) continue;
          const double value = x[static_cast<std::size_t>(row * width + column)];
          sum += value;
          largest = std::max(largest, value);
        }
      found.push_back(is_average ? sum / double(o.kernel.height * o.kernel.width) : largest);
    }
  return found;
}

TEST(EdgeSizes, WindowsAsWideAsTheirPlanesArePooled) {
  for (std::int64_t width = 1; width < 12; ++width)
    for (std::int64_t kernel = 1; kernel < 12; ++kernel)
      for (const std::int64_t stride : {1, 2, 3, 4}) {
        const ops::PoolOptions o{kernel, stride, kernel / 2};
        const Tensor plane = randn({1, 1, 3, width}, DType::kF64);
        if (3 + 2 * (kernel / 2) < kernel || width + 2 * (kernel / 2) < kernel) continue;
        const Tensor largest = ops::max_pool2d(plane, o), average = ops::avg_pool2d(plane, o);
        const std::vector<double> wanted = pooled(plane, o, true, average.sizes());
        EXPECT_EQ(values(largest), pooled(plane, o, false, largest.sizes())) << width << kernel;
        for (std::size_t i = 0; i < wanted.size(); ++i)
          EXPECT_NEAR(values(average)[i], wanted[i], 1e-12) << width << ' ' << kernel;
      }
  const Tensor one = ops::adaptive_avg_pool2d(full({1, 1, 1, 1}, 3.0), {1, 1000});
  EXPECT_EQ(values(one), std::vector<double>(1000, 3));
  EXPECT_THROW(ops::max_pool2d(ones({1, 1, 0, 5}), {2, 1, 1}), InvalidArgument);
}

TEST(EdgeSizes, LossesTakeTargetsOfAnyIntegersAndNoClasses) {
  const Tensor logits = zeros({1, 200});
  const double wanted = ops::cross_entropy(logits, full({1}, 156, DType::kI64)).item<double>();
  for (const DType dtype : {DType::kU8, DType::kI16, DType::kI32}) {
    EXPECT_EQ(ops::cross_entropy(logits, full({1}, 156, dtype)).item<double>(), wanted);
    const Tensor loss = ops::nll_loss(logits, full({1}, 0, dtype), ops::Reduction::kMean, 256);
    EXPECT_EQ(loss.item<double>(), 0);
  }
  for (const DType dtype : {DType::kF32, DType::kF16})
    EXPECT_THROW(ops::cross_entropy(zeros({2, 0}, dtype), zeros({2}, DType::kI64)),
                 InvalidArgument);
}

TEST(EdgeSizes, IndicesOnMetaGiveSizesAndASingleMaskOnePlaceOrNone) {
  const Tensor meta = empty({3}, DType::kF32, Device{DeviceType::kMeta});
  const Tensor first = zeros({1}, DType::kI64);
  EXPECT_EQ(meta[{TensorIndex(first)}].sizes(), IntList({1}));
  meta.index_put_({TensorIndex(first)}, empty({1}, DType::kF32, meta.device()));
  const Tensor a = ones({3});
  EXPECT_EQ(a[{TensorIndex(zeros({}, DType::kBool))}].sizes(), IntList({0, 3}));
  EXPECT_EQ(a[{TensorIndex(ones({}, DType::kBool))}].sizes(), IntList({1, 3}));
}

TEST(EdgeSizes, LargeNumbersDoNotOverflow) {
  const Tensor a = ones({3, 3});
  EXPECT_EQ(values(ops::tril(a, kHuge)), values(a));
  EXPECT_EQ(values(ops::triu(a, kHuge)), values(zeros({3, 3})));
  EXPECT_EQ(values(ops::tril(a, -kHuge)), values(zeros({3, 3})));
  EXPECT_EQ(a.chunk(kHuge).size(), 3u);
  constexpr std::int64_t kBeyond = std::int64_t{1} << 53;
  EXPECT_EQ(arange(kBeyond, kBeyond + 3).numel(), 3);
  EXPECT_EQ(arange(kHuge - 2, kHuge).numel(), 2);
  EXPECT_EQ(arange(10, 0, -3).numel(), 4);
  const Tensor image = ones({1, 64, 50, 50}), weight = ones({64, 64, 3, 3});
  for (const ops::ConvOptions& o : {ops::ConvOptions{kHuge}, ops::ConvOptions{1, kHuge},
                                    ops::ConvOptions{1, 0, kHuge}}) {
    EXPECT_THROW(ops::conv2d(image, weight, {}, o), InvalidArgument);
    EXPECT_THROW(ops::conv_transpose2d(image, weight, {}, o), InvalidArgument);
  }
  EXPECT_EQ(ops::conv2d(image, weight, {}, {1 << 20}).numel(), 64);
}

TEST(EdgeSizes, GradientsOfNoElementsHaveTheInputsShape) {
  const auto shape = [](const Tensor& result, const Tensor& leaf) {
    const std::vector<Tensor> outs = {result}, leaves = {leaf}, gradients = {ones_like(result)};
    return autograd::grad(outs, leaves, gradients)[0].sizes().to_vector();
  };
  const Tensor rows = randn({2, 1, 3}).set_requires_grad(true);
  EXPECT_EQ(shape(ops::linear(rows, zeros({0, 3}), zeros({0})), rows), rows.sizes().to_vector());
  const Tensor table = zeros({3, 0}).set_requires_grad(true);
  EXPECT_EQ(shape(ops::embedding(ones({2}, DType::kI64), table), table), DimVector({3, 0}));
  const Tensor line = zeros({1, 2, 0}).set_requires_grad(true);
  EXPECT_EQ(shape(ops::conv1d(line, ones({2, 2, 1}), {}, {1, 1}), line), DimVector({1, 2, 0}));
}

TEST(EdgeSizes, UndefinedOperandsAreRefused) {
  const Tensor none, one = ones({2, 2});
  EXPECT_THROW(ops::relu(none), InvalidArgument);
  EXPECT_THROW(ops::sum(none), InvalidArgument);
  EXPECT_THROW(ops::matmul(one, none), InvalidArgument);
  EXPECT_THROW(ops::maximum(none, one), InvalidArgument);
  EXPECT_THROW(ops::where(ops::gt(one, 0), one, none), InvalidArgument);
  EXPECT_THROW(ops::index_select(one, 0, none), InvalidArgument);
  EXPECT_THROW(ops::scatter_add(one, 0, to(one, DType::kI64), none), InvalidArgument);
  EXPECT_THROW(ops::addmm(one, one, none), InvalidArgument);
  EXPECT_THROW(ops::masked_fill(one, none, 1), InvalidArgument);
  EXPECT_THROW(ops::cross_entropy(one, none), InvalidArgument);
  EXPECT_THROW(ops::scaled_dot_product_attention(one, one, none), InvalidArgument);
  // Functions that choose an operator.
  EXPECT_EQ(refusal([&] { ops::clamp(none, 0.0); }).substr(0, 6), "clamp:");
  EXPECT_EQ(refusal([&] { ops::add(one, none, 2.0); }).substr(0, 4), "add:");
  EXPECT_EQ(refusal([&] { ops::sub(none, one, 2.0); }).substr(0, 4), "sub:");
  EXPECT_EQ(refusal([&] { ops::conj(none); }).substr(0, 5), "conj:");
  EXPECT_EQ(refusal([&] { ops::real(none); }).substr(0, 5), "real:");
  const Tensor several[] = {one, none};
  EXPECT_THROW(ops::cat(several, 0), InvalidArgument);
}

TEST(EdgeSizes, PaddingMayCropMoreThanThereIs) {
  for (const auto& padding : {DimVector{-5, 5}, {5, -5}, {-3, 2}, {2, -3}, {1, -4}}) {
    const Tensor x = ones({3}).set_requires_grad(true);
    const Tensor y = ops::pad(x, padding, 7);
    EXPECT_EQ(values(y.detach()), std::vector<double>(static_cast<std::size_t>(y.numel()), 7));
    EXPECT_EQ(values(autograd::grad({y}, {x}, {ones(y.sizes())})[0]), std::vector<double>(3, 0));
  }
  EXPECT_THROW(ops::pad(ones({3}), {kHuge, kHuge}), std::exception);
}

TEST(EdgeSizes, OptionalOperandsMayBeUndefined) {
  const Tensor one = ones({2, 2}), image = ones({1, 2, 3, 3});
  EXPECT_EQ(ops::linear(one, one).sizes(), (DimVector{2, 2}));
  EXPECT_EQ(ops::conv2d(image, ones({4, 2, 1, 1})).sizes(), (DimVector{1, 4, 3, 3}));
  EXPECT_EQ(ops::layer_norm(one, {2}).sizes(), one.sizes());
  EXPECT_EQ(ops::batch_norm(image, {}, {}, {}, {}, true).sizes(), image.sizes());
  EXPECT_EQ(ops::scaled_dot_product_attention(one, one, one).sizes(), one.sizes());
}

TEST(EdgeSizes, PrintingShowsNoEdgesAndRefusesNegativeNumbers) {
  const PrintOptions no_edges{.threshold = 2, .edge_items = 0};
  EXPECT_EQ(to_string(ones({5}), no_edges), "tensor([ ...])");
  EXPECT_THROW(to_string(ones({5}), PrintOptions{.precision = -1}), InvalidArgument);
  EXPECT_THROW(to_string(ones({5}), PrintOptions{.edge_items = -1}), InvalidArgument);
}

TEST(EdgeSizes, ARepeatHasAsManyDimensionsAsATensor) {
  DimVector sizes(64, 1), repeats(64, 1);
  sizes[3] = 2, sizes[60] = 3, repeats[3] = 2, repeats[50] = 2;
  const Tensor x = arange(6, DType::kF64).view(sizes).set_requires_grad(true);
  const Tensor y = ops::repeat(x, repeats);
  EXPECT_EQ(values(y.detach()), values(ops::repeat(arange(6, DType::kF64).view({2, 1, 3}),
                                                   DimVector{2, 2, 1})));
  EXPECT_EQ(values(autograd::grad({y}, {x}, {ones_like(y)})[0]), std::vector<double>(6, 4));
  EXPECT_EQ(ops::repeat(ones({}), DimVector(40, 1)).dim(), 40);
  EXPECT_EQ(ops::repeat(ones({2}), {0, 3}).sizes(), (DimVector{0, 6}));
  EXPECT_THROW(ops::repeat(ones({}), DimVector(65, 1)), InvalidArgument);
}

TEST(EdgeSizes, SizesThatOverflowTogetherAreRefused) {
  const Tensor wide = ones({1}).as_strided({std::int64_t{1} << 62}, {0}, 0);
  const Tensor four[] = {wide, wide, wide, wide};
  EXPECT_EQ(refusal([&] { ops::cat(four, 0); }).substr(0, 32),
            "cat: more than 2^63 - 1 elements");
}

TEST(EdgeSizes, TheLargestOfAZeroDimensionalTensorIsItsElement) {
  for (const std::int64_t k : {0, 1}) {
    const Tensor x = full({}, 3.0).set_requires_grad(true);
    const auto [found, places] = ops::topk(x, k, 0);
    EXPECT_EQ(found.dim(), 0);
    EXPECT_EQ(found.item<float>(), 3);
    EXPECT_EQ(places.item<std::int64_t>(), 0);
    EXPECT_EQ(autograd::grad({found}, {x})[0].item<float>(), 1);
  }
  EXPECT_THROW(ops::topk(full({}, 3.0), 2, 0), InvalidArgument);
}

TEST(EdgeSizes, AVarianceOfTooFewHasNoFiniteGradient) {
  for (const std::int64_t correction : {2, 3, 5}) {
    const Tensor x = tensor<double>({1, 2}).set_requires_grad(true);
    const Tensor g = autograd::grad({ops::var(x, {0}, correction)}, {x})[0];
    const Tensor of_root = autograd::grad({ops::std(x, {0}, correction)}, {x})[0];
    EXPECT_EQ(values(ops::isfinite(g)), std::vector<double>(2, 0)) << correction;
    EXPECT_EQ(values(ops::isnan(of_root)), std::vector<double>(2, 1)) << correction;
    const Tensor same = ones({2}, DType::kF64).set_requires_grad(true);
    const Tensor of_same = autograd::grad({ops::var(same, {0}, correction)}, {same})[0];
    EXPECT_EQ(values(ops::isnan(of_same)), std::vector<double>(2, 1)) << correction;
  }
}

TEST(EdgeSizes, RunningStatisticsAreRealNumbersThatTrainingMayWrite) {
  const Tensor x = ones({2, 3, 2}), good = ones({3});
  for (const bool training : {false, true}) {
    for (const DType dtype : {DType::kI64, DType::kBool, DType::kC64}) {
      const Tensor bad = to(good, dtype);
      EXPECT_THROW(ops::batch_norm(x, bad, good, {}, {}, training), InvalidArgument);
      EXPECT_THROW(ops::batch_norm(x, good, bad, {}, {}, training), InvalidArgument);
    }
    EXPECT_EQ(ops::batch_norm(x, clone(good), clone(good), {}, {}, training).sizes(), x.sizes());
  }
  const Tensor learned = ones({3}).set_requires_grad(true);
  EXPECT_THROW(ops::batch_norm(x, learned, good, {}, {}, true), InvalidArgument);
  EXPECT_TRUE(ops::batch_norm(x, learned, good, {}, {}, false).requires_grad());
}

TEST(EdgeSizes, GradientsOfTransposedInputsAreChecked) {
  const Tensor turned = randn({2, 3}, DType::kF64).t().set_requires_grad(true);
  const std::vector<Tensor> inputs = {turned};
  const auto square = [](std::span<const Tensor> in) {
    return std::vector<Tensor>{ops::square(in[0])};
  };
  EXPECT_EQ(autograd::gradcheck(square, inputs), "");
}

}  // namespace
}  // namespace tenon
