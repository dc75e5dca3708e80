// How parameters begin. Thread-safe while no other thread uses the weight or the generator.
// O(elements).
#pragma once

#include "tenon/tensor/random.h"

namespace tenon::nn {

// How many inputs one output element has: the product of all sizes of a weight but the first.
// Throws InvalidArgument below two dimensions.
std::int64_t fan_in(const Tensor& weight);

// Uniform within +-bound, where bound = gain * sqrt(3 / fan_in): the variance of what passes is
// kept (He et al. 2015, "Delving deep into rectifiers"). A gain of sqrt(1 / 3) is what PyTorch's
// Linear and Conv begin with: bound = 1 / sqrt(fan_in).
const Tensor& kaiming_uniform_(const Tensor& weight, double gain,
                               Generator& generator = default_generator());

// Uniform within +-gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010).
const Tensor& xavier_uniform_(const Tensor& weight, double gain = 1,
                              Generator& generator = default_generator());

}  // namespace tenon::nn
