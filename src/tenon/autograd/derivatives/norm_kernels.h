// Backward of normalisations in two passes over dense elements.
#pragma once

#include <optional>

#include "tenon/tensor/tensor.h"

namespace tenon::autograd {

struct NormGradients {
  Tensor input, weight, bias;
};

// Rows of the last dimensions: `weight` has a row's length, or is undefined. `centred`: the mean
// was taken away (layer_norm), else not (rms_norm). Without `with_parameters` only the input's. One
// floating dtype, f32 or f64, contiguous. The result is the same on any number of threads.
// O(elements).
// On the host, the meta device, and Vulkan devices; nothing where such a device has no kernel.
std::optional<NormGradients> rows_backward(const Tensor& gradient, const Tensor& input,
                                           const Tensor& weight, std::int64_t length, double eps,
                                           bool centred, bool with_parameters);

// Groups of channels, dimension 1, in each image. Where rows_backward is.
std::optional<NormGradients> groups_backward(const Tensor& gradient, const Tensor& input,
                                             const Tensor& weight, std::int64_t groups,
                                             double eps);

// Channels are dimension 1, statistics are the batch's own (undefined `mean`) or given. Where
// rows_backward is. On the host, gradient and input may be of 16-bit floats, which are widened a
// channel at a time: the others, and those of the parameters, are of f32 then.
std::optional<NormGradients> channels_backward(const Tensor& gradient, const Tensor& input,
                                               const Tensor& weight, const Tensor& mean,
                                               const Tensor& variance, double eps);

}  // namespace tenon::autograd
