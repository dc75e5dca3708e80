#include "tenon/nn/init.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "tenon/base/error.h"

namespace tenon::nn {
namespace {

thread_local DeferredFills* deferred_fills = nullptr;

}  // namespace

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

Tensor make_parameter(IntList sizes, Fill fill, Generator& generator) {
  const Device device = deferred_fills == nullptr ? Device{} : Device{DeviceType::kMeta};
  Tensor parameter = empty(sizes, DType::kF32, device);
  refill_parameter(parameter, std::move(fill), generator);
  return parameter;
}

void refill_parameter(const Tensor& parameter, Fill fill, Generator& generator) {
  const std::uint64_t offset = generator.offset();
  fill(parameter.detach(), generator);
  if (deferred_fills != nullptr)
    deferred_fills->fills_[parameter.impl()].push_back(
        {parameter, std::move(fill), generator.seed(), offset});
}

DeferredFills::DeferredFills() : outer_(deferred_fills) { deferred_fills = this; }

DeferredFills::~DeferredFills() { deferred_fills = outer_; }

bool DeferredFills::fill(const Tensor& parameter, const Tensor& place) const {
  const auto found = fills_.find(parameter.impl());
  if (found == fills_.end()) return false;
  for (const Deferred& deferred : found->second) {
    Generator generator(deferred.seed);
    generator.set_offset(deferred.offset);
    deferred.fill(place, generator);
  }
  return true;
}

}  // namespace tenon::nn
