#include "tenon/nn/norms.h"

#include "tenon/nn/init.h"
#include "tenon/ops/normalization.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::nn {
namespace {

Tensor make_filled(IntList sizes, double value) {
  return make_parameter(sizes, [=](const Tensor& t, Generator&) { fill_(t, value); });
}

}  // namespace

LayerNorm::LayerNorm(IntList shape, double eps, bool affine)
    : shape_(shape.to_vector()), eps_(eps) {
  if (!affine) return;
  weight = register_parameter("weight", make_filled(shape, 1));
  bias = register_parameter("bias", make_filled(shape, 0));
}

Tensor LayerNorm::forward(const Tensor& input) {
  return ops::layer_norm(input, shape_, weight, bias, eps_);
}

RMSNorm::RMSNorm(IntList shape, double eps, bool affine) : shape_(shape.to_vector()), eps_(eps) {
  if (affine) weight = register_parameter("weight", make_filled(shape, 1));
}

Tensor RMSNorm::forward(const Tensor& input) {
  return ops::rms_norm(input, shape_, weight, eps_);
}

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, double eps, bool affine)
    : groups_(groups), eps_(eps) {
  if (!affine) return;
  weight = register_parameter("weight", make_filled({channels}, 1));
  bias = register_parameter("bias", make_filled({channels}, 0));
}

Tensor GroupNorm::forward(const Tensor& input) {
  return ops::group_norm(input, groups_, weight, bias, eps_);
}

BatchNorm::BatchNorm(std::int64_t channels, double eps, double momentum, bool affine)
    : eps_(eps), momentum_(momentum) {
  if (affine) {
    weight = register_parameter("weight", make_filled({channels}, 1));
    bias = register_parameter("bias", make_filled({channels}, 0));
  }
  running_mean = register_buffer("running_mean", zeros({channels}));
  running_var = register_buffer("running_var", ones({channels}));
}

Tensor BatchNorm::forward(const Tensor& input) {
  return ops::batch_norm(input, running_mean, running_var, weight, bias, is_training(), momentum_,
                         eps_);
}

}  // namespace tenon::nn
