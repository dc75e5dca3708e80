// Normalisation of batches and of groups of channels, by their definitions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/reference.h"
#include "tenon/autograd/autograd.h"
#include "tenon/ops/operators.h"

namespace tenon {
namespace {

using testing::values;

constexpr double kEps = 1e-5, kMomentum = 0.1;

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments(const std::vector<double>& x, const std::vector<std::size_t>& places) {
  Moments n;
  for (const std::size_t i : places) n.mean += x[i] / static_cast<double>(places.size());
  for (const std::size_t i : places)
    n.variance += (x[i] - n.mean) * (x[i] - n.mean) / static_cast<double>(places.size());
  return n;
}

double unit(DType dtype) {
  if (dtype == DType::kF64) return 1e-12;
  return dtype == DType::kF32 ? 2e-5 : dtype == DType::kF16 ? 4e-3 : 3e-2;
}

// Planes of one element, short ones, few and many of them, and such as are longer than a piece.
const std::vector<DimVector> kBatches = {{6, 5},         {64, 5, 1, 1},   {3, 4, 3, 5},
                                        {70, 4, 3, 3},  {70, 4, 4, 4},   {2, 3, 50, 90},
                                        {33, 9, 5, 13}, {1, 2, 1, 4100}, {40, 8, 8, 8}};

class ChannelPlaces {
 public:
  explicit ChannelPlaces(const Tensor& a)
      : channels_(a.size(1)), plane_(a.numel() / a.size(0) / channels_) {
    places_.resize(static_cast<std::size_t>(channels_));
    for (std::int64_t i = 0; i < a.numel(); ++i)
      places_[static_cast<std::size_t>(channel(i))].push_back(static_cast<std::size_t>(i));
  }
  std::int64_t channel(std::int64_t element) const { return element / plane_ % channels_; }
  const std::vector<std::size_t>& places(std::int64_t c) const {
    return places_[static_cast<std::size_t>(c)];
  }

 private:
  std::int64_t channels_, plane_;
  std::vector<std::vector<std::size_t>> places_;
};

void expect_batch_norm(const Tensor& a, bool training, bool has_weight) {
  const std::string what =
      fmt::format("{} {} {}", to_string(a.sizes()), dtype_name(a.dtype()), training);
  const std::int64_t channels = a.size(1);
  const Tensor mean = to(randn({channels}), a.dtype()), variance = to(rand({channels}), a.dtype());
  const Tensor weight = has_weight ? to(randn({channels}), a.dtype()) : Tensor();
  const Tensor bias = has_weight ? to(randn({channels}), a.dtype()) : Tensor();
  const Tensor running_mean = clone(mean), running_variance = clone(variance);
  const Tensor out = ops::batch_norm(a, running_mean, running_variance, weight, bias, training,
                                     kMomentum, kEps);
  ASSERT_EQ(out.dtype(), a.dtype());
  const std::vector<double> x = values(a), y = values(out);
  const ChannelPlaces all(a);
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto at = [&](const Tensor& t) { return values(t)[static_cast<std::size_t>(c)]; };
    Moments n{at(mean), at(variance)};
    if (training) {
      n = moments(x, all.places(c));
      const auto count = static_cast<double>(all.places(c).size());
      const double error = unit(a.dtype()) * 4;
      ASSERT_NEAR(at(running_mean), at(mean) * 0.9 + n.mean * 0.1, error) << what;
      ASSERT_NEAR(at(running_variance), at(variance) * 0.9 + n.variance * count / (count - 1) * 0.1,
                  error)
          << what;
    }
    for (const std::size_t i : all.places(c)) {
      const double wanted = (x[i] - n.mean) / std::sqrt(n.variance + kEps) *
                                (has_weight ? at(weight) : 1) +
                            (has_weight ? at(bias) : 0);
      ASSERT_NEAR(y[i], wanted, unit(a.dtype()) * (1 + std::abs(wanted))) << what << ' ' << i;
    }
  }
}

TEST(ChannelNormsTest, BatchNormIsItsDefinition) {
  for (const DimVector& shape : kBatches)
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
      const Tensor a = to(ops::add(randn(shape), 0.5), dtype);
      for (const bool training : {false, true}) expect_batch_norm(a, training, true);
      expect_batch_norm(a, true, false);
      if (a.dim() == 4) expect_batch_norm(contiguous(a, MemoryFormat::kChannelsLast), true, true);
    }
}

