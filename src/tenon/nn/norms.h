// Normalisation layers. Inputs are floating point, and results have their shape and dtype. The
// variance is divided by the count. Threads: as Module. Throws InvalidArgument, with the shapes,
// for an input that does not fit, and OutOfMemory. O(elements). 16-bit floats are computed in f32,
// statistics in f64.
#pragma once

#include "tenon/nn/module.h"

namespace tenon::nn {

// (x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions, whose sizes are
// `shape`. Ba, Kiros and Hinton 2016.
class LayerNorm final : public Module {
 public:
  explicit LayerNorm(IntList shape, double eps = 1e-5, bool affine = true);
  Tensor forward(const Tensor& input) override;

  Tensor weight;  // ones at first; undefined without `affine`
  Tensor bias;    // zeros

 private:
  const DimVector shape_;
  const double eps_;
};

// x / sqrt(mean(x^2) + eps) * weight over the last dimensions, whose sizes are `shape`. Zhang and
// Sennrich 2019.
class RMSNorm final : public Module {
 public:
  explicit RMSNorm(IntList shape, double eps = 1e-6, bool affine = true);
  Tensor forward(const Tensor& input) override;

  Tensor weight;

 private:
  const DimVector shape_;
  const double eps_;
};

// LayerNorm's formula over each group of channels (dimension 1 of [N, channels, ...]) and all
// dimensions behind. The groups must divide the channels. Wu and He 2018.
class GroupNorm final : public Module {
 public:
  GroupNorm(std::int64_t groups, std::int64_t channels, double eps = 1e-5, bool affine = true);
  Tensor forward(const Tensor& input) override;

  Tensor weight;  // by channel
  Tensor bias;

 private:
  const std::int64_t groups_;
  const double eps_;
};

// LayerNorm's formula by channel (dimension 1 of [N, channels, ...]) over the batch and all other
// dimensions. In training the statistics are the batch's, and
//
//     running <- (1 - momentum) running + momentum batch
//
// where the batch's variance is divided by its count - 1. Otherwise the statistics are the running
// ones. Ioffe and Szegedy 2015.
class BatchNorm final : public Module {
 public:
  explicit BatchNorm(std::int64_t channels, double eps = 1e-5, double momentum = 0.1,
                     bool affine = true);
  Tensor forward(const Tensor& input) override;

  Tensor weight;
  Tensor bias;
  Tensor running_mean;  // buffers
  Tensor running_var;

 private:
  const double eps_;
  const double momentum_;
};

}  // namespace tenon::nn
