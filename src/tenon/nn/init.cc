#include "tenon/nn/init.h"

#include <fmt/format.h>

#include <cmath>

#include "tenon/base/error.h"

namespace tenon::nn {

std::int64_t fan_in(const Tensor& weight) {
  if (weight.dim() < 2 || weight.size(0) == 0)
    throw InvalidArgument(
        fmt::format("a weight of shape {} has no fan-in: it needs two dimensions and a first size "
                    "above 0",
                    to_string(weight.sizes())));
  return weight.numel() / weight.size(0);
}

const Tensor& kaiming_uniform_(const Tensor& weight, double gain, Generator& generator) {
  const double bound = gain * std::sqrt(3.0 / static_cast<double>(fan_in(weight)));
  return uniform_(weight, -bound, bound, generator);
}

const Tensor& xavier_uniform_(const Tensor& weight, double gain, Generator& generator) {
  if (weight.dim() < 2 || weight.size(1) == 0)
    throw InvalidArgument(
        fmt::format("a weight of shape {} has no fan-out: it needs two dimensions and a second "
                    "size above 0",
                    to_string(weight.sizes())));
  const double receptive = static_cast<double>(fan_in(weight) / weight.size(1));
  const double fans = static_cast<double>(weight.size(0) + weight.size(1)) * receptive;
  const double bound = gain * std::sqrt(6.0 / fans);
  return uniform_(weight, -bound, bound, generator);
}

}  // namespace tenon::nn