// Of the elements, the weight and the bias.
std::vector<Tensor> gradients_of_batch_norm(const Tensor& a, const Tensor& weight, bool training) {
  const std::int64_t channels = a.size(1);
  const Tensor mean = to(full({channels}, 0.25), a.dtype());
  const Tensor variance = to(full({channels}, 2), a.dtype());
  const auto leaf = [&](const Tensor& t) {
    return to(t, a.dtype()).detach().set_requires_grad(true);
  };
  const std::vector<Tensor> leaves = {leaf(a), leaf(weight), leaf(weight)};
  const std::vector<Tensor> outs = {ops::batch_norm(leaves[0], mean, variance, leaves[1],
                                                    leaves[2], training, kMomentum, kEps)};
  const Tensor steps = arange(a.numel(), DType::kF64).view(a.sizes());
  const Tensor plain = ops::sub(ops::remainder(ops::mul(steps, 7), 17), 8);  // exact in any dtype
  const std::vector<Tensor> gradients = {copy_(empty_like(outs[0]), to(plain, a.dtype()))};
  return autograd::grad(outs, leaves, gradients);
}

// Of rows of channels, and of planes of 16-bit floats: those of planes of f64.
TEST(ChannelNormsTest, GradientsOfBatchNormAreThoseOfPlanesOfDoubles) {
  for (const DimVector& shape : {DimVector{64, 5}, DimVector{3, 4, 3, 5}, DimVector{7, 70, 6, 4},
                                 DimVector{2, 3, 50, 90}, DimVector{5, 600, 3, 2}})
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
      for (const int form : {0, 1, 2, 3}) {  // channels-last, training
        if (form % 2 == 1 && shape.size() == 2) continue;
        Tensor a = to(ops::add(randn(shape), 0.5), dtype);
        const Tensor planes = to(a, DType::kF64);
        if (form % 2 == 1) a = contiguous(a, MemoryFormat::kChannelsLast);
        const Tensor weight = to(to(rand({shape[1]}), dtype), DType::kF64);
        const std::vector<Tensor> wanted = gradients_of_batch_norm(planes, weight, form > 1);
        const std::vector<Tensor> found = gradients_of_batch_norm(a, weight, form > 1);
        EXPECT_EQ(found[0].strides(), a.strides());
        for (std::size_t i = 0; i < 3; ++i) {
          const Tensor error = ops::sub(to(found[i], DType::kF64), wanted[i]);
          EXPECT_LT(ops::amax(ops::abs(error)).item<double>(),
                    unit(dtype) * (1 + ops::amax(ops::abs(wanted[i])).item<double>()))
              << to_string(shape) << ' ' << dtype_name(dtype) << ' ' << form << ' ' << i;
        }
      }
}

TEST(ChannelNormsTest, ChannelsFarFromZeroAndVeryLargeOnesKeepTheirMoments) {
  for (const double scale : {1.0, 1e25}) {
    const Tensor noise = randn({40, 6, 5, 5}, DType::kF64);
    const Tensor x = to(ops::mul(ops::add(noise, 1000), scale), DType::kF32);
    const Tensor a = contiguous(x, MemoryFormat::kChannelsLast);
    const Tensor found = to(ops::batch_norm(a, {}, {}, {}, {}, true, 0.1, 0), DType::kF64);
    const Tensor wanted = ops::batch_norm(to(x, DType::kF64), {}, {}, {}, {}, true, 0.1, 0);
    EXPECT_LT(ops::amax(ops::abs(ops::sub(found, wanted))).item<double>(), 1e-3) << scale;
  }
}

TEST(ChannelNormsTest, GroupNormIsItsDefinition) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
    for (const DimVector& shape : {DimVector{3, 4, 3, 5}, DimVector{5, 6, 4, 4},
                                   DimVector{2, 4, 50, 45}, DimVector{300, 2, 1, 9}}) {
      const Tensor a = to(randn(shape), dtype), weight = to(randn({shape[1]}), dtype);
      const Tensor bias = to(randn({shape[1]}), dtype);
      const std::vector<double> x = values(a), w = values(weight), b = values(bias);
      const std::vector<double> y = values(ops::group_norm(a, 2, weight, bias, kEps));
      const std::size_t group = x.size() / static_cast<std::size_t>(2 * shape[0]);
      const ChannelPlaces all(a);
      for (std::size_t first = 0; first < x.size(); first += group) {
        std::vector<std::size_t> places;
        for (std::size_t i = first; i < first + group; ++i) places.push_back(i);
        const Moments n = moments(x, places);
        for (const std::size_t i : places) {
          const auto c = static_cast<std::size_t>(all.channel(static_cast<std::int64_t>(i)));
          const double wanted = (x[i] - n.mean) / std::sqrt(n.variance + kEps) * w[c] + b[c];
          ASSERT_NEAR(y[i], wanted, unit(dtype) * (1 + std::abs(wanted)) * 2)
              << to_string(shape) << ' ' << dtype_name(dtype) << ' ' << i;
        }
      }
    }
}

}  // namespace
}  // namespace tenon
