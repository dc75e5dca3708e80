#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "tenon/ops/binary.h"
#include "tenon/ops/channel_rows.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/blocks.h"
#include "tenon/ops/normalization.h"
#include "tenon/ops/plane_norms.h"
#include "tenon/ops/reduce.h"
#include "tenon/ops/unary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"

namespace tenon::ops {
namespace {

// x * scale + shift.
template <typename T>
void scale_and_shift(void* out, const void* const* in, std::int64_t count, const double*) {
  static const BlockFunction multiply = cpu::binary_block(Binary::kMul, dtype_of<T>());
  static const BlockFunction add = cpu::binary_block(Binary::kAdd, dtype_of<T>());
  multiply(out, in, count, nullptr);
  const void* const both[2] = {out, in[2]};
  add(out, both, count, nullptr);
}

DimVector all_but_channels(const Tensor& a) {
  DimVector dims;
  for (std::int64_t d = 0; d < a.dim(); ++d)
    if (d != 1) dims.push_back(d);
  return dims;
}

using Numbers = ChannelNumbers;

void move_towards(const Tensor& running, const Numbers& now, double factor, double momentum) {
  if (!running.defined()) return;
  Numbers numbers = numbers_of(running, running.numel(), 0);
  for (std::size_t c = 0; c < numbers.size(); ++c)
    numbers[c] = numbers[c] * (1 - momentum) + now[c] * factor * momentum;
  copy_(running, tensor<double>(numbers, running.sizes()));
}

// Of each channel of a batch.
void batch_moments(const Tensor& a, Numbers& mean, Numbers& variance) {
  const std::int64_t channels = a.size(1);
  if (has_channel_rows(a)) return moments_of_channels(a, mean, variance);
  if (!are_worth_calls(a)) {
    const Tensor wide = to(a, compute_dtype(a.dtype()));
    mean = numbers_of(ops::mean(wide, all_but_channels(a)), channels, 0);
    variance = numbers_of(ops::var(wide, all_but_channels(a), 0), channels, 0);
    return;
  }
  const Tensor moments = moments_of_rows(a, a.numel() / (a.size(0) * channels));
  const auto* const of_planes = moments.const_data_ptr<double>();
  const auto images = static_cast<double>(a.size(0));
  mean.assign(static_cast<std::size_t>(channels), 0);
  variance = mean;
  for (std::int64_t c = 0; c < channels; ++c) {
    double& m = mean[static_cast<std::size_t>(c)];
    double& v = variance[static_cast<std::size_t>(c)];
    for (std::int64_t i = c; i < a.size(0) * channels; i += channels) m += of_planes[2 * i];
    m /= images;
    for (std::int64_t i = c; i < a.size(0) * channels; i += channels)
      v += of_planes[2 * i + 1] + (of_planes[2 * i] - m) * (of_planes[2 * i] - m);
    v /= images;
  }
}

// Requires: elements. The statistics, and what is made of them for each channel, are of f64.
Tensor batch_norm_on_host(const Tensor& a, const Tensor& running_mean, const Tensor& running_var,
                          const Tensor& weight, const Tensor& bias, bool training, double momentum,
                          double eps) {
  const std::int64_t channels = a.size(1);
  Numbers mean, variance;
  if (training) {
    batch_moments(a, mean, variance);
    const auto count = static_cast<double>(a.numel() / channels);
    move_towards(running_mean, mean, 1, momentum);
    move_towards(running_var, variance, count / (count - 1), momentum);
  } else {
    mean = numbers_of(running_mean, channels, 0);
    variance = numbers_of(running_var, channels, 0);
  }
  // x * scale + shift: one pass whatever there is to apply.
  Numbers scale = numbers_of(weight, channels, 1), shift = numbers_of(bias, channels, 0);
  for (std::size_t c = 0; c < scale.size(); ++c) {
    scale[c] /= std::sqrt(variance[c] + eps);
    shift[c] -= mean[c] * scale[c];
  }
  if (has_channel_rows(a)) return scale_channels(a, scale, shift);
  if (are_worth_calls(a)) {
    std::vector<PlaneNumbers> numbers;
    for (std::size_t c = 0; c < scale.size(); ++c) numbers.push_back({scale[c], shift[c]});
    return scale_planes(a, numbers);
  }
  const DType compute = compute_dtype(a.dtype());
  const Tensor s = by_channel(to(tensor<double>(scale, {channels}), compute), a);
  const Tensor t = by_channel(to(tensor<double>(shift, {channels}), compute), a);
  ElementwisePlan plan;
  plan.function = compute == DType::kF64 ? &scale_and_shift<double> : &scale_and_shift<float>;
  plan.input_count = 3;
  plan.input_dtypes = {compute, compute, compute};
  plan.result_dtype = compute;
  Tensor out = elementwise_result(a.sizes(), a.dtype(), Device{}, {&a, &s, &t});
  run_elementwise(plan, out, {&a, &s, &t});
  return out;
}

// Training writes them, which has no derivative.
void check_statistics(std::initializer_list<const Tensor*> all, bool training) {
  for (const Tensor* t : all) {
    if (!t->defined()) continue;
    if (!is_floating(t->dtype()))
      throw InvalidArgument(
          fmt::format("batch_norm: running statistics of {}; they are of a floating-point dtype",
                      dtype_name(t->dtype())));
    if (training && t->requires_grad())
      throw InvalidArgument(fmt::format(
          "batch_norm: training changes running statistics of shape {} that require a gradient; "
          "give their detach()",
          to_string(t->sizes())));
  }
}

}  // namespace

Tensor detail::batch_norm(const Tensor& a, const Tensor& running_mean, const Tensor& running_var,
                          const Tensor& weight, const Tensor& bias, bool training, double momentum,
                          double eps) {
  device_to_offer("batch_norm", {&a, &running_mean, &running_var, &weight, &bias});
  check_floating("batch_norm", a);
  check_channels("batch_norm", a, {&running_mean, &running_var, &weight, &bias});
  check_statistics({&running_mean, &running_var}, training);
  if (!training && (!running_mean.defined() || !running_var.defined()))
    throw InvalidArgument("batch_norm: without training it needs the running mean and variance");
  if (a.device() == Device{} && a.numel() > 0)
    return batch_norm_on_host(a, running_mean, running_var, weight, bias, training, momentum, eps);
  const DType compute = compute_dtype(a.dtype());
  const Tensor wide = to(a, compute);
  Tensor mean = running_mean;
  Tensor variance = running_var;
  if (training) {
    const DimVector dims = all_but_channels(a);
    mean = ops::mean(wide, dims);
    variance = ops::var(wide, dims, 0);
    const double count = a.size(1) == 0 ? 0 : static_cast<double>(a.numel() / a.size(1));
    if (running_mean.defined()) add_(mul_(running_mean, 1 - momentum), mul(mean, momentum));
    if (running_var.defined())
      add_(mul_(running_var, 1 - momentum), mul(variance, momentum * count / (count - 1)));
  }
  // x * scale + shift: two passes whatever there is to apply.
  Tensor scale = rsqrt(add(to(variance, compute), eps));
  if (weight.defined()) scale = mul(scale, to(weight, compute));
  Tensor shift = neg(mul(to(mean, compute), scale));
  if (bias.defined()) shift = add(shift, to(bias, compute));
  return to(add_(mul(wide, by_channel(scale, a)), by_channel(shift, a)), a.dtype());
}

}  // namespace tenon::ops
